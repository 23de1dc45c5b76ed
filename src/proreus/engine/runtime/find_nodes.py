"""findNodesThatPassFilters: the search for nodes that can take a pod.

    find ─► _find_in_rows                PreFilter named the nodes: run all filters on those rows
         ├► _find_in_placement           a placement of the pod's group: cached verdicts, its rows
         ├► _find_in_table
         │    ├► EquivalenceCache        row-local plugins: cached verdicts, merged
         │    ├► run_filter_plugin       columnar plugins that look across nodes: one call each
         │    ├► find_one_by_one         per-node plugins, node by node, until enough are found
         │    └► _with_nominated         nodes with nominated pods: filtered again with those pods
         └► _with_replaceable_pods       nodes with pods whose place this one may take
    check_node                           one node: the pod's own nominated node, tried first

Shared: ``FeasibleNodes`` may have the verdicts of the pod's ``EquivalenceClass``, so nothing is
copied unless another plugin, a nominated pod or an extender rejects a node. Invalidated: see
``equivalence_cache``.

Example: 5,000 nodes, a plugin of one's own with ``filter`` only, percentageOfNodesToScore 0. The
walk starts where the last one stopped and ends at the 501st feasible node (10 % of 5,000, plus the
one that is not counted); the next pod's walk starts there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from proreus.base.errors import PluginError
from proreus.engine.runtime.equivalence_cache import EquivalenceClass
from proreus.engine.runtime.node_points import (
    override_verdict,
    override_verdicts,
    run_filter_plugin,
    run_filter_plugins,
    run_filter_plugins_on_node,
)
from proreus.engine.runtime.nominated_pods_filter import NominatedPodsFilter
from proreus.engine.runtime.num_nodes_to_find import find_one_by_one, num_feasible_nodes_to_find
from proreus.engine.runtime.plugin_errors import plugin_error
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import Nominator
from proreus.framework.plugin import FilterPlugin, Plugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, IntArray, Rows, Verdicts


class PodSignatures(dict[Plugin, Hashable]):
    """One pod's signature by plugin: the part of the pod that it reads; None: not cached."""

    def __init__(self, pod: PodInfo) -> None:
        self._pod = pod

    def sign(self, plugins: Iterable[Plugin]) -> None:
        """Call ``sign`` of the plugins that have not signed the pod yet; raises ``PluginError``."""
        for plugin in plugins:
            if plugin in self:
                continue
            signature = None
            if plugin.row_local:
                try:
                    signature = plugin.sign(self._pod)
                    # A signature that is not hashable would fail later, as a cache key, where the
                    # exception could no longer be attributed to the plugin.
                    hash(signature)
                except BaseException as error:
                    raise plugin_error(plugin, "Sign", error) from error
            self[plugin] = signature


class FeasibleNodes(Struct):
    """The nodes that passed the filters, and the verdicts of the others.

    ``verdicts``: by row of the whole table. ``evaluated``: the rows that were filtered; None = all.
    ``equivalence_class``: the cached results for the pod's ``signatures``, of all rows; None if
    they were not used. ``rejected_by_extender``: HTTP extenders rejected nodes. ``without_pods``:
    extenders returned the other nodes as objects, which kube-scheduler takes for nodes without
    pods. ``held_back_by``: the plugins that rejected the last feasible nodes at FilterFeasible.
    """

    verdicts: Verdicts
    evaluated: Rows | None
    equivalence_class: EquivalenceClass | None
    signatures: PodSignatures
    _rows: Rows | None = None
    rejected_by_extender: bool = False
    without_pods: bool = False
    held_back_by: tuple[str, ...] = ()

    @classmethod
    def single(cls, table: NodeTable, row: int, pod: PodInfo) -> FeasibleNodes:
        """Return the result of a search in which one node was filtered and can take the pod."""
        rows = np.array([row], dtype=np.intp)
        return cls(Verdicts(table.size), rows, None, PodSignatures(pod))

    @property
    def shares_verdicts(self) -> bool:
        """Whether no plugin outside the equivalence class rejected a node."""
        shared = self.equivalence_class
        return shared is not None and self.verdicts is shared.verdicts

    @property
    def all_from_cache(self) -> bool:
        """Whether the result is that of the equivalence class, of all rows."""
        # Spelled out here and in ``count``: they are read several times a pod.
        shared = self.equivalence_class
        return shared is not None and self.verdicts is shared.verdicts and self.evaluated is None

    @property
    def all_nodes_feasible(self) -> bool:
        """Whether all nodes can take the pod, so that ``rows`` are all rows of the table."""
        return self.all_from_cache and self.count == self.verdicts.size

    @property
    def count(self) -> int:
        """How many nodes can take the pod."""
        shared = self.equivalence_class
        if shared is not None and self.verdicts is shared.verdicts and self.evaluated is None:
            return shared.feasible_count
        return len(self.rows)

    @property
    def rows(self) -> Rows:
        """The rows of the nodes that can take the pod."""
        if self._rows is None:
            if self.evaluated is None:
                self._rows = self.verdicts.passed_rows()
            elif self.shares_verdicts:
                assert self.equivalence_class is not None
                self._rows = self.evaluated[self.equivalence_class.feasible[self.evaluated]]
            else:
                self._rows = self.evaluated[self.evaluated_verdicts.passed()]
        return self._rows

    @property
    def evaluated_verdicts(self) -> Verdicts:
        """The verdicts of the rows that were filtered."""
        return self.verdicts if self.evaluated is None else self.verdicts.take(self.evaluated)

    def with_verdicts(self, verdicts: Verdicts, evaluated: Rows | None) -> FeasibleNodes:
        """Return the result with other verdicts, of other rows."""
        return FeasibleNodes(verdicts, evaluated, self.equivalence_class, self.signatures)

    def add_rejection(self, row: int, status: Status) -> None:
        """Add the rejection of a row filtered by itself, unless the search filtered it too."""
        if self.evaluated is not None and row not in self.evaluated:
            self.verdicts.reject_row(row, status)
            self.evaluated = np.append(self.evaluated, row)
            self._rows = None

    def after_extenders(
        self, rows: list[int], rejected: Mapping[int, Status], without_pods: bool
    ) -> FeasibleNodes:
        """Return the result after HTTP extenders: the ``rows`` they kept, ``rejected`` the others.

        A row that is in neither counts as not evaluated.
        """
        verdicts, evaluated = self.verdicts.copy(), self.evaluated
        for row, status in rejected.items():
            override_verdict(verdicts, row, status)
        gone = set(self.rows.tolist()).difference(rows)
        # kube-scheduler keeps the statuses that an extender gave a reason for; a node that it only
        # drops from its list is in no status map, and so not in the failure message.
        if silent := gone - rejected.keys():
            everything = np.arange(verdicts.size) if evaluated is None else evaluated
            evaluated = np.setdiff1d(everything, list(silent))
        if evaluated is not None and rejected:
            evaluated = np.union1d(evaluated, list(rejected))
        kept = np.array(rows, dtype=np.intp)
        # Cached scores were computed with the pods on the nodes; ``without_pods`` needs others.
        equivalence_class = None if without_pods else self.equivalence_class
        return FeasibleNodes(
            verdicts, evaluated, equivalence_class, self.signatures, kept, bool(gone), without_pods
        )

    def of_lowest_rank(self, ranks: IntArray) -> FeasibleNodes:
        """Return the result as if only the feasible nodes of the lowest rank had been filtered.

        ``ranks``: by row of the whole table.
        """
        if not self.count:
            return self
        of_rows = ranks[self.rows]
        rows = self.rows[of_rows == of_rows.min()]
        return replace(self, evaluated=rows, _rows=rows)

    def after_feasible_filter(self, verdicts: Verdicts) -> FeasibleNodes:
        """Return the result with the further rejections of ``verdicts``, by row of the table."""
        kept = self.rows[verdicts.passed()[self.rows]]
        if len(kept) == len(self.rows):
            return self
        return replace(self, verdicts=verdicts, _rows=kept)


class NodeSearch:
    """Searches nodes for all profiles of a scheduler.

    ``order``: all rows in kube-scheduler's order. ``next_start_node_index``: where the next walk of
    per-node plugins begins, so that all nodes are examined over time; ``start_node_index``: where
    the last one began.
    """

    def __init__(
        self, nominator: Nominator, order: Callable[[], Rows], percentage_of_nodes_to_score: int = 0
    ) -> None:
        self._nominator = nominator
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
        ranks: IntArray | None = None,
    ) -> FeasibleNodes:
        """Filter all nodes, or those that PreFilter named, or the rows of a ``placement``.

        ``ranks``: by row; a walk that ends early begins with the lowest.
        Raises ``PluginError``. A columnar plugin's Error about a row is that row's verdict: see
        ``raise_filter_error``.
        """
        self.start_node_index = self.next_start_node_index
        if names is not None:
            placement = profile.table.rows_of(names)
            found = self._find_in_rows(profile, state, pod, placement)
        elif placement is not None:
            found = self._find_in_placement(profile, state, pod, placement)
        else:
            found = self._find_in_table(profile, state, pod, ranks)
        if state.replaceable_pods:
            return self._with_replaceable_pods(profile, state, pod, found, placement)
        return found

    def check_node(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int
    ) -> Status | None:
        """Filter one node, as ``RunFilterPluginsWithNominatedPods`` does."""
        table = profile.table
        if state.replaceable_pods and table[row].name in state.replaceable_pods:
            return self._check_without_replaceable_pods(profile, state, pod, row)
        # Both passes have to succeed. The one with the nominated pods comes first, as upstream: its
        # rejection is the one that is reported.
        with_nominated = self.nominated.run_filters_on_row(profile, state, pod, row, table)
        return with_nominated or run_filter_plugins_on_node(profile.filter, state, pod, table, row)

    def _check_without_replaceable_pods(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int
    ) -> Status | None:
        """Filter one node without the pods whose place the pod may take."""
        fork = profile.table.fork(np.array([row], dtype=np.intp))
        without = state.clone()
        for other in state.replaceable_pods[fork[0].name]:
            if other.uid in fork[0].pods:
                profile.remove_pod(without, pod, other, fork, 0)
        with_nominated = self.nominated.run_filters_on_row(profile, without, pod, 0, fork)
        return with_nominated or run_filter_plugins_on_node(profile.filter, without, pod, fork, 0)

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

    def _find_in_table(
        self, profile: Profile, state: CycleState, pod: PodInfo, ranks: IntArray | None
    ) -> FeasibleNodes:
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
        verdicts, rows = verdicts.copy(), self.order()
        if ranks is not None:
            rows = rows[np.argsort(ranks[rows], kind="stable")]
        visited = find_one_by_one(
            per_node,
            profile,
            state,
            pod,
            verdicts,
            rows=rows,
            nominated=self.nominated,
            num_nodes_to_find=self.num_nodes_to_find(profile),
        )
        # processedNodes = feasible + rejected ones: the next walk starts after them.
        self._advance(len(visited), table)
        return FeasibleNodes(verdicts, visited, equivalence_class, signatures)

    def num_nodes_to_find(self, profile: Profile) -> int:
        """Return how many feasible nodes end a walk."""
        if profile.feasible_filter:  # it chooses among all of them
            return profile.table.size
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
        if not self._nominator.nominated_nodes():
            return found
        among = None
        if found.evaluated is not None:
            among = self.nominated.rows(profile.table)
            among.intersection_update(found.evaluated.tolist())
        rejections = self.nominated.rejections(profile, state, pod, among)
        if not rejections:
            return found
        verdicts = found.verdicts.copy()
        for status, rows in rejections.items():
            override_verdicts(verdicts, np.fromiter(rows, dtype=np.intp, count=len(rows)), status)
        return found.with_verdicts(verdicts, found.evaluated)

    def _with_replaceable_pods(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        found: FeasibleNodes,
        placement: Rows | None,
    ) -> FeasibleNodes:
        """Filter nodes with replaceable pods again, without those pods."""
        # What is found replaces the verdict: the plugins have seen the node with pods that would
        # go.
        rows = profile.table.rows_of(state.replaceable_pods)
        if placement is not None:
            rows = np.intersect1d(rows, placement)
        verdicts, evaluated = found.verdicts.copy(), found.evaluated
        for row in rows.tolist():
            status = self._check_without_replaceable_pods(profile, state, pod, row)
            if status is not None:
                override_verdict(verdicts, row, status)
            elif verdicts.ids is not None:
                verdicts.ids[row] = PASSED
        if evaluated is not None:
            # A walk that ends early may not have come to them.
            evaluated = np.append(evaluated, np.setdiff1d(rows, evaluated))
        return found.with_verdicts(verdicts, evaluated)


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
