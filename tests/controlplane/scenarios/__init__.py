"""Scenarios that two schedulers play on clusters of their own, one module a family of plugins.

Each is a function of a ``ScenarioCluster``; it says in its checks where pods go, and the test says
that both stories are the same. Nodes differ in size or weight so that no tie is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable

from envtest.scenario_cluster import ScenarioCluster

Scenario = Callable[[ScenarioCluster], None]
