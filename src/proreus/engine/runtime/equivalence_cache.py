"""Pods that are alike share the results of Filter and Score (kube-scheduler once had an
"equivalence cache"; its opportunistic batching speaks of pod signatures).

How it works. A plugin that is ``row_local`` signs a pod: ``sign(pod)`` is the part of the
pod that it reads. Results are kept at two levels, and both are brought up to date row by row:

- ``PluginResults`` (``plugin_results``): verdicts and raw scores of ONE plugin for ONE signature;
- ``EquivalenceClass``: verdicts merged over ALL such plugins, for pods that every one of them signs
  alike, and its ``ClassScores``: their weighted scores, and the sums of these.

Who calls whom, for a pod of a class that is known:

    NodeSearch.find ─► EquivalenceCache.equivalence_class(signatures)
                    └► EquivalenceClass.refresh_filter ─► PluginResults.refresh_filter ─► Filter
    prioritize_nodes ─► ClassScores.refresh ─► PluginResults.refresh_score ─► Score
    select_host ─► CachedTotals.draw

What is invalidated when: ``NodeTable.changes`` notes each row that a pod or a node event changed,
so rows after a result's position are evaluated again (more than a few: all rows); a node that comes
or goes changes the size of the table (all rows); another ``Plugin.invalidation_key`` discards a
plugin's results; another set of signatures is another class.

Example: replicas of a Deployment on 5,000 nodes are one class. Binding one changes one row, so the
next replica costs one Filter and one Score call a plugin, not 5,000.

Invariant: an ``EquivalenceClass`` whose position equals the table's holds for every row what its
plugins would return if they were called now.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import count

import numpy as np

from proreus.base.bounded_cache import BoundedCache, approximate_size
from proreus.engine.runtime.plugin_results import ClassScores, PluginResults, Scorer
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, Plugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, BoolArray, Verdicts

NO_SCORES = ClassScores((), ())
"""Those of a class that has scored no pod yet; never refreshed."""
_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 24
_SCORES_BYTES = 32 * 2**20
_BYTES_A_ROW_OF_SCORES = 64
"""Totals and the best of them, and two columns for each of a few plugins."""
_BYTES_AN_ENTRY = 16 * 2**10
"""At least, besides rows and signature: what an entry refers to is evicted with it alone."""


class EquivalenceCache:
    """The cached results of one profile, by signature; the least recently used are evicted."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._numbers = count()
        self._results: BoundedCache[Hashable, PluginResults] = BoundedCache(_BUDGET_BYTES)
        self._classes: BoundedCache[Hashable, EquivalenceClass] = BoundedCache(_BUDGET_BYTES)
        self._unused_scores: BoundedCache[Hashable, ClassScores] = BoundedCache(_SCORES_BYTES)

    def results(self, plugin: Plugin, signature: Hashable) -> PluginResults:
        """Return a plugin's results for a signature; the caller refreshes them."""
        key = (plugin.name, signature)
        results = self._results.get(key)
        if results is None:
            results = PluginResults(plugin)
            self._results.put(key, results, self._size_bytes(signature))
        return results

    def equivalence_class(self, signatures: Mapping[FilterPlugin, Hashable]) -> EquivalenceClass:
        """Return the class of the pods that these plugins sign so; the caller refreshes it."""
        key = tuple(signatures.items())
        equivalence_class = self._classes.get(key)
        if equivalence_class is None:
            filters = [self.results(plugin, sign) for plugin, sign in signatures.items()]
            equivalence_class = EquivalenceClass(filters, next(self._numbers))
            size_bytes = self._size_bytes(tuple(signatures.values()))
            self._classes.put(key, equivalence_class, size_bytes)
        return equivalence_class

    def use_scores(
        self,
        equivalence_class: EquivalenceClass,
        signatures: Sequence[Hashable],
        scorers: Callable[[], Sequence[Scorer]],
    ) -> ClassScores:
        """Switch a class to the scores for these signatures; return them, not refreshed.

        ``signatures``: of all score plugins; None: does not score, or not from the cache.
        ``scorers`` makes them where the class has had no such pod.
        """
        # Pods of a class that differ in what scorers read come in turn as a rule.
        number, before = equivalence_class.number, equivalence_class.scores
        size_bytes = _BYTES_A_ROW_OF_SCORES * max(self._table.size, 1) + _BYTES_AN_ENTRY
        if before is not NO_SCORES:
            self._unused_scores.put((number, *before.signatures), before, size_bytes)
        key = (number, *signatures)
        scores = self._unused_scores.get(key)
        if scores is None:
            scores = ClassScores(scorers(), signatures)
        else:
            self._unused_scores.pop(key)
        equivalence_class.scores = scores
        return scores

    def clear(self) -> None:
        """Free the memory at once: a replaced profile may be referenced for a while longer."""
        self._results.clear()
        self._classes.clear()
        self._unused_scores.clear()

    def _size_bytes(self, signature: Hashable) -> int:
        rows = max(self._table.size, 1)
        return max(_BYTES_A_ROW * rows, _BYTES_AN_ENTRY) + approximate_size(signature)


class EquivalenceClass:
    """Merged verdicts, for the pods that every plugin signs the same, and their scores."""

    def __init__(self, filters: Sequence[PluginResults], number: int) -> None:
        self._filters = filters
        self.number = number
        """Names the class: no other one has it."""
        self.verdicts = Verdicts(0)
        self.feasible: BoolArray = np.zeros(0, dtype=np.bool_)
        self.feasible_count = 0
        self.feasible_version = 0
        """Incremented whenever a row of ``feasible`` changes."""
        self.scores = NO_SCORES
        """Those for the pod at hand, see ``EquivalenceCache.use_scores``."""
        self._filter_position = -1
        self._filter_generation = -1
        """``NodeTable.nodes_generation`` when the verdicts were last refreshed."""
        self._full_evaluations = -1
        """Sum of ``PluginResults.full_evaluations`` when the verdicts were last merged."""

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring verdicts and feasibility up to date."""
        full_evaluations = 0
        same_nodes = table.nodes_generation == self._filter_generation
        for results in self._filters:
            # Many filters read the node alone. While no node changed, their results hold whatever
            # pods were bound, and even looking at their change log would be wasted.
            if not (same_nodes and results.depends_on_nodes_only):
                results.refresh_filter(state, pod, table)
            full_evaluations += results.full_evaluations
        rows: list[int] | None = None
        # A plugin that evaluated every row (another invalidation key, say) changed verdicts of rows
        # that the change log does not name: merging only the changed rows would miss them.
        if full_evaluations == self._full_evaluations:
            rows = table.changes.few_since(self._filter_position, self.verdicts.size, table.size)
        if rows is None:
            self._merge_all(table)
        else:
            self._merge_rows(rows)
        self._full_evaluations = full_evaluations
        self._filter_position, self._filter_generation = (
            table.changes.position,
            table.nodes_generation,
        )

    def merged_with(
        self, others: Mapping[Plugin, Verdicts], order: Iterable[FilterPlugin]
    ) -> Verdicts:
        """Merge the verdicts with other plugins' rejections, as if all had run in order.

        The caller must not write to them.
        """
        if self.verdicts.ids is None and len(others) == 1:
            return next(iter(others.values()))
        # Plugins that cache and plugins that do not are mixed in the profile's order, and a node's
        # reason is the first rejection in that order, as in kube-scheduler.
        own = {results.plugin: results.verdicts for results in self._filters} | dict(others)
        merged = Verdicts(self.verdicts.size)
        for plugin in order:
            if plugin in own:
                merged.merge(own[plugin])
        return merged

    def _merge_all(self, table: NodeTable) -> None:
        self.verdicts = Verdicts(table.size)
        for results in self._filters:
            self.verdicts.merge(results.verdicts)
        # Another array, at which ``ClassScores`` see that any row may have changed.
        self.feasible = self.verdicts.passed()
        self.feasible_count = int(np.count_nonzero(self.feasible))

    def _merge_rows(self, rows: list[int]) -> None:
        verdicts, feasible = self.verdicts, self.feasible
        rejecting = [a.verdicts for a in self._filters if a.verdicts.ids is not None]
        if not rejecting and verdicts.ids is None:
            return  # every node is feasible, as before
        for row in rows:
            status = _first_rejection(rejecting, row)
            if status is not None:
                ids = verdicts.ids
                if ids is None:
                    ids = verdicts.ids = np.zeros(verdicts.size, dtype=np.int32)
                ids[row] = verdicts.id_of(status)
            elif verdicts.ids is not None:
                # ``reject_row`` keeps a row's first rejection, which is right within one attempt;
                # here the row is evaluated again, so the old verdict must be erased.
                verdicts.ids[row] = PASSED
            passes = status is None
            if feasible[row] != passes:
                feasible[row] = passes
                self.feasible_count += 1 if passes else -1
                self.feasible_version += 1


def _first_rejection(verdicts: list[Verdicts], row: int) -> Status | None:
    for one in verdicts:
        assert one.ids is not None
        number = int(one.ids[row])
        if number != PASSED:
            return one.statuses[number]
    return None
