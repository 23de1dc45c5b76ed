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

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import NominatedPodsByPriority, NominatedPodsByRow, Nominator
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.runtime.node_points import run_filter_plugins, run_filter_plugins_on_node
from proreus.runtime.profile import Profile

_MAX_ONE_BY_ONE = 4
"""Up to so many nodes with nominated pods are judged one by one."""
_MAX_ENTRIES = 16
"""Of so many kinds of pods the verdicts are remembered."""


def equivalence_key(
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
        signatures.append((plugin.name, signature, plugin.invalidation_key(table)))
    return tuple(signatures)


class _NominatedVerdicts:
    """What rows came to for one kind of pods beside the pods nominated to them.

    ``stale``: rows that have to be judged (again). ``rejected``: the others that will not do.
    """

    def __init__(self) -> None:
        self.stale: set[int] = set()
        self.rejected: dict[Status, set[int]] = {}
        self._status_of: dict[int, Status] = {}
        self._position = -1
        self._nominated: NominatedPodsByRow | None = None
        self._nominated_position = -1
        self._size = -1

    def refresh(self, table: NodeTable, nominated: NominatedPodsByRow) -> None:
        """Forget rows that changed, and those with other pods nominated to them than before."""
        rows = others = None
        if nominated is self._nominated and self._size == table.size:
            rows = table.changes_since(self._position)
            others = nominated.changes.since(self._nominated_position, table.size)
        if rows is None or others is None:
            self.rejected.clear()
            self._status_of.clear()
            self.stale = set(nominated.by_row)
        else:
            for row in (*rows, *others):
                self._forget(row)
                if row in nominated.by_row:
                    self.stale.add(row)
                else:
                    self.stale.discard(row)
        self._position, self._size, self._nominated = (
            table.position,
            table.size,
            nominated,
        )
        self._nominated_position = nominated.changes.position

    def _forget(self, row: int) -> None:
        status = self._status_of.pop(row, None)
        if status is not None:
            rows = self.rejected[status]
            rows.discard(row)
            if not rows:
                del self.rejected[status]

    def note(self, row: int, status: Status | None) -> None:
        """Note what an unknown row came to."""
        self.stale.discard(row)
        if status is not None:
            self._status_of[row] = status
            self.rejected.setdefault(status, set()).add(row)


class NominatedPodsFilter:
    """Judges nodes with the pods that are nominated to them."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator
        self._by_priority = NominatedPodsByPriority(nominator)
        self._evaluated: WeakKeyDictionary[Profile, OrderedDict[Hashable, _NominatedVerdicts]] = (
            WeakKeyDictionary()
        )

    def node_names(self) -> set[str]:
        """Return the names of the nodes that pods are nominated to."""
        return set(self._nominator.nominated_nodes())

    def rows(self, table: NodeTable) -> set[int]:
        """Return the rows of those nodes."""
        names = self._nominator.nominated_nodes()
        return {row for name in names if (row := table.rows.get(name)) is not None}

    def by_row(self, pod: PodInfo, table: NodeTable) -> NominatedPodsByRow:
        """Return the pods nominated to the cluster's nodes that this pod has to respect."""
        return self._by_priority.of(pod, table)

    def higher_priority_nominated(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node that this pod has to respect."""
        return [
            other
            for other in self._nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

    def run_filters_on_row(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int, nodes: NodeTable
    ) -> Status | None:
        """Judge a row with the pods that are nominated to it; None where there are none."""
        nominated = self.higher_priority_nominated(pod, nodes[row].name)
        if not nominated:
            return None
        trial = state.clone()
        fork = nodes.fork(np.array([row], dtype=np.intp))
        for other in nominated:
            if other.uid in fork[0].pods:
                continue
            profile.add_pod(trial, pod, other, fork, 0)
        return run_filter_plugins_on_node(profile.filter, trial, pod, fork, 0)

    def rejected(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: list[int], nodes: NodeTable
    ) -> list[tuple[int, Status]]:
        """Judge rows one by one, each with the pods nominated to it; return those rejected."""
        judged = ((row, self.run_filters_on_row(profile, state, pod, row, nodes)) for row in rows)
        return [(row, status) for row, status in judged if status is not None]

    def rejections(
        self, profile: Profile, state: CycleState, pod: PodInfo, among: Set[int] | None
    ) -> Mapping[Status, Collection[int]]:
        """Judge the cluster's nodes, each with the pods nominated to it; return those rejected.

        ``among``: rows to leave it at; None: all of them.
        """
        if not self._nominator.nominated_nodes():
            return {}
        table = profile.table
        nominated = self.by_row(pod, table)
        rows = nominated.by_row if among is None else nominated.by_row.keys() & among
        if not rows:
            return {}
        if among is None and len(rows) > _MAX_ONE_BY_ONE and _adding_is_row_local(profile, state):
            return self._run_filters_at_once(profile, state, pod, nominated)
        rejected: dict[Status, list[int]] = {}
        for row, status in self.rejected(profile, state, pod, sorted(rows), table):
            rejected.setdefault(status, []).append(row)
        return rejected

    def _run_filters_at_once(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        nominated: NominatedPodsByRow,
    ) -> Mapping[Status, Collection[int]]:
        """Judge many rows in one go: only where adding a pod to one concerns no other."""
        table = profile.table
        judged = self._verdicts_for(profile, state, pod, nominated)
        judged.refresh(table, nominated)
        if judged.stale:
            anew = sorted(judged.stale)
            fork = table.fork(np.array(anew, dtype=np.intp))
            for index, row in enumerate(anew):
                for other in nominated.by_row[row]:
                    if other.uid not in fork[index].pods:
                        fork.add_pod(index, other)
            verdicts = run_filter_plugins(profile.filter, state, pod, fork)
            for index, row in enumerate(anew):
                judged.note(row, verdicts.status(index))
        return judged.rejected

    def _verdicts_for(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        nominated: NominatedPodsByRow,
    ) -> _NominatedVerdicts:
        """Return what is known for pods like this one, if there can be any."""
        kind = (
            equivalence_key(profile.filter, state, pod, profile.table)
            if nominated.is_cached
            else None
        )
        if kind is None:
            return _NominatedVerdicts()
        by_kind = self._evaluated.setdefault(profile, OrderedDict())
        judged = by_kind.get((kind, pod.priority))
        if judged is None:
            judged = by_kind[kind, pod.priority] = _NominatedVerdicts()
            if len(by_kind) > _MAX_ENTRIES:
                by_kind.popitem(last=False)
        by_kind.move_to_end((kind, pod.priority))
        return judged


def _adding_is_row_local(profile: Profile, state: CycleState) -> bool:
    """Tell whether a pod added to one node concerns that node's verdict alone."""
    skipped = state.skip_filter
    return all(p.row_local or p.name in skipped for p in profile.filter) and all(
        type(p).add_pod is PreFilterPlugin.add_pod or p.name in skipped for p in profile.pre_filter
    )
