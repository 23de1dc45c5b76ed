"""Scenarios that two schedulers play, each on its own cluster; one module per family of plugins.

A scenario is a function of a ``ScenarioCluster``. It asserts where pods are bound itself, and the
test asserts that the recorded states of both clusters are equal. Nodes differ in size or weight, so
that no decision depends on a random choice among equal scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from envtest.scenario_cluster import ScenarioCluster

Scenario = Callable[[ScenarioCluster], None]


@dataclass(frozen=True)
class Interrupted:
    """A scenario in three parts, with no scheduler ``meanwhile``: each starts anew afterwards."""

    before: Scenario
    meanwhile: Scenario
    after: Scenario
