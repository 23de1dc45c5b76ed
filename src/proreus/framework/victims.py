"""The victims of a preemption on one node, as preemption and extenders exchange them."""

from __future__ import annotations

from typing import NamedTuple

from proreus.framework.pod_info import PodInfo


class Victims(NamedTuple):
    """The pods to be evicted from one node, the most important first.

    ``pdb_violations``: how many of them violate a PodDisruptionBudget.
    """

    pods: tuple[PodInfo, ...]
    pdb_violations: int
