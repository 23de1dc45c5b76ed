"""Pods that are alike share the results of Filter and Score (kube-scheduler once had an
"equivalence cache"; its opportunistic batching speaks of pod signatures).

How it works. A plugin that is ``row_local`` signs a pod: ``sign(pod)`` is the part of the
pod that it reads. Results are kept at two levels, and both are brought up to date row by row:

- ``PluginResults`` (``plugin_results``): verdicts and raw scores of ONE plugin for ONE signature;
- ``EquivalenceClass``: verdicts merged and weighted scores summed over ALL such plugins, for pods
  that every one of them signs alike.

Who calls whom, for a pod of a class that is known:

    NodeSearch.find ─► EquivalenceCache.equivalence_class(signatures)
                    └► EquivalenceClass.refresh_filter ─► PluginResults.refresh_filter ─► Filter
    prioritize_nodes ─► EquivalenceClass.refresh_totals ─► PluginResults.refresh_score ─► Score
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

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proreus.bounded_cache import BoundedCache, approximate_size
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, BoolArray, IntArray, Rows, Verdicts
from proreus.runtime.node_points import check_range, out_of_range, run_normalize_score
from proreus.runtime.plugin_results import PluginResults, few_rows
from proreus.runtime.select_host import INFEASIBLE, CachedTotals

_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 24
_BYTES_AN_ENTRY = 16 * 2**10
"""At least, besides rows and signature: what an entry refers to is evicted with it alone."""


class EquivalenceCache:
    """The cached results of one profile, by signature; the least recently used are evicted."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._results: BoundedCache[Hashable, PluginResults] = BoundedCache(_BUDGET_BYTES)
        self._classes: BoundedCache[Hashable, EquivalenceClass] = BoundedCache(_BUDGET_BYTES)

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
            equivalence_class = EquivalenceClass(
                [self.results(plugin, sign) for plugin, sign in signatures.items()]
            )
            size_bytes = self._size_bytes(tuple(signatures.values()))
            self._classes.put(key, equivalence_class, size_bytes)
        return equivalence_class

    def clear(self) -> None:
        """Free the memory at once: a replaced profile may be referenced for a while longer."""
        self._results.clear()
        self._classes.clear()

    def _size_bytes(self, signature: Hashable) -> int:
        rows = max(self._table.size, 1)
        return max(_BYTES_A_ROW * rows, _BYTES_AN_ENTRY) + approximate_size(signature)


@dataclass(slots=True)
class Scorer:
    """A score plugin of a class: its weight, its cached raw scores, its weighted final scores."""

    plugin: ScorePlugin
    weight: int
    results: PluginResults
    weighted_scores: IntArray | int = 0
    """Weighted scores by row, normalised over the feasible rows; an int if all are the same."""
    source_scores: IntArray | None = None
    source_version: int = -1
    source_constant: int | None = None
    """The raw scores that ``weighted_scores`` was computed from. Other classes share and refresh
    the same ``PluginResults``, so each class remembers which version of them it has seen."""
    unchecked_scores: IntArray | None = None
    """Unweighted scores by row if one of them may be out of range. It is an error only for a node
    that is feasible in the end, which other plugins still decide."""

    @property
    def depends_on_others(self) -> bool:
        """Whether a row's score depends on which other rows are feasible (NormalizeScore)."""
        return self.plugin.normalizes and not isinstance(self.weighted_scores, int)

    def check_range(self, rows: Rows | slice | BoolArray) -> None:
        """Raise ``PluginError`` when the final score of one of these rows is outside 0..100."""
        if self.unchecked_scores is not None:
            check_range(self.plugin, self.unchecked_scores[rows])


class EquivalenceClass:
    """Merged verdicts and summed scores, for the pods that every plugin signs the same."""

    def __init__(self, filters: Sequence[PluginResults]) -> None:
        self._filters = filters
        self.scorers: Sequence[Scorer] = ()
        self.scorer_signatures: Sequence[Hashable] = ()
        """The signatures that ``set_scorers`` was last called with."""
        self._variable_scorers: Sequence[Scorer] = ()
        """Those with a score for each row, or one that pods may change. The others, most of them,
        give every row the same until a node is added, removed or updated: ``_constant_total``."""
        self._constant_total = 0
        self.verdicts = Verdicts(0)
        self.feasible: BoolArray = np.zeros(0, dtype=np.bool_)
        self.feasible_count = 0
        self.totals = CachedTotals(np.zeros(0, dtype=np.int64))
        self._filter_position = -1
        self._score_position = -1
        self._filter_generation = self._score_generation = -1
        """``NodeTable.nodes_generation`` when verdicts and totals were last refreshed."""
        self._full_evaluations = -1
        """Sum of ``PluginResults.full_evaluations`` when the verdicts were last merged."""
        self._feasibility_changed: set[int] = set()
        """Rows whose feasibility changed since the totals were last refreshed."""
        self.history: Any = None
        """What the decision recorder keeps of these results."""

    # ---- filter --------------------------------------------------------------------------------

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
            rows = few_rows(table.changes, self._filter_position, self.verdicts.size, table.size)
        if rows is None:
            self._merge_all(table)
        else:
            self._merge_rows(rows)
        self._full_evaluations = full_evaluations
        self._filter_position, self._filter_generation = table.position, table.nodes_generation

    def merged_with(
        self, others: Mapping[Plugin, Verdicts], order: Iterable[FilterPlugin]
    ) -> Verdicts:
        """Return the verdicts merged with those of uncached plugins, as if all had run in order.

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
        self.feasible = self.verdicts.passed()
        self.feasible_count = int(np.count_nonzero(self.feasible))
        # Any row may have become feasible or infeasible: the totals have to be summed up again.
        self._score_position = -1

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
                self._feasibility_changed.add(row)

    # ---- score ---------------------------------------------------------------------------------

    def set_scorers(self, scorers: Sequence[Scorer], signatures: Sequence[Hashable]) -> None:
        """Replace the score plugins; the caller compares ``scorer_signatures`` first."""
        self.scorers, self.scorer_signatures = scorers, signatures
        self._score_position = self._score_generation = -1

    def refresh_totals(self, state: CycleState, pod: PodInfo, table: NodeTable) -> CachedTotals:
        """Bring the total scores up to date and return them; call ``refresh_filter`` first."""
        rows = few_rows(table.changes, self._score_position, len(self.totals.scores), table.size)
        rebuild = rows is None
        # Should a plugin raise half-way, the others' new scores are in no total yet.
        self._score_position = -1
        same_nodes = table.nodes_generation == self._score_generation
        for scorer in self._variable_scorers if same_nodes else self.scorers:
            # Every scorer is refreshed, also once a rebuild is certain: hence no short-circuit.
            rebuild = self._refresh_scorer(scorer, state, pod, table, rows) or rebuild
        if rebuild:
            # NormalizeScore moved the scores of rows that did not change themselves: sum up all.
            self._total_all(table)
        else:
            assert rows is not None
            self._total_rows(rows)
        self._feasibility_changed.clear()
        self._score_position, self._score_generation = table.position, table.nodes_generation
        return self.totals

    def check_range(self, where: Rows | slice | BoolArray | None = None) -> None:
        """Raise ``PluginError`` when a plugin's score of a feasible row is out of range.

        ``where``: the rows to check; None: all that are feasible in this class.
        """
        for scorer in self._variable_scorers:
            scorer.check_range(self.feasible if where is None else where)

    @property
    def depends_on_others(self) -> bool:
        """Whether a row's score depends on which other rows are feasible."""
        return any(scorer.depends_on_others for scorer in self.scorers)

    def total(self, where: Rows | slice) -> IntArray:
        """Return the summed scores of some feasible rows; not to be written to.

        Raises ``PluginError`` when one of them has a score out of range. If other rows are feasible
        in this class as well, use ``scores`` where ``depends_on_others``.
        """
        self.check_range(where)
        return self.totals.scores[where]

    def scores(
        self, state: CycleState, pod: PodInfo, where: Rows | slice, *, subset: bool
    ) -> dict[str, IntArray | int]:
        """Return each plugin's weighted scores of some feasible rows; an int if all are the same.

        ``subset``: other rows are feasible in this class as well, so NormalizeScore runs again over
        these rows alone. Raises ``PluginError`` when one of the rows has a score out of range.
        """
        added: dict[str, IntArray | int] = {}
        for scorer in self.scorers:
            plugin, weighted_scores, raw_scores = (
                scorer.plugin,
                scorer.weighted_scores,
                scorer.results.raw_scores,
            )
            if isinstance(weighted_scores, int) or isinstance(raw_scores, int):
                added[plugin.name] = weighted_scores
            elif subset and scorer.depends_on_others:
                scores = run_normalize_score(plugin, state, pod, raw_scores[where])
                check_range(plugin, scores)
                added[plugin.name] = scores * scorer.weight
            else:
                scorer.check_range(where)
                added[plugin.name] = weighted_scores[where]
        return added

    def _refresh_scorer(
        self,
        scorer: Scorer,
        state: CycleState,
        pod: PodInfo,
        table: NodeTable,
        rows: list[int] | None,
    ) -> bool:
        """Bring one plugin's scores up to date; return whether rows beyond ``rows`` changed."""
        results, weight = scorer.results, scorer.weight
        results.refresh_score(state, pod, table)
        raw_scores, weighted_scores = results.raw_scores, scorer.weighted_scores
        if isinstance(raw_scores, int):
            # The same score everywhere: a plugin that has nothing to score for this pod. As an int
            # it costs no array and no update by row.
            scorer.unchecked_scores = None
            if raw_scores == scorer.source_constant:
                return False
            scorer.weighted_scores = weight * self._normalized_constant(
                scorer, state, pod, raw_scores
            )
            scorer.source_constant = raw_scores
            return not isinstance(weighted_scores, int) or weighted_scores != scorer.weighted_scores
        scorer.source_constant = None
        if (
            raw_scores is scorer.source_scores
            and not isinstance(weighted_scores, int)
            and rows is not None
        ):
            if results.raw_version == scorer.source_version and not self._feasibility_changed:
                return False
            # Without NormalizeScore a row's score depends on that row alone. With it, one new
            # maximum rescales every row, so there is no way around the whole column.
            if not scorer.plugin.normalizes:
                self._update_rows(scorer, raw_scores, weighted_scores, rows)
                scorer.source_version = results.raw_version
                return False
        scorer.source_scores = None
        scores, passed = raw_scores, self.feasible
        if scorer.plugin.normalizes:
            # kube-scheduler scores feasible nodes only: the raw score of an infeasible row must not
            # take part in NormalizeScore.
            scores = np.where(passed, raw_scores, 0)
            scores[passed] = run_normalize_score(scorer.plugin, state, pod, scores[passed])
        scorer.unchecked_scores = None if out_of_range(scores[passed]) is None else scores
        scorer.weighted_scores = scores * weight
        # Noted last: where NormalizeScore raises, the next pod of the class runs it again.
        scorer.source_scores, scorer.source_version = raw_scores, results.raw_version
        return True

    def _update_rows(
        self, scorer: Scorer, raw_scores: IntArray, weighted_scores: IntArray, rows: list[int]
    ) -> None:
        """Bring the final scores of a few rows up to date; cheaper one by one than by columns."""
        feasible, weight = self.feasible, scorer.weight
        for row in rows:
            score = int(raw_scores[row])
            if not MIN_SCORE <= score <= MAX_SCORE:
                score = 0  # no matter: either the row is infeasible or the attempt fails
                if feasible[row]:
                    scorer.unchecked_scores = raw_scores
            weighted_scores[row] = score * weight

    def _normalized_constant(
        self, scorer: Scorer, state: CycleState, pod: PodInfo, raw_scores: int
    ) -> int:
        one = np.array([raw_scores], dtype=np.int64)
        if scorer.plugin.normalizes:
            one = run_normalize_score(scorer.plugin, state, pod, one)
        check_range(scorer.plugin, one)
        return int(one[0])

    def _total_all(self, table: NodeTable) -> None:
        total: IntArray = np.zeros(table.size, dtype=np.int64)
        variable, constant_total = [], 0
        for scorer in self.scorers:
            weighted_scores = scorer.weighted_scores
            if isinstance(weighted_scores, int) and scorer.results.depends_on_nodes_only:
                constant_total += weighted_scores
            else:
                variable.append(scorer)
                total += weighted_scores
        total += constant_total
        self._variable_scorers, self._constant_total = variable, constant_total
        self.totals = CachedTotals(np.where(self.feasible, total, INFEASIBLE))

    def _total_rows(self, rows: list[int]) -> None:
        for row in rows:
            total = INFEASIBLE
            if self.feasible[row]:
                total = self._constant_total
                for scorer in self._variable_scorers:
                    weighted_scores = scorer.weighted_scores
                    total += (
                        weighted_scores
                        if isinstance(weighted_scores, int)
                        else int(weighted_scores[row])
                    )
            self.totals.put(row, total)


def _first_rejection(verdicts: list[Verdicts], row: int) -> Status | None:
    for one in verdicts:
        assert one.ids is not None
        number = int(one.ids[row])
        if number != PASSED:
            return one.statuses[number]
    return None
