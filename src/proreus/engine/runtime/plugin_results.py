"""The cached results of plugins: those of one plugin by row, and the sums of scores of several.

    EquivalenceClass.refresh_filter ─► PluginResults.refresh_filter ─► Filter, on changed rows
    prioritize_nodes ─► ClassScores.refresh ─► PluginResults.refresh_score ─► Score, on changed rows
                     └► NormalizeScore, over the feasible rows, where scores of any of them changed

Shared: one ``PluginResults`` serves every equivalence class in which the plugin has this signature.
The key of a class has the signatures of Filter plugins alone. Its pods may differ in what plugins
that only score read (their images, their line of business): then there is one ``ClassScores`` for
each such kind, and ``EquivalenceCache`` keeps those that are not in use.

Invalidated: a row, when the table's change log names it (the log of node changes alone, where the
plugin does not look at pods); all rows, when nodes were added or removed, when more than
64 rows changed, or when the plugin's ``invalidation_key`` changed.

Example: NodePorts signs pods by their host ports. A pod with port 80 is bound to row 7; the next
pod with port 80 costs one Filter call, for row 7, and the other 4,999 verdicts are reused.

Invariants: a ``PluginResults`` whose position equals the table's holds for every row what its
plugin would return if it were called now; where ``ClassScores._position`` equals the table's,
``totals`` are what the plugins would give now.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from proreus.engine.runtime.node_points import (
    check_range,
    out_of_range,
    run_filter_plugin,
    run_filter_plugin_on_rows,
    run_normalize_score,
    run_score_plugin,
    run_score_plugin_on_rows,
)
from proreus.engine.runtime.select_host import INFEASIBLE, CachedTotals
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import PASSED, BoolArray, IntArray, Rows, Verdicts


class PluginResults:
    """One plugin's verdict and raw score of every row, for one signature."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.verdicts = Verdicts(0)
        self.full_evaluations = 0
        """How often Filter ran over all rows; a class that merged them before then merges again."""
        self.raw_scores: IntArray | int = 0
        self.raw_version = 0
        """Incremented whenever a raw score changes."""
        self._filter_position = -1
        self._score_position = -1
        self._looks_at_pods = plugin.looks_at_pods
        # Looked up once: for most plugins the method is the base class's, and not worth a call.
        self._has_invalidation_key = type(plugin).invalidation_key is not Plugin.invalidation_key
        self._invalidation_key: Hashable = None
        self.depends_on_nodes_only = not (plugin.looks_at_pods or self._has_invalidation_key)
        """Whether the results hold until a node is added, removed or updated, whatever pods do."""

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the verdicts up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = self.verdicts.size
        if self._has_invalidation_key:
            self._check_invalidation_key(table)
        if self._filter_position == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, FilterPlugin)
        rows = changes.few_since(self._filter_position, size, table.size)
        if rows is None:
            # Should the plugin raise half-way, the rows that it reached must not pass for results.
            self._filter_position = -1
            self.verdicts = Verdicts(table.size, plugin.name)
            run_filter_plugin(plugin, state, pod, table, self.verdicts)
            self.full_evaluations += 1
        else:
            ids = self.verdicts.ids
            for row, status in run_filter_plugin_on_rows(plugin, state, pod, table, rows):
                if status is not None:
                    if ids is None:
                        ids = self.verdicts.ids = np.zeros(table.size, dtype=np.int32)
                    ids[row] = self.verdicts.id_of(status)
                elif ids is not None:
                    # The row was rejected before and passes now: a pod has left the node, say.
                    ids[row] = PASSED
        self._filter_position = changes.position
        if rows is None:
            # Checked last: an attempt that ends here has at least paid for the next one's cache.
            state.check_budget(plugin.name, "Filter")

    def refresh_score(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the raw scores up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = table.size if isinstance(self.raw_scores, int) else len(self.raw_scores)
        if self._has_invalidation_key:
            self._check_invalidation_key(table)
        if self._score_position == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, ScorePlugin)
        rows = changes.few_since(self._score_position, size, table.size)
        if rows is None:
            raw_scores = run_score_plugin(plugin, state, pod, table)
            # Scores of changed rows are written to it later. A plugin may return a column of the
            # table, which changes with the next pod, or an array that it keeps, or a read-only one.
            self.raw_scores = raw_scores if isinstance(raw_scores, int) else raw_scores.copy()
            self.raw_version += 1
        else:
            for row, score in run_score_plugin_on_rows(plugin, state, pod, table, rows):
                raw_scores = self.raw_scores
                # An unchanged score leaves ``raw_version`` alone, and with it every class's totals:
                # what NormalizeScore made of the column still holds.
                if score == (raw_scores if isinstance(raw_scores, int) else raw_scores[row]):
                    continue
                # The first row that differs ends the constant; the column is filled with it.
                if isinstance(raw_scores, int):
                    raw_scores = self.raw_scores = np.full(table.size, raw_scores, dtype=np.int64)
                raw_scores[row] = score
                self.raw_version += 1
        self._score_position = changes.position
        if rows is None:
            state.check_budget(plugin.name, "Score")

    def _check_invalidation_key(self, table: NodeTable) -> None:
        """Discard all results if what they depend on besides row and pod has changed."""
        invalidation_key = self.plugin.invalidation_key(table)
        if invalidation_key != self._invalidation_key:
            self._invalidation_key = invalidation_key
            self._filter_position = self._score_position = -1


class Scorer(Struct, eq=False):
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


class ClassScores:
    """Weighted scores of some plugins and their sums, by row, for one signature of each plugin."""

    def __init__(self, scorers: Sequence[Scorer], signatures: Sequence[Hashable]) -> None:
        self.scorers, self.signatures = scorers, signatures
        self._variable_scorers: Sequence[Scorer] = ()
        """The scorers with a score for each row, or with one that pods may change. Most others give
        every row the same until a node is added, removed or updated: ``_constant_total``."""
        self._constant_total = 0
        self.totals = CachedTotals(np.zeros(0, dtype=np.int64))
        self._feasible: BoolArray = np.zeros(0, dtype=np.bool_)
        self._feasible_version = -1
        self._same_feasible = False
        """Whether the same rows are feasible as when the totals were refreshed before."""
        self._position = -1
        self._nodes_generation = -1
        """``NodeTable.nodes_generation`` when the totals were last refreshed."""
        self.history: Any = None
        """The decision recorder's own data about these results."""

    def refresh(
        self,
        state: CycleState,
        pod: PodInfo,
        table: NodeTable,
        feasible: BoolArray,
        feasible_version: int,
    ) -> CachedTotals:
        """Bring the total scores up to date and return them.

        ``feasible``: by row; another array than last time if any row of it may have changed.
        ``feasible_version``: another number than last time if any row of it has.
        """
        rows = None
        if feasible is self._feasible:
            rows = table.changes.few_since(self._position, len(self.totals.scores), table.size)
        self._feasible = feasible
        self._same_feasible = feasible_version == self._feasible_version
        rebuild = rows is None
        # Should a plugin raise half-way, the others' new scores are in no total yet.
        self._position = -1
        same_nodes = table.nodes_generation == self._nodes_generation
        for scorer in self._variable_scorers if same_nodes else self.scorers:
            # Every scorer is refreshed, also once a rebuild is certain: hence no short-circuit.
            rebuild = self._refresh_scorer(scorer, state, pod, table, rows) or rebuild
        if rebuild:
            # NormalizeScore moved the scores of rows that did not change themselves: sum up all.
            self._total_all(table)
        else:
            assert rows is not None
            self._total_rows(rows)
        self._feasible_version = feasible_version
        self._position, self._nodes_generation = table.changes.position, table.nodes_generation
        return self.totals

    def check_range(self, where: Rows | slice | BoolArray | None = None) -> None:
        """Raise ``PluginError`` when a plugin's score of a feasible row is out of range.

        ``where``: the rows to check; None: all that are feasible in this class.
        """
        for scorer in self._variable_scorers:
            scorer.check_range(self._feasible if where is None else where)

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
            if results.raw_version == scorer.source_version and self._same_feasible:
                return False
            # Without NormalizeScore a row's score depends on that row alone. With it, one new
            # maximum rescales every row, so there is no way around the whole column.
            if not scorer.plugin.normalizes:
                self._update_rows(scorer, raw_scores, weighted_scores, rows)
                scorer.source_version = results.raw_version
                return False
        scorer.source_scores = None
        scores, passed = raw_scores, self._feasible
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
        feasible, weight = self._feasible, scorer.weight
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
        self.totals = CachedTotals(np.where(self._feasible, total, INFEASIBLE))

    def _total_rows(self, rows: list[int]) -> None:
        for row in rows:
            total = INFEASIBLE
            if self._feasible[row]:
                total = self._constant_total
                for scorer in self._variable_scorers:
                    weighted_scores = scorer.weighted_scores
                    total += (
                        weighted_scores
                        if isinstance(weighted_scores, int)
                        else int(weighted_scores[row])
                    )
            self.totals.put(row, total)
