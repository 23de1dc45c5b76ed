"""The results that the pods of an equivalence class share, as of each of several attempts.

One pod after the other of a Deployment finds what the pod before found, except on the few rows
that changed since. So the results are copied once, and each attempt adds the rows that changed.
``as_of`` puts the results of any of these attempts together again.

What makes this exact: an ``EquivalenceClass`` and its ``ClassScores`` write only to rows that the
table reports as changed, or replace ``verdicts`` or ``totals`` by new objects (``refresh_filter``,
``ClassScores.refresh``). In the latter case a new copy has to be made, and also where a raw score
that all nodes share is another one.

Example: three pods of a class are bound to the rows 7, 2 and 7. ``advance`` notes the new values
of row 7 before the second one's choice, and those of row 2 before the third one's.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from proreus.decisions.scores import PluginScores, ScoreTable, compact
from proreus.decisions.verdicts import VerdictColumn, copied_numbers
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray
from proreus.runtime.equivalence_cache import EquivalenceClass

_FEW_ROWS = 64
_MAX_CHANGES = 4096
"""After so many changed rows a new copy is made: reading an attempt costs one step for each."""
_WORTH_IT = 8
"""A copy that serves fewer attempts than this costs more than the best nodes of each."""
_PAUSE = 16
"""For how many attempts no copy is made after one that was not worth it."""


class _Column(NamedTuple):
    """One plugin's scores: the array that the class writes to, and its copy."""

    live: IntArray
    copy: IntArray


class SharedResults:
    """The results of one equivalence class, from one copy of them on.

    ``attempts``: how many have been recorded; ``users``: how many of their records are kept.
    ``end``: that of the changes of the last one, to be passed to ``as_of`` later.
    """

    __slots__ = (
        "_changes",
        "_columns",
        "_constants",
        "_copied_bytes",
        "_max_end",
        "_nodes_generation",
        "_numbers",
        "_plugins",
        "_position",
        "_readers",
        "_totals",
        "_totals_copy",
        "_variable",
        "_verdicts",
        "_width",
        "attempts",
        "end",
        "users",
    )

    def __init__(self, shared: EquivalenceClass, table: NodeTable) -> None:
        scores = shared.scores
        self._verdicts, self._totals = shared.verdicts, scores.totals
        self._position = table.position
        self._numbers = copied_numbers(shared.verdicts)
        columns = self._columns = [_Column(scores.totals.scores, compact(scores.totals.scores))]
        self._totals_copy = columns[0].copy
        # Weight, raw and weighted scores by plugin; raw is None where it is the weighted score
        # divided by the weight: without NormalizeScore.
        self._plugins: dict[str, tuple[int, _Column | int | None, _Column | int]] = {}
        for scorer in scores.scorers:
            raw, weighted = scorer.results.raw_scores, scorer.weighted_scores
            both: list[_Column | int | None] = []
            derived = not scorer.plugin.normalizes and not isinstance(weighted, int)
            for column in (None if derived else raw, weighted):
                if column is None or isinstance(column, int):
                    both.append(column)
                else:
                    columns.append(_Column(column, compact(column)))
                    both.append(columns[-1])
            assert both[1] is not None
            self._plugins[scorer.plugin.name] = (scorer.weight, both[0], both[1])
        # Read for each changed row of each attempt.
        self._readers = [column.live.item for column in columns]
        # A raw score that all nodes share may change without any total changing.
        constant = [
            one.results for one in scores.scorers if isinstance(one.results.raw_scores, int)
        ]
        self._constants = [(one, one.raw_scores) for one in constant]
        self._variable = [
            (one, raw) for one, raw in self._constants if not one.depends_on_nodes_only
        ]
        self._nodes_generation = table.nodes_generation
        self._changes = array("q")
        self._width = 2 + len(columns)
        self._max_end = _MAX_CHANGES * self._width
        self.attempts, self.users, self.end = 1, 0, 0
        held = sum(column.copy.nbytes for column in columns)
        self._copied_bytes = held + (0 if self._numbers is None else self._numbers.nbytes)

    def advance(self, shared: EquivalenceClass, table: NodeTable) -> int:
        """Note what changed since the last attempt; return the bytes that it took, -1 if it cannot.

        -1: the class has made its results anew.
        """
        if shared.verdicts is not self._verdicts or shared.scores.totals is not self._totals:
            return -1
        same_nodes = table.nodes_generation == self._nodes_generation
        for results, raw in self._variable if same_nodes else self._constants:
            if results.raw_scores != raw:
                return -1
        self._nodes_generation = table.nodes_generation
        # The recorder has counted these results as given up.
        if not self.users:
            return -1
        changes = table.changes
        rows = changes.since(self._position, table.size)
        if rows is None or len(rows) > _FEW_ROWS or self.end > self._max_end:
            return -1
        self._position = changes.position
        ids, note = self._verdicts.ids, self._changes.append
        for row in rows:
            note(row)
            note(0 if ids is None else ids.item(row))
            for read in self._readers:
                note(read(row))
        grown = self._width * len(rows)
        self.end += grown
        self.attempts += 1
        return 8 * grown

    @property
    def all_bytes(self) -> int:
        """How much memory the copy and the changes take."""
        return self._copied_bytes + 8 * self.end

    @property
    def was_worth_it(self) -> bool:
        """Whether the copy has served enough attempts."""
        return self.attempts >= _WORTH_IT

    def as_of(self, end: int) -> tuple[VerdictColumn, ScoreTable]:
        """Return the results of the attempt at whose record ``end`` was read."""
        width = self._width
        changed = np.frombuffer(self._changes, dtype=np.int64)[:end].reshape(-1, width).copy()
        # Of a row that changed several times, the last values count.
        rows, first = np.unique(changed[::-1, 0], return_index=True)
        changed = changed[::-1][first]
        numbers = self._numbers
        if len(rows) and (numbers is not None or changed[:, 1].any()):
            size = len(self._totals_copy)
            numbers = np.zeros(size, np.int32) if numbers is None else numbers.astype(np.int32)
            numbers[rows] = changed[:, 1]
        arrays: dict[int, IntArray] = {}
        for place, column in enumerate(self._columns):
            whole = column.copy.astype(np.int64)
            if len(rows):
                whole[rows] = changed[:, 2 + place]
            arrays[id(column)] = whole
        totals = arrays[id(self._columns[0])]
        feasible = np.arange(len(totals)) if numbers is None else np.flatnonzero(numbers == 0)
        plugins = {}
        for name, (weight, raw, weighted) in self._plugins.items():
            final = weighted if isinstance(weighted, int) else arrays[id(weighted)][feasible]
            if raw is None:
                first_scores = final // weight
            else:
                first_scores = raw if isinstance(raw, int) else arrays[id(raw)][feasible]
            plugins[name] = PluginScores(weight, first_scores, final)
        table = ScoreTable(feasible, totals[feasible], plugins, len(feasible))
        # Statuses are only ever appended to this list: numbers of the past stay valid.
        return VerdictColumn(numbers, tuple(self._verdicts.statuses)), table


class SharedResultsOf:
    """Whether and from where on a class's results are recorded as shared ones."""

    # Made for each class, of which there may be thousands: it refers to nothing of the class.

    __slots__ = ("_pause", "results")

    def __init__(self) -> None:
        self.results: SharedResults | None = None
        self._pause = 0

    def begin(self, shared: EquivalenceClass, table: NodeTable) -> SharedResults | None:
        """Return new shared results, since there are none that this attempt could advance.

        None: its results are not shared, and have to be kept with the attempt.
        """
        before, self.results = self.results, None
        if before is not None and not before.was_worth_it:
            self._pause = _PAUSE
        if self._pause:
            self._pause -= 1
            return None
        self.results = SharedResults(shared, table)
        return self.results
