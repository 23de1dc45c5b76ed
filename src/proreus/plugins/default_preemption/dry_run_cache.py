"""The results of dry runs by row, kept from one preemption to the next.

A result holds for every preemptor with the same ``DryRunKey`` and priority, as long as the node,
its pods, the pods nominated to it and the budgets stay as they are, and the groups whose pods are
evicted as a whole. A preemption changes one node, so that of many equivalent preemptors each
dry-runs little more than one row.

A row that the pod does not fit even without its lower-priority pods stays rejected whichever of
these it has: it is not dry-run again while they are deleted one by one.

Worked example: 1000 equivalent preemptors, 5000 nodes. The first one dry-runs 500 rows (10 %). The
others start at random rows and dry-run those that are not cached yet. Once all are,
each preemptor dry-runs one row: the node that the preemption before it has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from proreus.base.bounded_cache import BoundedCache, approximate_size, register
from proreus.framework.handle import DryRunKey
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import NominatedPodsByRow
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.framework.workload_forest import WorkloadForest
from proreus.objects.node import Node
from proreus.objects.policy import PodDisruptionBudget
from proreus.plugins.default_preemption.domain_victims import GroupGenerations
from proreus.plugins.default_preemption.select_candidate import Candidate

_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 100
_MIN_BYTES = 4 * 2**20
"""At most 16 entries, however few nodes there are: candidates refer to their victims."""

RemainingPods = tuple[Node | None, tuple[PodInfo, ...]]
"""A node, and the pods on it whose priority is too high for the preemptor to evict them."""


class DryRunCache:
    """Results by row of a table, for preemptors with one key and one priority."""

    # Invariant: each row that was rejected is in _remaining, with what was on it then, or, if it
    # has pods of groups, whose own priority does not count, in _groups. Candidates that evict pods
    # of groups are in _groups too.

    def __init__(self, nodes: NodeTable, priority: int) -> None:
        self._nodes = nodes
        self._priority = priority
        self._nominated: NominatedPodsByRow | None = None
        self._nominated_position = -1
        self._reset()

    def _reset(self) -> None:
        self._position = self._nodes.position
        self._nodes_generation = self._nodes.nodes_generation
        self._size = len(self._nodes)
        self._results: dict[int, Candidate | Status] = {}
        self._remaining: dict[int, RemainingPods] = {}
        self._groups: dict[int, GroupGenerations] = {}

    def refresh(self, nominated: NominatedPodsByRow) -> None:
        """Drop the rows that have changed, or that have other pods nominated to them, since."""
        nodes = self._nodes
        rows = nodes.changes_since(self._position)
        others = None
        # Positions count the changes of one object and mean nothing for another.
        if nominated is self._nominated:
            others = nominated.changes.since(self._nominated_position, len(nodes))
        if rows is None or others is None or self._size != len(nodes):
            self._reset()
        else:
            self._position = nodes.position
            # Candidates are not in `_remaining`, so that any change drops them: their victims may
            # be other ones now. A rejected row is dropped if what cannot be evicted has changed.
            self._invalidate(
                [row for row in rows if self._remaining.get(row) != self._remaining_at(row)]
            )
            self._invalidate(others)
            # A pod of a group on a node that is gone is an error, wherever the others run.
            same_nodes = nodes.nodes_generation == self._nodes_generation
            self._nodes_generation = nodes.nodes_generation
            self._invalidate(
                [
                    row
                    for row, groups in self._groups.items()
                    if not same_nodes or _have_changed(groups)
                ]
            )
        self._nominated, self._nominated_position = nominated, nominated.changes.position

    def _invalidate(self, rows: list[int]) -> None:
        for row in rows:
            self._results.pop(row, None)
            self._remaining.pop(row, None)
            self._groups.pop(row, None)

    def _remaining_at(self, row: int) -> RemainingPods:
        info, priority = self._nodes[row], self._priority
        return info.node, tuple(pod for pod in info.pods.values() if pod.priority >= priority)

    def note(
        self, row: int, found: Candidate | Status, groups: GroupGenerations | None = None
    ) -> None:
        """Cache the result of a row, with all its lower-priority pods removed if it is a status.

        ``groups``: those that are evicted as a whole; None for a row without pods of groups.
        """
        self._results[row] = found
        if groups is not None:
            self._groups[row] = groups
        elif isinstance(found, Status):
            self._remaining[row] = self._remaining_at(row)

    def rows_to_try(self, rows: Rows) -> Rows:
        """Return the rows that are not cached."""
        return np.array([row for row in rows.tolist() if row not in self._results], dtype=np.intp)

    def candidates(self, rows: Rows) -> Iterator[Candidate]:
        """Yield the candidates among rows, in the order of the rows."""
        for row in rows.tolist():
            found = self._results.get(row)
            if isinstance(found, Candidate):
                yield found

    def reject_failed(self, rows: Rows, verdicts: Verdicts) -> None:
        """Reject the rows that are cached as rejected."""
        # Rows are many and statuses few: one call for each status that occurs.
        by_status: dict[Status, list[int]] = {}
        for row in rows.tolist():
            found = self._results.get(row)
            if isinstance(found, Status):
                by_status.setdefault(found, []).append(row)
        for status, rejected in by_status.items():
            verdicts.reject_with(np.array(rejected, dtype=np.intp), status)


class DryRunCaches:
    """The ``DryRunCache`` of each key and priority; the least recently used are dropped.

    ``forest``: the pod groups, where pods are evicted with others of theirs.
    """

    def __init__(self, nodes: NodeTable, forest: WorkloadForest | None = None) -> None:
        self._nodes = nodes
        self._forest = forest
        self._forest_position = 0
        self._budgets: list[PodDisruptionBudget] = []
        self._by_key: BoundedCache[object, DryRunCache] = BoundedCache(_BUDGET_BYTES)
        register(self)

    def age(self) -> None:
        """Forget the budgets, which may be gone, once no result depends on them."""
        if not self._by_key:
            self._budgets = []

    def of(
        self, dry_run_key: DryRunKey | None, pod: PodInfo, budgets: Iterable[PodDisruptionBudget]
    ) -> DryRunCache:
        """Return the cache for a pod, brought up to date; without a key (None), an empty one."""
        if dry_run_key is None:
            return DryRunCache(self._nodes, pod.priority)
        if self._forest is not None and self._forest.position != self._forest_position:
            self._by_key.clear()
            self._forest_position = self._forest.position
        budgets = list(budgets)
        # The disruption controller updates a budget after every eviction that it covers. Which rows
        # that concerns is not recorded; in most clusters few evictions are covered.
        if budgets != self._budgets:
            self._by_key.clear()
        self._budgets = budgets
        # Pods of one signature may differ in priority, and with it in their potential victims.
        key = (dry_run_key.signature, pod.priority)
        dry_run_cache = self._by_key.get(key)
        if dry_run_cache is None:
            dry_run_cache = DryRunCache(self._nodes, pod.priority)
            size_bytes = _BYTES_A_ROW * len(self._nodes) + approximate_size(key)
            self._by_key.put(key, dry_run_cache, max(size_bytes, _MIN_BYTES))
        dry_run_cache.refresh(dry_run_key.nominated_by_row)
        return dry_run_cache


def _have_changed(groups: GroupGenerations) -> bool:
    return any(state.generation != generation for state, generation in groups)
