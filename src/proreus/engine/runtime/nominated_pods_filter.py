"""Filter with nominated pods: nodes are filtered with the pods nominated to them.

A pod must respect the nominations of pods of equal or higher priority. A node has to pass twice, as
in ``RunFilterPluginsWithNominatedPods``: with the nominated pods, because they may be bound there,
and without them, because they may not (inter-pod affinity to a pod that never arrives).

    NodeSearch._with_nominated ─► rejections      the cluster's nodes that passed without them
        ├► run_filters_on_row                     few nodes, or a filter that looks across nodes
        └► _run_filters_at_once                   many nodes: one fork of them all, cached verdicts
    NodeSearch.check_node, dry runs ─► run_filters_on_row, rejected

Shared: ``_NominatedVerdicts``, between pods that all filters sign alike and of equal priority.
Invalidated: a row, when it or the pods nominated to it change; all, when nodes come or go.

Example: 300 preemptors wait for their victims. For the next pod 300 nodes are filtered with them in
one fork; for its replica only the nodes that changed since, perhaps two.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from weakref import WeakKeyDictionary

import numpy as np

from proreus.base.bounded_cache import BoundedCache, approximate_size
from proreus.engine.runtime.node_points import run_filter_plugins, run_filter_plugins_on_node
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import NominatedPodsByPriority, NominatedPodsByRow, Nominator
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status

_MAX_ONE_BY_ONE = 4
"""Up to so many nodes with nominated pods are filtered one by one; a fork of more is cheaper."""
_BUDGET_BYTES = 16 * 2**20
_BYTES_A_ROW = 300
_MIN_BYTES = 2**20
"""At most 16 equivalence keys of a profile have cached verdicts."""


def equivalence_key(
    filters: Sequence[FilterPlugin], state: CycleState, pod: PodInfo, table: NodeTable
) -> Hashable | None:
    """Return a key that is equal for pods that all filters of a cycle sign alike.

    None if a filter looks across nodes or does not sign the pod.
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
    """The verdicts of rows filtered with their nominated pods, for one equivalence key.

    ``stale``: rows that must be filtered (again). ``rejected``: other rows, by their rejection.
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
        """Mark the rows stale that changed, or whose nominated pods changed."""
        # Two logs are followed, since the two change apart: a pod is bound to the node, or a pod is
        # nominated to it. If either has been cut off, every row is stale.
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
        """Record the verdict of a stale row."""
        self.stale.discard(row)
        if status is not None:
            self._status_of[row] = status
            self.rejected.setdefault(status, set()).add(row)


class NominatedPodsFilter:
    """Filters nodes with the pods that are nominated to them."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator
        self._by_priority = NominatedPodsByPriority(nominator)
        # Weak: a reloaded configuration drops its profiles, and their verdicts must go with them.
        self._evaluated: WeakKeyDictionary[Profile, BoundedCache[Hashable, _NominatedVerdicts]] = (
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
        """Return the pods nominated to the cluster's nodes that this pod must respect, by row."""
        return self._by_priority.of(pod, table)

    def higher_priority_nominated(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node that this pod must respect."""
        return [
            other
            for other in self._nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

    def run_filters_on_row(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int, nodes: NodeTable
    ) -> Status | None:
        """Filter a row with its nominated pods on it; None if there are none or the row passes."""
        nominated = self.higher_priority_nominated(pod, nodes[row].name)
        if not nominated:
            return None
        # AddPod of the PreFilter plugins changes their data in the state, hence a clone of it and a
        # fork of the row: the pods are there for this evaluation only.
        with_nominated = state.clone()
        fork = nodes.fork(np.array([row], dtype=np.intp))
        for other in nominated:
            # In the time between the bind and the end of its nomination a pod is on the node
            # already; counting it twice would reject nodes that have space.
            if other.uid in fork[0].pods:
                continue
            profile.add_pod(with_nominated, pod, other, fork, 0)
        return run_filter_plugins_on_node(profile.filter, with_nominated, pod, fork, 0)

    def rejected(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: list[int], nodes: NodeTable
    ) -> list[tuple[int, Status]]:
        """Filter rows one by one, each with its nominated pods; return those rejected."""
        results = ((row, self.run_filters_on_row(profile, state, pod, row, nodes)) for row in rows)
        return [(row, status) for row, status in results if status is not None]

    def rejections(
        self, profile: Profile, state: CycleState, pod: PodInfo, among: Set[int] | None
    ) -> Mapping[Status, Collection[int]]:
        """Filter the cluster's nodes, each with its nominated pods; return those rejected.

        ``among``: filter these rows only; None: all rows.
        """
        table = profile.table
        nominated = self.by_row(pod, table)
        rows = nominated.by_row if among is None else nominated.by_row.keys() & among
        if not rows:
            return {}
        # Filtering many rows in one fork is right only if a pod added to one row cannot change the
        # verdict of another; with spreading or affinity each row needs a state of its own.
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
        """Filter many rows in one fork; the caller has checked ``_adding_is_row_local``."""
        table = profile.table
        cached = self._verdicts_for(profile, state, pod, nominated)
        cached.refresh(table, nominated)
        if cached.stale:
            stale = sorted(cached.stale)
            fork = table.fork(np.array(stale, dtype=np.intp))
            for index, row in enumerate(stale):
                for other in nominated.by_row[row]:
                    if other.uid not in fork[index].pods:
                        fork.add_pod(index, other)
            # AddPod is not called: ``_adding_is_row_local`` made sure that no plugin defines it.
            verdicts = run_filter_plugins(profile.filter, state, pod, fork)
            for index, row in enumerate(stale):
                cached.note(row, verdicts.status(index))
        return cached.rejected

    def _verdicts_for(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        nominated: NominatedPodsByRow,
    ) -> _NominatedVerdicts:
        """Return the cached verdicts of the pod's equivalence key; empty ones if it has none."""
        # A pod that is nominated itself does not count its own nomination, so what it sees is not
        # what other pods of its key see: such verdicts are neither taken nor kept.
        key = (
            equivalence_key(profile.filter, state, pod, profile.table)
            if nominated.is_cached
            else None
        )
        if key is None:
            return _NominatedVerdicts()
        by_key = self._evaluated.get(profile)
        if by_key is None:
            by_key = self._evaluated[profile] = BoundedCache(_BUDGET_BYTES)
        cached = by_key.get((key, pod.priority))
        if cached is None:
            cached = _NominatedVerdicts()
            size_bytes = _BYTES_A_ROW * len(nominated.by_row) + approximate_size(key)
            by_key.put((key, pod.priority), cached, max(size_bytes, _MIN_BYTES))
        return cached


def _adding_is_row_local(profile: Profile, state: CycleState) -> bool:
    """Return whether adding a pod to a node can change the verdict of that node only."""
    skipped = state.skip_filter
    return all(p.row_local or p.name in skipped for p in profile.filter) and all(
        type(p).add_pod is PreFilterPlugin.add_pod or p.name in skipped for p in profile.pre_filter
    )
