"""Nodes that pods are nominated to are judged with those pods on them.

A pod has to respect the nominations of pods that are not less important: a node must be able to
take it beside them as well as without them, since nobody knows whether they will come.

What a node came to for one pod holds for the next one that all filters take for alike, as long as
the node and the pods nominated to it stay what they are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Nominator
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.runtime.judging import judge_node, judge_table
from proreus.runtime.profile import Profile

_FEW_NOMINATED = 4
"""Up to so many nodes with nominated pods are judged one by one."""
_MOST_KINDS = 16
"""Of so many kinds of pods the verdicts are remembered."""


def likeness(
    filters: Sequence[FilterPlugin], state: CycleState, pod: PodInfo, table: NodeTable
) -> Hashable | None:
    """Return what is the same for pods that all filters of a cycle take for alike.

    None where one of them looks across nodes or does not sign the pod.
    """
    signatures: list[Hashable] = []
    for plugin in filters:
        if plugin.name in state.skip_filter:
            continue
        signature = plugin.sign(pod) if plugin.row_local else None
        if signature is None:
            return None
        signatures.append((plugin.name, signature, plugin.outlook(table)))
    return tuple(signatures)


class _Judged:
    """What rows came to for one kind of pods, and beside whom; rows that change are forgotten."""

    def __init__(self) -> None:
        self._position = -1
        self._by_row: dict[int, tuple[tuple[PodInfo, ...], Status | None]] = {}

    def refresh(self, table: NodeTable) -> None:
        rows = table.changes_since(self._position) if self._position >= 0 else None
        if rows is None:
            self._by_row.clear()
        else:
            for row in rows:
                self._by_row.pop(row, None)
        self._position = table.position

    def knows(self, row: int, beside: tuple[PodInfo, ...]) -> bool:
        known = self._by_row.get(row)
        return known is not None and known[0] == beside

    def note(self, row: int, beside: tuple[PodInfo, ...], status: Status | None) -> None:
        self._by_row[row] = beside, status

    def status(self, row: int) -> Status | None:
        return self._by_row[row][1]


class NominatedPods:
    """Judges nodes with the pods that are nominated to them."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator
        self._judged: WeakKeyDictionary[Profile, OrderedDict[Hashable, _Judged]] = (
            WeakKeyDictionary()
        )

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
        nominated = {row: tuple(self.before(pod, nodes[row].name)) for row in rows}
        rows = [row for row in rows if nominated[row]]
        judged = self._judged_for(profile, state, pod, nodes)
        anew = [row for row in rows if not judged.knows(row, nominated[row])]
        if anew:
            fork = nodes.fork(np.array(anew, dtype=np.intp))
            for index, row in enumerate(anew):
                for other in nominated[row]:
                    if other.uid not in fork[index].pods:
                        fork.add_pod(index, other)
            verdicts = judge_table(profile, state, pod, fork)
            for index, row in enumerate(anew):
                judged.note(row, nominated[row], verdicts.status(index))
        return ((row, judged.status(row)) for row in rows)

    def _judged_for(
        self, profile: Profile, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> _Judged:
        """Return what is known of the cluster's rows for pods like this one; nothing of forks'."""
        kind = likeness(profile.filter, state, pod, nodes) if nodes is profile.table else None
        if kind is None:
            return _Judged()
        by_kind = self._judged.setdefault(profile, OrderedDict())
        judged = by_kind.get((kind, pod.priority))
        if judged is None:
            judged = by_kind[kind, pod.priority] = _Judged()
            if len(by_kind) > _MOST_KINDS:
                by_kind.popitem(last=False)
        by_kind.move_to_end((kind, pod.priority))
        judged.refresh(nodes)
        return judged


def _adding_is_row_local(profile: Profile, state: CycleState) -> bool:
    """Tell whether a pod added to one node concerns that node's verdict alone."""
    skipped = state.skip_filter
    return all(p.row_local or p.name in skipped for p in profile.filter) and all(
        type(p).add_pod is PreFilterPlugin.add_pod or p.name in skipped for p in profile.pre_filter
    )
