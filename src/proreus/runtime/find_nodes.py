"""findNodesThatPassFilters: the search for nodes that can take a pod.

    find ─► _find_in_rows                PreFilter named the nodes: run all filters on those rows
         ├► _find_in_placement           a placement of the pod's group: cached verdicts, its rows
         └► _find_in_table
              ├► EquivalenceCache        row-local plugins: cached verdicts, merged
              ├► run_filter_plugin       columnar plugins that look across nodes: one call each
              ├► _filter_one_by_one      per-node plugins, node by node, until enough are found
              └► _with_nominated         nodes with nominated pods: filtered again with those pods
    check_node                           one node: the pod's own nominated node, tried first

Shared: see ``feasible_nodes``. Invalidated: see ``equivalence_cache``.

Example: 5,000 nodes, a plugin of one's own with ``filter`` only, percentageOfNodesToScore 0. The
walk starts where the last one stopped and ends at the 501st feasible node (10 % of 5,000, plus the
one that is not counted); the next pod's walk starts there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from proreus.errors import PluginError
from proreus.framework.attempt_budget import ROWS_BETWEEN_CHECKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import Nominator
from proreus.framework.plugin import FilterPlugin, Plugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.runtime.feasible_nodes import FeasibleNodes
from proreus.runtime.node_points import (
    filter_function,
    override_verdict,
    override_verdicts,
    run_filter_plugin,
    run_filter_plugins,
    run_filter_plugins_on_node,
)
from proreus.runtime.nominated_pods_filter import NominatedPodsFilter
from proreus.runtime.plugin_results import PodSignatures
from proreus.runtime.profile import Profile

_MIN_FEASIBLE_NODES_TO_FIND = 100
_MIN_FEASIBLE_PERCENTAGE = 5


class NodeSearch:
    """Searches nodes for all profiles of a scheduler.

    ``order``: all rows in kube-scheduler's order. ``next_start_node_index``: where the next walk of
    per-node plugins begins, so that all nodes are examined over time; ``start_node_index``: where
    the last one began.
    """

    def __init__(
        self, nominator: Nominator, order: Callable[[], Rows], percentage_of_nodes_to_score: int = 0
    ) -> None:
        self.nominated = NominatedPodsFilter(nominator)
        self._order = order
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.stop_at_first_feasible = True
        """Whether a walk may stop at the first node where no plugin scores; not with extenders."""
        self.next_start_node_index = 0
        self.start_node_index = 0

    def order(self) -> Rows:
        """Return all rows in the order in which kube-scheduler would have looked at them."""
        return np.roll(self._order(), -self.start_node_index)

    def find(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        names: frozenset[str] | None,
        placement: Rows | None = None,
    ) -> FeasibleNodes:
        """Filter all nodes, or those that PreFilter named, or the rows of a ``placement``.

        Raises ``PluginError``. A columnar plugin's Error about a row is that row's verdict: see
        ``raise_filter_error``.
        """
        self.start_node_index = self.next_start_node_index
        if names is not None:
            return self._find_in_rows(profile, state, pod, profile.table.rows_of(names))
        if placement is not None:
            return self._find_in_placement(profile, state, pod, placement)
        return self._find_in_table(profile, state, pod)

    def check_node(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int
    ) -> Status | None:
        """Filter one node, as ``RunFilterPluginsWithNominatedPods`` does."""
        table = profile.table
        # Both passes have to succeed. The one with the nominated pods comes first, as upstream: its
        # rejection is the one that is reported.
        with_nominated = self.nominated.run_filters_on_row(profile, state, pod, row, table)
        return with_nominated or run_filter_plugins_on_node(profile.filter, state, pod, table, row)

    def run_filters_with_nominated_pods(
        self, profile: Profile, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Filter every row of a fork, nominated pods taken into account."""
        verdicts = run_filter_plugins(profile.filter, state, pod, nodes)
        names = self.nominated.node_names()
        rows = [row for row, node in enumerate(nodes) if node.name in names] if names else []
        for row, status in self.nominated.rejected(profile, state, pod, rows, nodes):
            override_verdict(verdicts, row, status)
        return verdicts

    # ---- whole table ---------------------------------------------------------------------------

    def _find_in_table(self, profile: Profile, state: CycleState, pod: PodInfo) -> FeasibleNodes:
        table, signatures = profile.table, PodSignatures(pod)
        filters, cached_signatures, uncached = _cached_and_uncached(profile, state, signatures)
        # Cached plugins run on every node, also on nodes that another plugin rejects: the verdict
        # of a row can then be reused for a pod that differs in what the other plugin reads.
        equivalence_class = profile.equivalence_cache.equivalence_class(cached_signatures)
        equivalence_class.refresh_filter(state, pod, table)
        rejections_of: dict[Plugin, Verdicts] = {}
        per_node: list[FilterPlugin] = []
        for plugin in uncached:
            if plugin.columnar_filter:
                verdicts = Verdicts(table.size, plugin.name)
                # An Error about a row that an earlier plugin rejects must not fail the attempt:
                # kube-scheduler would not have called this plugin for it.
                run_filter_plugin(plugin, state, pod, table, verdicts, keep_errors=True)
                if verdicts.ids is not None:
                    rejections_of[plugin] = verdicts
                state.check_budget(plugin.name, "Filter")
            else:
                per_node.append(plugin)
        verdicts = (
            equivalence_class.merged_with(rejections_of, filters)
            if rejections_of
            else equivalence_class.verdicts
        )
        if not per_node:
            found = FeasibleNodes(verdicts, None, equivalence_class, signatures)
            return self._with_nominated(profile, state, pod, found)
        # The walk writes its rejections; the cached verdicts belong to all pods of the class.
        verdicts = verdicts.copy()
        visited = self._filter_one_by_one(profile, state, pod, verdicts, per_node)
        return FeasibleNodes(verdicts, visited, equivalence_class, signatures)

    def _filter_one_by_one(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        verdicts: Verdicts,
        plugins: list[FilterPlugin],
    ) -> Rows:
        """Run per-node plugins until enough nodes are found; return the rows visited.

        Where a columnar plugin rejected a row already, only the per-node plugins that come before
        it in the profile run: kube-scheduler would have stopped at it.
        """
        table, num_nodes_to_find, order = (
            profile.table,
            self._num_nodes_to_find(profile),
            profile.order_of_filter,
        )
        filters = [(order[p.name], filter_function(p, state, pod, table)) for p in plugins]
        nominated = self.nominated.rows(table)
        # A list, because reading single cells of an array is slow; a row is visited once, so its
        # verdict from before the walk is the one that counts.
        before = None if verdicts.ids is None else verdicts.ids.tolist()
        visited: list[int] = []
        found = 0
        for number, row in enumerate(self.order().tolist()):
            if number % ROWS_BETWEEN_CHECKS == 0:
                state.check_budget(plugins[0].name, "Filter")
            rejected = None if before is None else verdicts.statuses[before[row]]
            limit = len(order) if rejected is None else order[rejected.plugin]
            status = None
            # The second pass is made here, not afterwards: a node that fails it must not count as
            # found, since the count ends the walk.
            if row in nominated:
                status = self.nominated.run_filters_on_row(profile, state, pod, row, table)
            if status is None:
                status = _first_rejection(filters, row, limit)
            if status is not None:
                override_verdict(verdicts, row, status)
            elif rejected is None:
                # kube-scheduler cancels its workers once it has found one node more than it needs.
                # That node is not used, but rejections on the way to it are in the message.
                if found == num_nodes_to_find:
                    break
                found += 1
            visited.append(row)
        # processedNodes = feasible + rejected ones: the next walk starts after them.
        self._advance(len(visited), table)
        return np.array(visited, dtype=np.intp)

    def _num_nodes_to_find(self, profile: Profile) -> int:
        """Return how many feasible nodes end a walk."""
        if not profile.score and self.stop_at_first_feasible:
            return 1
        return num_feasible_nodes_to_find(
            profile.table.size,
            profile.percentage_of_nodes_to_score,
            self.percentage_of_nodes_to_score,
        )

    def _advance(self, visited: int, table: NodeTable) -> None:
        self.next_start_node_index = (self.next_start_node_index + visited) % max(table.size, 1)

    # ---- some rows -----------------------------------------------------------------------------

    def _find_in_rows(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: Rows
    ) -> FeasibleNodes:
        table = profile.table
        part = run_filter_plugins(profile.filter, state, pod, table.take(rows), keep_errors=True)
        self._advance(len(rows), table)
        found = FeasibleNodes(part.scatter(rows, table.size), rows, None, PodSignatures(pod))
        return self._with_nominated(profile, state, pod, found)

    def _find_in_placement(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: Rows
    ) -> FeasibleNodes:
        """Filter the rows of a placement, with the results that all placements share.

        Pods of a group are mostly alike and are tried in each placement: what is cached for all
        nodes costs one evaluation of the row that the last pod was assumed on.
        """
        table, signatures = profile.table, PodSignatures(pod)
        filters, cached_signatures, uncached = _cached_and_uncached(profile, state, signatures)
        if not all(plugin.columnar_filter for plugin in uncached):
            return self._find_in_rows(profile, state, pod, rows)
        equivalence_class = profile.equivalence_cache.equivalence_class(cached_signatures)
        try:
            equivalence_class.refresh_filter(state, pod, table)
        except PluginError:
            # It may have failed at a node that is not in the placement.
            return self._find_in_rows(profile, state, pod, rows)
        verdicts = equivalence_class.verdicts
        if uncached:
            nodes, rejections_of = table.take(rows), dict[Plugin, Verdicts]()
            for plugin in uncached:
                part = Verdicts(len(rows), plugin.name)
                run_filter_plugin(plugin, state, pod, nodes, part, keep_errors=True)
                if part.ids is not None:
                    rejections_of[plugin] = part.scatter(rows, table.size)
            if rejections_of:
                verdicts = equivalence_class.merged_with(rejections_of, filters)
        found = FeasibleNodes(verdicts, rows, equivalence_class, signatures)
        found = self._with_nominated(profile, state, pod, found)
        if not found.count:
            # The diagnosis is about the placement: a plugin that rejects other nodes has no part.
            found.verdicts = found.evaluated_verdicts.scatter(rows, table.size)
        return found

    def _with_nominated(
        self, profile: Profile, state: CycleState, pod: PodInfo, found: FeasibleNodes
    ) -> FeasibleNodes:
        """Filter nodes with nominated pods again, with those pods on them."""
        among = None
        if found.evaluated is not None:
            among = self.nominated.rows(profile.table)
            if not among:
                return found
            among.intersection_update(found.evaluated.tolist())
        rejections = self.nominated.rejections(profile, state, pod, among)
        if not rejections:
            return found
        verdicts = found.verdicts.copy()
        for status, rows in rejections.items():
            override_verdicts(verdicts, np.fromiter(rows, dtype=np.intp, count=len(rows)), status)
        return FeasibleNodes(verdicts, found.evaluated, found.equivalence_class, found.signatures)


def num_feasible_nodes_to_find(
    nodes: int, profile_percentage: int | None, global_percentage: int
) -> int:
    """Return how many feasible nodes end a walk (kube-scheduler's ``numFeasibleNodesToFind``)."""
    if nodes < _MIN_FEASIBLE_NODES_TO_FIND:
        return nodes
    percentage = global_percentage if profile_percentage is None else profile_percentage
    if percentage == 0:
        percentage = max(50 - nodes // 125, _MIN_FEASIBLE_PERCENTAGE)
    return max(nodes * percentage // 100, _MIN_FEASIBLE_NODES_TO_FIND)


def _cached_and_uncached(
    profile: Profile, state: CycleState, signatures: PodSignatures
) -> tuple[list[FilterPlugin], dict[FilterPlugin, Hashable], list[FilterPlugin]]:
    """Return the filters that run, the signatures of those that cache, and those that do not."""
    filters = [p for p in profile.filter if p.name not in state.skip_filter]
    signatures.sign(filters)
    cached = {p: sign for p in filters if (sign := signatures[p]) is not None}
    if len(cached) == len(filters):  # as for most pods
        return filters, cached, []
    return filters, cached, [p for p in filters if p not in cached]


def _first_rejection(
    filters: list[tuple[int, Callable[[int], Status | None]]], row: int, limit: int
) -> Status | None:
    """Return the first rejection of a row by the plugins whose place is before ``limit``."""
    for place, run_filter in filters:
        if place >= limit:
            return None
        status = run_filter(row)
        if status is not None:
            return status
    return None
