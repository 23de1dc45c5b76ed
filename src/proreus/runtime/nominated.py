"""Nodes that pods are nominated to are judged with those pods on them.

A pod has to respect the nominations of pods that are not less important: a node must be able to
take it beside them as well as without them, since nobody knows whether they will come.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Nominator
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.runtime.judging import judge_node, judge_table
from proreus.runtime.profile import Profile

_FEW_NOMINATED = 4
"""Up to so many nodes with nominated pods are judged one by one."""


class NominatedPods:
    """Judges nodes with the pods that are nominated to them."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator

    def node_names(self) -> set[str]:
        """Return the names of the nodes that pods are nominated to."""
        return set(self._nominator.nominated_nodes())

    def rows(self, table: NodeTable) -> set[int]:
        """Return the rows of those nodes."""
        names = self._nominator.nominated_nodes()
        return {row for name in names if (row := table.rows.get(name)) is not None}

    def before(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node that this pod has to respect."""
        return [
            other
            for other in self._nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

    def judge_row(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int, nodes: NodeTable
    ) -> Status | None:
        """Judge a row with the pods that are nominated to it; None where there are none."""
        nominated = self.before(pod, nodes[row].name)
        if not nominated:
            return None
        trial = state.clone()
        fork = nodes.fork(np.array([row], dtype=np.intp))
        for other in nominated:
            if other.uid in fork[0].pods:
                continue
            profile.add_pod(trial, pod, other, fork, 0)
        return judge_node(profile, trial, pod, fork, 0)

    def rejected(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: list[int], nodes: NodeTable
    ) -> list[tuple[int, Status]]:
        """Judge rows, each with the pods nominated to it; return those that are rejected."""
        if len(rows) > _FEW_NOMINATED and _adding_is_row_local(profile, state):
            judged = self._judge_at_once(profile, state, pod, rows, nodes)
        else:
            judged = ((row, self.judge_row(profile, state, pod, row, nodes)) for row in rows)
        return [(row, status) for row, status in judged if status is not None]

    def _judge_at_once(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: list[int], nodes: NodeTable
    ) -> Iterable[tuple[int, Status | None]]:
        """Judge many rows in one go: only where adding a pod to one concerns no other."""
        nominated = {row: self.before(pod, nodes[row].name) for row in rows}
        rows = [row for row in rows if nominated[row]]
        fork = nodes.fork(np.array(rows, dtype=np.intp))
        for index, row in enumerate(rows):
            for other in nominated[row]:
                if other.uid not in fork[index].pods:
                    fork.add_pod(index, other)
        verdicts = judge_table(profile, state, pod, fork)
        return ((row, verdicts.status(index)) for index, row in enumerate(rows))


def _adding_is_row_local(profile: Profile, state: CycleState) -> bool:
    """Tell whether a pod added to one node concerns that node's verdict alone."""
    skipped = state.skip_filter
    return all(p.row_local or p.name in skipped for p in profile.filter) and all(
        type(p).add_pod is PreFilterPlugin.add_pod or p.name in skipped for p in profile.pre_filter
    )
