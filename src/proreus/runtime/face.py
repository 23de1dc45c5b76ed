"""What all plugins that share their answers say of pods that are alike to every one of them.

Merged verdicts and weighted totals, kept up to date row by row, so that the cost of the thousandth
replica does not grow with the cluster. Invariant: a ``Face`` whose position equals the table's says
of every row what its plugins would say if they were asked now.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, BoolArray, IntArray, Rows, Verdicts
from proreus.runtime.answers import Answers, few_rows
from proreus.runtime.asking import check_range, normalize_scores, out_of_range
from proreus.runtime.totals import INFEASIBLE, Totals


@dataclass(slots=True)
class Scorer:
    """A score plugin of a face: its weight, its answers, and what its scores became."""

    plugin: ScorePlugin
    weight: int
    answers: Answers
    final: IntArray | int = 0
    """Weighted scores by row, normalised over the rows that pass; one int for all rows alike."""
    seen_raw: IntArray | None = None
    seen_version: int = -1
    seen_constant: int | None = None
    """What ``final`` was made from. Other faces share the answers and bring them up to date too,
    so a face must remember what it has seen of them."""
    doubtful: IntArray | None = None
    """Scores by row, before weights, where one may be out of range: whether that is an error is
    known once the other plugins have said which of the nodes are left."""

    @property
    def rests(self) -> bool:
        """Whether nothing can change here until a node comes, goes or changes itself."""
        return self.answers.about_nodes and isinstance(self.final, int)

    @property
    def depends_on_others(self) -> bool:
        """Whether a row's score depends on which other rows pass: they are normalised together."""
        return self.plugin.normalizes and not isinstance(self.final, int)

    def check_range(self, rows: Rows | slice | BoolArray) -> None:
        """Raise ``PluginError`` when the final score of one of these rows is outside 0..100."""
        if self.doubtful is not None:
            check_range(self.plugin, self.doubtful[rows])


class Face:
    """What all sharing plugins say of pods that are alike to every one of them."""

    def __init__(self, filters: Sequence[Answers]) -> None:
        self._filters = filters
        self._scorers: Sequence[Scorer] = ()
        self.scored_by: Sequence[Hashable] = ()
        """The signatures that ``score_with`` was last told."""
        self.verdicts = Verdicts(0)
        self.feasible: BoolArray = np.zeros(0, dtype=np.bool_)
        self.feasible_count = 0
        self.totals = Totals(np.zeros(0, dtype=np.int64))
        self._filter_at = -1
        self._score_at = -1
        self._filter_structure = self._score_structure = -1
        """``NodeTable.structure`` when verdicts and ranking were last brought up to date."""
        self._judged_whole = -1
        """How often the filters had made all verdicts anew when theirs were merged."""
        self._flipped: set[int] = set()
        """Rows whose feasibility changed since the ranking was last brought up to date."""

    # ---- filter --------------------------------------------------------------------------------

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring verdicts and feasibility up to date."""
        judged_whole = 0
        same_nodes = table.structure == self._filter_structure
        for answers in self._filters:
            if not (same_nodes and answers.about_nodes):
                answers.refresh_filter(state, pod, table)
            judged_whole += answers.judged_whole
        rows: list[int] | None = None
        if judged_whole == self._judged_whole:
            rows = few_rows(table.changes, self._filter_at, self.verdicts.size, table.size)
        if rows is None:
            self._merge_all(table)
        else:
            self._merge_rows(rows)
        self._judged_whole = judged_whole
        self._filter_at, self._filter_structure = table.position, table.structure

    def merged_with(
        self, others: Mapping[Plugin, Verdicts], order: Iterable[FilterPlugin]
    ) -> Verdicts:
        """Return the verdicts with those of other plugins, each row's first rejection in order.

        Not to be written to.
        """
        if self.verdicts.ids is None and len(others) == 1:
            return next(iter(others.values()))
        said = {answers.plugin: answers.verdicts for answers in self._filters} | dict(others)
        merged = Verdicts(self.verdicts.size)
        for plugin in order:
            if plugin in said:
                merged.merge(said[plugin])
        return merged

    def _merge_all(self, table: NodeTable) -> None:
        self.verdicts = Verdicts(table.size)
        for answers in self._filters:
            self.verdicts.merge(answers.verdicts)
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
                self._flipped.add(row)

    # ---- score ---------------------------------------------------------------------------------

    def score_with(self, scorers: Sequence[Scorer], signatures: Sequence[Hashable]) -> None:
        """Name the plugins that score; needed where ``scored_by`` is not what it is to be."""
        self._scorers, self.scored_by = scorers, signatures
        self._score_at = self._score_structure = -1

    def refresh_ranking(self, state: CycleState, pod: PodInfo, table: NodeTable) -> Totals:
        """Bring the total scores up to date and return them; ``refresh_filter`` comes first."""
        rows = few_rows(table.changes, self._score_at, len(self.totals.scores), table.size)
        rebuild = rows is None
        same_nodes = table.structure == self._score_structure
        for scorer in self._scorers:
            if not (same_nodes and scorer.rests):
                rebuild = self._refresh_scorer(scorer, state, pod, table, rows) or rebuild
        if rebuild:
            total: IntArray = np.zeros(table.size, dtype=np.int64)
            for scorer in self._scorers:
                total += scorer.final
            self.totals = Totals(np.where(self.feasible, total, INFEASIBLE))
        else:
            assert rows is not None
            self._rank_rows(rows)
        self._flipped.clear()
        self._score_at, self._score_structure = table.position, table.structure
        return self.totals

    def check_range(self, where: Rows | slice | BoolArray | None = None) -> None:
        """Raise ``PluginError`` when a plugin's score of a row that passes here is out of range.

        ``where``: not of all of these rows, but of some.
        """
        for scorer in self._scorers:
            scorer.check_range(self.feasible if where is None else where)

    def total(
        self, state: CycleState, pod: PodInfo, where: Rows | slice, *, fewer: bool
    ) -> IntArray | int:
        """Return what all plugins together add to the ranking of some rows: see ``scores``.

        Not to be written to.
        """
        if fewer and any(scorer.depends_on_others for scorer in self._scorers):
            return sum(self.scores(state, pod, where, fewer=fewer).values())
        self.check_range(where)
        return self.totals.scores[where]

    def scores(
        self, state: CycleState, pod: PodInfo, where: Rows | slice, *, fewer: bool
    ) -> dict[str, IntArray | int]:
        """Return what each plugin adds to the ranking of some feasible rows, an int for all alike.

        ``fewer``: they are not all the rows that pass here. Then what was normalised has to be
        normalised again, over those; what is the same everywhere stays so. Raises ``PluginError``
        when one of the rows has a score out of range.
        """
        added: dict[str, IntArray | int] = {}
        for scorer in self._scorers:
            plugin, final, raw = scorer.plugin, scorer.final, scorer.answers.raw
            if isinstance(final, int) or isinstance(raw, int):
                added[plugin.name] = final
            elif fewer and scorer.depends_on_others:
                scores = normalize_scores(plugin, state, pod, raw[where])
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
        answers, weight = scorer.answers, scorer.weight
        answers.refresh_score(state, pod, table)
        raw, final = answers.raw, scorer.final
        if isinstance(raw, int):
            scorer.doubtful = None
            if raw == scorer.seen_constant:
                return False
            scorer.final = weight * self._normalized_constant(scorer, state, pod, raw)
            scorer.seen_constant = raw
            return not isinstance(final, int) or final != scorer.final
        scorer.seen_constant = None
        if raw is scorer.seen_raw and not isinstance(final, int) and rows is not None:
            if answers.raw_version == scorer.seen_version and not self._flipped:
                return False
            if not scorer.plugin.normalizes:
                self._mend(scorer, raw, final, rows)
                scorer.seen_version = answers.raw_version
                return False
        scorer.seen_raw = None
        scores, passed = raw, self.feasible
        if scorer.plugin.normalizes:
            scores = np.where(passed, raw, 0)
            scores[passed] = normalize_scores(scorer.plugin, state, pod, scores[passed])
        scorer.doubtful = None if out_of_range(scores[passed]) is None else scores
        scorer.final = scores * weight
        # Only now: what failed is to be tried again for the next pod.
        scorer.seen_raw, scorer.seen_version = raw, answers.raw_version
        return True

    def _mend(self, scorer: Scorer, raw: IntArray, final: IntArray, rows: list[int]) -> None:
        """Bring the final scores of a few rows up to date; cheaper one by one than by columns."""
        feasible, weight = self.feasible, scorer.weight
        for row in rows:
            score = int(raw[row])
            if not MIN_SCORE <= score <= MAX_SCORE:
                score = 0  # does not count: the pod goes elsewhere, or its attempt fails
                if feasible[row]:
                    scorer.doubtful = raw
            final[row] = score * weight

    def _normalized_constant(
        self, scorer: Scorer, state: CycleState, pod: PodInfo, raw: int
    ) -> int:
        one = np.array([raw], dtype=np.int64)
        if scorer.plugin.normalizes:
            one = normalize_scores(scorer.plugin, state, pod, one)
        check_range(scorer.plugin, one)
        return int(one[0])

    def _rank_rows(self, rows: list[int]) -> None:
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
