"""Pods that are alike share the results of Filter and Score (kube-scheduler once had an
"equivalence cache"; its opportunistic batching speaks of pod signatures).

Theory of operation. A plugin that is ``row_local`` signs a pod: ``sign(pod)`` is the part of the
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

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, BoolArray, IntArray, Rows, Verdicts
from proreus.runtime.node_points import check_range, out_of_range, run_normalize_score
from proreus.runtime.plugin_results import PluginResults, few_rows
from proreus.runtime.select_host import INFEASIBLE, CachedTotals

_MEMORY_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 24
_MOST_ENTRIES = 256


class EquivalenceCache:
    """The answers of one profile, by signature; the least recently used go first."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._results: OrderedDict[Hashable, PluginResults] = OrderedDict()
        self._classes: OrderedDict[Hashable, EquivalenceClass] = OrderedDict()

    def results(self, plugin: Plugin, signature: Hashable) -> PluginResults:
        """Return a plugin's answers for a signature, up to date or not."""
        key = (plugin.name, signature)
        results = self._results.get(key)
        if results is None:
            results = self._results[key] = PluginResults(plugin)
            self._trim(self._results)
        else:
            self._results.move_to_end(key)
        return results

    def equivalence_class(self, signatures: Mapping[FilterPlugin, Hashable]) -> EquivalenceClass:
        """Return the face of pods to which these plugins with these signatures apply."""
        key = tuple(signatures.items())
        equivalence_class = self._classes.get(key)
        if equivalence_class is None:
            equivalence_class = EquivalenceClass(
                [self.results(plugin, sign) for plugin, sign in signatures.items()]
            )
            self._classes[key] = equivalence_class
            self._trim(self._classes)
        else:
            self._classes.move_to_end(key)
        return equivalence_class

    def clear(self) -> None:
        """Forget everything: these can be megabytes, and who holds them may be slow to go."""
        self._results.clear()
        self._classes.clear()

    def _trim(
        self,
        entries: OrderedDict[Hashable, PluginResults] | OrderedDict[Hashable, EquivalenceClass],
    ) -> None:
        size = max(self._table.size, 1)
        limit = max(4, min(_MOST_ENTRIES, _MEMORY_BUDGET_BYTES // (_BYTES_A_ROW * size)))
        while len(entries) > limit:
            entries.popitem(last=False)


@dataclass(slots=True)
class Scorer:
    """A score plugin of a face: its weight, its answers, and what its scores became."""

    plugin: ScorePlugin
    weight: int
    results: PluginResults
    final: IntArray | int = 0
    """Weighted scores by row, normalised over the rows that pass; one int for all rows alike."""
    normalized_raw: IntArray | None = None
    normalized_version: int = -1
    normalized_constant: int | None = None
    """What ``final`` was made from. Other faces share the answers and bring them up to date too,
    so a face must remember what it has seen of them."""
    unchecked_scores: IntArray | None = None
    """Scores by row, before weights, where one may be out of range: whether that is an error is
    known once the other plugins have said which of the nodes are left."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing can change here until a node comes, goes or changes itself."""
        return self.results.depends_on_nodes_only and isinstance(self.final, int)

    @property
    def depends_on_others(self) -> bool:
        """Whether a row's score depends on which other rows pass: they are normalised together."""
        return self.plugin.normalizes and not isinstance(self.final, int)

    def check_range(self, rows: Rows | slice | BoolArray) -> None:
        """Raise ``PluginError`` when the final score of one of these rows is outside 0..100."""
        if self.unchecked_scores is not None:
            check_range(self.plugin, self.unchecked_scores[rows])


class EquivalenceClass:
    """What all sharing plugins say of pods that are alike to every one of them."""

    def __init__(self, filters: Sequence[PluginResults]) -> None:
        self._filters = filters
        self._scorers: Sequence[Scorer] = ()
        self.scorer_signatures: Sequence[Hashable] = ()
        """The signatures that ``set_scorers`` was last told."""
        self.verdicts = Verdicts(0)
        self.feasible: BoolArray = np.zeros(0, dtype=np.bool_)
        self.feasible_count = 0
        self.totals = CachedTotals(np.zeros(0, dtype=np.int64))
        self._filter_at = -1
        self._score_at = -1
        self._filter_generation = self._score_generation = -1
        """``NodeTable.nodes_generation`` when verdicts and ranking were last brought up to date."""
        self._full_evaluations = -1
        """How often the filters had made all verdicts anew when theirs were merged."""
        self._feasibility_changed: set[int] = set()
        """Rows whose feasibility changed since the ranking was last brought up to date."""

    # ---- filter --------------------------------------------------------------------------------

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring verdicts and feasibility up to date."""
        full_evaluations = 0
        same_nodes = table.nodes_generation == self._filter_generation
        for results in self._filters:
            if not (same_nodes and results.depends_on_nodes_only):
                results.refresh_filter(state, pod, table)
            full_evaluations += results.full_evaluations
        rows: list[int] | None = None
        if full_evaluations == self._full_evaluations:
            rows = few_rows(table.changes, self._filter_at, self.verdicts.size, table.size)
        if rows is None:
            self._merge_all(table)
        else:
            self._merge_rows(rows)
        self._full_evaluations = full_evaluations
        self._filter_at, self._filter_generation = table.position, table.nodes_generation

    def merged_with(
        self, others: Mapping[Plugin, Verdicts], order: Iterable[FilterPlugin]
    ) -> Verdicts:
        """Return the verdicts with those of other plugins, each row's first rejection in order.

        Not to be written to.
        """
        if self.verdicts.ids is None and len(others) == 1:
            return next(iter(others.values()))
        said = {results.plugin: results.verdicts for results in self._filters} | dict(others)
        merged = Verdicts(self.verdicts.size)
        for plugin in order:
            if plugin in said:
                merged.merge(said[plugin])
        return merged

    def _merge_all(self, table: NodeTable) -> None:
        self.verdicts = Verdicts(table.size)
        for results in self._filters:
            self.verdicts.merge(results.verdicts)
        self.feasible = self.verdicts.passed()
        self.feasible_count = int(np.count_nonzero(self.feasible))
        self._score_at = -1

    def _merge_rows(self, rows: list[int]) -> None:
        verdicts, feasible = self.verdicts, self.feasible
        rejecting = [a.verdicts for a in self._filters if a.verdicts.ids is not None]
        if not rejecting and verdicts.ids is None:
            return  # every node passes, as before
        for row in rows:
            status = _first_rejection(rejecting, row)
            if status is not None:
                ids = verdicts.ids
                if ids is None:
                    ids = verdicts.ids = np.zeros(verdicts.size, dtype=np.int32)
                ids[row] = verdicts.id_of(status)
            elif verdicts.ids is not None:
                verdicts.ids[row] = PASSED
            passes = status is None
            if feasible[row] != passes:
                feasible[row] = passes
                self.feasible_count += 1 if passes else -1
                self._feasibility_changed.add(row)

    # ---- score ---------------------------------------------------------------------------------

    def set_scorers(self, scorers: Sequence[Scorer], signatures: Sequence[Hashable]) -> None:
        """Name the plugins that score; needed where ``scorer_signatures`` is not what it is to
        be."""
        self._scorers, self.scorer_signatures = scorers, signatures
        self._score_at = self._score_generation = -1

    def refresh_totals(self, state: CycleState, pod: PodInfo, table: NodeTable) -> CachedTotals:
        """Bring the total scores up to date and return them; ``refresh_filter`` comes first."""
        rows = few_rows(table.changes, self._score_at, len(self.totals.scores), table.size)
        rebuild = rows is None
        same_nodes = table.nodes_generation == self._score_generation
        for scorer in self._scorers:
            if not (same_nodes and scorer.is_settled):
                rebuild = self._refresh_scorer(scorer, state, pod, table, rows) or rebuild
        if rebuild:
            total: IntArray = np.zeros(table.size, dtype=np.int64)
            for scorer in self._scorers:
                total += scorer.final
            self.totals = CachedTotals(np.where(self.feasible, total, INFEASIBLE))
        else:
            assert rows is not None
            self._total_rows(rows)
        self._feasibility_changed.clear()
        self._score_at, self._score_generation = table.position, table.nodes_generation
        return self.totals

    def check_range(self, where: Rows | slice | BoolArray | None = None) -> None:
        """Raise ``PluginError`` when a plugin's score of a row that passes here is out of range.

        ``where``: not of all of these rows, but of some.
        """
        for scorer in self._scorers:
            scorer.check_range(self.feasible if where is None else where)

    def total(
        self, state: CycleState, pod: PodInfo, where: Rows | slice, *, subset: bool
    ) -> IntArray | int:
        """Return what all plugins together add to the ranking of some rows: see ``scores``.

        Not to be written to.
        """
        if subset and any(scorer.depends_on_others for scorer in self._scorers):
            return sum(self.scores(state, pod, where, subset=subset).values())
        self.check_range(where)
        return self.totals.scores[where]

    def scores(
        self, state: CycleState, pod: PodInfo, where: Rows | slice, *, subset: bool
    ) -> dict[str, IntArray | int]:
        """Return what each plugin adds to the ranking of some feasible rows, an int for all alike.

        ``subset``: they are not all the rows that pass here. Then what was normalised has to be
        normalised again, over those; what is the same everywhere stays so. Raises ``PluginError``
        when one of the rows has a score out of range.
        """
        added: dict[str, IntArray | int] = {}
        for scorer in self._scorers:
            plugin, final, raw = scorer.plugin, scorer.final, scorer.results.raw
            if isinstance(final, int) or isinstance(raw, int):
                added[plugin.name] = final
            elif subset and scorer.depends_on_others:
                scores = run_normalize_score(plugin, state, pod, raw[where])
                check_range(plugin, scores)
                added[plugin.name] = scores * scorer.weight
            else:
                scorer.check_range(where)
                added[plugin.name] = final[where]
        return added

    def _refresh_scorer(
        self,
        scorer: Scorer,
        state: CycleState,
        pod: PodInfo,
        table: NodeTable,
        rows: list[int] | None,
    ) -> bool:
        """Bring one plugin's scores up to date; tell whether rows beyond ``rows`` changed."""
        results, weight = scorer.results, scorer.weight
        results.refresh_score(state, pod, table)
        raw, final = results.raw, scorer.final
        if isinstance(raw, int):
            scorer.unchecked_scores = None
            if raw == scorer.normalized_constant:
                return False
            scorer.final = weight * self._normalized_constant(scorer, state, pod, raw)
            scorer.normalized_constant = raw
            return not isinstance(final, int) or final != scorer.final
        scorer.normalized_constant = None
        if raw is scorer.normalized_raw and not isinstance(final, int) and rows is not None:
            if results.raw_version == scorer.normalized_version and not self._feasibility_changed:
                return False
            if not scorer.plugin.normalizes:
                self._update_rows(scorer, raw, final, rows)
                scorer.normalized_version = results.raw_version
                return False
        scorer.normalized_raw = None
        scores, passed = raw, self.feasible
        if scorer.plugin.normalizes:
            scores = np.where(passed, raw, 0)
            scores[passed] = run_normalize_score(scorer.plugin, state, pod, scores[passed])
        scorer.unchecked_scores = None if out_of_range(scores[passed]) is None else scores
        scorer.final = scores * weight
        # Only now: what failed is to be tried again for the next pod.
        scorer.normalized_raw, scorer.normalized_version = raw, results.raw_version
        return True

    def _update_rows(self, scorer: Scorer, raw: IntArray, final: IntArray, rows: list[int]) -> None:
        """Bring the final scores of a few rows up to date; cheaper one by one than by columns."""
        feasible, weight = self.feasible, scorer.weight
        for row in rows:
            score = int(raw[row])
            if not MIN_SCORE <= score <= MAX_SCORE:
                score = 0  # does not count: the pod goes elsewhere, or its attempt fails
                if feasible[row]:
                    scorer.unchecked_scores = raw
            final[row] = score * weight

    def _normalized_constant(
        self, scorer: Scorer, state: CycleState, pod: PodInfo, raw: int
    ) -> int:
        one = np.array([raw], dtype=np.int64)
        if scorer.plugin.normalizes:
            one = run_normalize_score(scorer.plugin, state, pod, one)
        check_range(scorer.plugin, one)
        return int(one[0])

    def _total_rows(self, rows: list[int]) -> None:
        for row in rows:
            total = INFEASIBLE
            if self.feasible[row]:
                total = 0
                for scorer in self._scorers:
                    final = scorer.final
                    total += final if isinstance(final, int) else int(final[row])
            self.totals.put(row, total)


def _first_rejection(verdicts: list[Verdicts], row: int) -> Status | None:
    for one in verdicts:
        assert one.ids is not None
        number = int(one.ids[row])
        if number != PASSED:
            return one.statuses[number]
    return None
