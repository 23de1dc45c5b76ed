"""Pods that look alike share the work of plugins.

What a ``row_local`` plugin answered for one pod holds for the next pod with the same signature,
except on the rows that changed since: only those are asked again. There are two layers. ``Answers``
keeps one plugin's verdicts and raw scores for one signature. A ``Face`` is what all such plugins
together said of pods that are alike to every one of them: merged verdicts and weighted totals, kept
up to date row by row, so that the cost of the thousandth replica does not grow with the cluster.

Invariant: an ``Answers`` or ``Face`` whose position equals the table's says of every row what its
plugins would say if they were asked now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proreus.framework.change_log import ChangeLog
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, BoolArray, IntArray, Rows, Verdicts
from proreus.runtime.asking import (
    check_range,
    filter_some,
    filter_table,
    normalize_scores,
    out_of_range,
    score_some,
    score_table,
)
from proreus.runtime.totals import INFEASIBLE, Totals

_MEMORY_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 24
_MOST_ENTRIES = 256
_FEW_ROWS = 64
"""Up to so many changed rows are mended one by one; more are evaluated as a whole."""


class Answers:
    """What one plugin said of every row, for one signature."""

    __slots__ = (
        "_filter_at",
        "_has_outlook",
        "_looks_at_pods",
        "_outlook",
        "_score_at",
        "about_nodes",
        "judged_whole",
        "plugin",
        "raw",
        "raw_version",
        "verdicts",
    )

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.verdicts = Verdicts(0)
        self.judged_whole = 0
        """How often all verdicts were made anew."""
        self.raw: IntArray | int = 0
        self.raw_version = 0
        """Moves whenever a raw score changes."""
        self._filter_at = -1
        self._score_at = -1
        self._looks_at_pods = plugin.looks_at_pods
        self._has_outlook = type(plugin).outlook is not Plugin.outlook
        self._outlook: Hashable = None
        self.about_nodes = not (plugin.looks_at_pods or self._has_outlook)
        """Whether the answers hold until a node comes, goes or changes itself."""

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the verdicts up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = self.verdicts.size
        if self._has_outlook:
            self._look_out(table)
        if self._filter_at == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, FilterPlugin)
        rows = _few_rows(changes, self._filter_at, size, table.size)
        if rows is None:
            # Should the plugin fail half-way, what it said so far must not pass for an answer.
            self._filter_at = -1
            self.verdicts = Verdicts(table.size, plugin.name)
            filter_table(plugin, state, pod, table, self.verdicts)
            self.judged_whole += 1
        else:
            ids = self.verdicts.ids
            for row, status in filter_some(plugin, state, pod, table, rows):
                if status is not None:
                    if ids is None:
                        ids = self.verdicts.ids = np.zeros(table.size, dtype=np.int32)
                    ids[row] = self.verdicts.id_of(status)
                elif ids is not None:
                    ids[row] = PASSED
        self._filter_at = changes.position

    def refresh_score(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the raw scores up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = table.size if isinstance(self.raw, int) else len(self.raw)
        if self._has_outlook:
            self._look_out(table)
        if self._score_at == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, ScorePlugin)
        rows = _few_rows(changes, self._score_at, size, table.size)
        if rows is None:
            self.raw = score_table(plugin, state, pod, table)
            self.raw_version += 1
        else:
            for row, score in score_some(plugin, state, pod, table, rows):
                raw = self.raw
                if score == (raw if isinstance(raw, int) else raw[row]):
                    continue
                if isinstance(raw, int):
                    raw = self.raw = np.full(table.size, raw, dtype=np.int64)
                raw[row] = score
                self.raw_version += 1
        self._score_at = changes.position

    def _look_out(self, table: NodeTable) -> None:
        """Forget all answers if what they depend on beside row and pod has changed."""
        outlook = self.plugin.outlook(table)
        if outlook != self._outlook:
            self._outlook = outlook
            self._filter_at = self._score_at = -1


def _few_rows(
    changes: ChangeLog, position: int, known_size: int, table_size: int
) -> list[int] | None:
    """Return the rows to ask again; None for all of them."""
    if position < 0 or known_size != table_size:
        return None
    rows = changes.since(position, table_size)
    return rows if rows is not None and len(rows) <= _FEW_ROWS else None


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
            rows = _few_rows(table.changes, self._filter_at, self.verdicts.size, table.size)
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
        rows = _few_rows(table.changes, self._score_at, len(self.totals.scores), table.size)
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


class SharedAnswers:
    """The answers of one profile, by signature; the least recently used go first."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._answers: OrderedDict[Hashable, Answers] = OrderedDict()
        self._faces: OrderedDict[Hashable, Face] = OrderedDict()

    def answers(self, plugin: Plugin, signature: Hashable) -> Answers:
        """Return a plugin's answers for a signature, up to date or not."""
        key = (plugin.name, signature)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = Answers(plugin)
            self._trim(self._answers)
        else:
            self._answers.move_to_end(key)
        return answers

    def face(self, signatures: Mapping[FilterPlugin, Hashable]) -> Face:
        """Return the face of pods to which these plugins with these signatures apply."""
        key = tuple(signatures.items())
        face = self._faces.get(key)
        if face is None:
            face = Face([self.answers(plugin, sign) for plugin, sign in signatures.items()])
            self._faces[key] = face
            self._trim(self._faces)
        else:
            self._faces.move_to_end(key)
        return face

    def _trim(self, entries: OrderedDict[Hashable, Answers] | OrderedDict[Hashable, Face]) -> None:
        size = max(self._table.size, 1)
        limit = max(4, min(_MOST_ENTRIES, _MEMORY_BUDGET_BYTES // (_BYTES_A_ROW * size)))
        while len(entries) > limit:
            entries.popitem(last=False)
