"""Nodes that pods are nominated to are judged with those pods on them.

A pod has to respect the nominations of pods that are not less important: a node must be able to
take it beside them as well as without them, since nobody knows whether they will come.

What a node came to for one pod holds for the next one that all filters take for alike, as long as
the node and the pods nominated to it stay what they are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from weakref import WeakKeyDictionary

import numpy as np

from proreus.framework.beside import Beside, BesideByPriority
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
    """What rows came to for one kind of pods beside the pods nominated to them.

    ``unknown``: rows that have to be judged (again). ``rejected``: the others that will not do.
    """

    def __init__(self) -> None:
        self.unknown: set[int] = set()
        self.rejected: dict[Status, set[int]] = {}
        self._status_of: dict[int, Status] = {}
        self._position = -1
        self._beside: Beside | None = None
        self._beside_position = -1
        self._size = -1

    def refresh(self, table: NodeTable, beside: Beside) -> None:
        """Forget rows that changed, and those with other pods nominated to them than before."""
        rows = others = None
        if beside is self._beside and self._size == table.size:
            rows = table.changes_since(self._position)
            others = beside.changes.since(self._beside_position, table.size)
        if rows is None or others is None:
            self.rejected.clear()
            self._status_of.clear()
            self.unknown = set(beside.by_row)
        else:
            for row in (*rows, *others):
                self._forget(row)
                if row in beside.by_row:
                    self.unknown.add(row)
                else:
                    self.unknown.discard(row)
        self._position, self._size, self._beside = table.position, table.size, beside
        self._beside_position = beside.changes.position

    def _forget(self, row: int) -> None:
        status = self._status_of.pop(row, None)
        if status is not None:
            rows = self.rejected[status]
            rows.discard(row)
            if not rows:
                del self.rejected[status]

    def note(self, row: int, status: Status | None) -> None:
        """Note what an unknown row came to."""
        self.unknown.discard(row)
        if status is not None:
            self._status_of[row] = status
            self.rejected.setdefault(status, set()).add(row)


class NominatedPods:
    """Judges nodes with the pods that are nominated to them."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator
        self._beside = BesideByPriority(nominator)
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

    def beside(self, pod: PodInfo, table: NodeTable) -> Beside:
        """Return the pods nominated to the cluster's nodes that this pod has to respect."""
        return self._beside.of(pod, table)

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
        """Judge rows one by one, each with the pods nominated to it; return those rejected."""
        judged = ((row, self.judge_row(profile, state, pod, row, nodes)) for row in rows)
        return [(row, status) for row, status in judged if status is not None]

    def rejections(
        self, profile: Profile, state: CycleState, pod: PodInfo, among: Set[int] | None
    ) -> Mapping[Status, Collection[int]]:
        """Judge the cluster's nodes, each with the pods nominated to it; return those rejected.

        ``among``: rows to leave it at; None: all of them.
        """
        table = profile.table
        beside = self.beside(pod, table)
        rows = beside.by_row if among is None else beside.by_row.keys() & among
        if not rows:
            return {}
        if among is None and len(rows) > _FEW_NOMINATED and _adding_is_row_local(profile, state):
            return self._judge_at_once(profile, state, pod, beside)
        rejected: dict[Status, list[int]] = {}
        for row, status in self.rejected(profile, state, pod, sorted(rows), table):
            rejected.setdefault(status, []).append(row)
        return rejected

    def _judge_at_once(
        self, profile: Profile, state: CycleState, pod: PodInfo, beside: Beside
    ) -> Mapping[Status, Collection[int]]:
        """Judge many rows in one go: only where adding a pod to one concerns no other."""
        table = profile.table
        judged = self._judged_for(profile, state, pod, beside)
        judged.refresh(table, beside)
        if judged.unknown:
            anew = sorted(judged.unknown)
            fork = table.fork(np.array(anew, dtype=np.intp))
            for index, row in enumerate(anew):
                for other in beside.by_row[row]:
                    if other.uid not in fork[index].pods:
                        fork.add_pod(index, other)
            verdicts = judge_table(profile, state, pod, fork)
            for index, row in enumerate(anew):
                judged.note(row, verdicts.status(index))
        return judged.rejected

    def _judged_for(
        self, profile: Profile, state: CycleState, pod: PodInfo, beside: Beside
    ) -> _Judged:
        """Return what is known for pods like this one, if there can be any."""
        kind = likeness(profile.filter, state, pod, profile.table) if beside.remembered else None
        if kind is None:
            return _Judged()
        by_kind = self._judged.setdefault(profile, OrderedDict())
        judged = by_kind.get((kind, pod.priority))
        if judged is None:
            judged = by_kind[kind, pod.priority] = _Judged()
            if len(by_kind) > _MOST_KINDS:
                by_kind.popitem(last=False)
        by_kind.move_to_end((kind, pod.priority))
        return judged


def _adding_is_row_local(profile: Profile, state: CycleState) -> bool:
    """Tell whether a pod added to one node concerns that node's verdict alone."""
    skipped = state.skip_filter
    return all(p.row_local or p.name in skipped for p in profile.filter) and all(
        type(p).add_pod is PreFilterPlugin.add_pod or p.name in skipped for p in profile.pre_filter
    )
