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
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from proreus.engine.runtime.equivalence_cache import EquivalenceClass
from proreus.framework.node_table import NodeTable
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray
from proreus.insight.decisions.scores import PluginScores, ScoreTable, compact
from proreus.insight.decisions.verdicts import Numbers, VerdictColumn, copied_numbers

_FEW_ROWS = 64
_MAX_CHANGES = 4096
"""After so many changed rows a new copy is made: reading an attempt costs one step for each."""
_WORTH_IT = 8
"""A copy that serves fewer attempts than this costs more than the best nodes of each."""
_PAUSE = 16
"""For how many attempts no copy is made after one that was not worth it."""


class _Column(NamedTuple):
    """Scores that differ by node: where they are among the columns."""

    place: int


_Plugin = tuple[int, _Column | int | None, _Column | int]
"""Weight, raw and weighted scores of a plugin; raw is None where it is the weighted score divided
by the weight: without NormalizeScore."""


class SharedResults:
    """The results of one equivalence class, from one copy of them on.

    ``attempts``: how many have been recorded; ``users``: how many of their records are kept.
    ``end``: that of the changes of the last one, to be passed to ``as_of`` later.
    """

    # Of the class it has nothing but the statuses: records are kept for longer than classes are.

    __slots__ = (
        "_changes",
        "_columns",
        "_numbers",
        "_plugins",
        "_statuses",
        "attempts",
        "copied_bytes",
        "end",
        "users",
    )

    def __init__(
        self,
        numbers: Numbers | None,
        statuses: Sequence[Status | None],
        columns: list[IntArray],
        plugins: dict[str, _Plugin],
    ) -> None:
        self._numbers = numbers
        self._statuses = statuses
        self._columns = columns
        """The totals, then scores of plugins."""
        self._plugins = plugins
        self._changes = array("q")
        self.attempts, self.users, self.end = 1, 0, 0
        self.copied_bytes = sum(one.nbytes for one in columns)
        if numbers is not None:
            self.copied_bytes += numbers.nbytes

    def add(self, changes: Iterable[int]) -> int:
        """Add an attempt with its changed rows; return the bytes that they take.

        Of each row: its number, that of its verdict, and its score in each column.
        """
        self._changes.extend(changes)
        grown = len(self._changes) - self.end
        self.end += grown
        self.attempts += 1
        return 8 * grown

    @property
    def is_full(self) -> bool:
        """Whether no more is added: so many rows have changed that a new copy is better."""
        return self.end > _MAX_CHANGES * self._width

    @property
    def _width(self) -> int:
        return 2 + len(self._columns)

    @property
    def all_bytes(self) -> int:
        """The memory of the copy and its changes."""
        return self.copied_bytes + 8 * self.end

    def as_of(self, end: int) -> tuple[VerdictColumn, ScoreTable]:
        """Return the results as they were when ``end`` was read, for the record of an attempt."""
        width = self._width
        changed = np.frombuffer(self._changes, dtype=np.int64)[:end].reshape(-1, width).copy()
        # Of a row that changed several times, the last values count.
        rows, first = np.unique(changed[::-1, 0], return_index=True)
        changed = changed[::-1][first]
        wide = [column.astype(np.int64) for column in self._columns]
        numbers = self._numbers
        if len(rows) and (numbers is not None or changed[:, 1].any()):
            size = len(wide[0])
            numbers = np.zeros(size, np.int32) if numbers is None else numbers.astype(np.int32)
            numbers[rows] = changed[:, 1]
        for place, column in enumerate(wide):
            column[rows] = changed[:, 2 + place]
        totals = wide[0]
        feasible = np.arange(len(totals)) if numbers is None else np.flatnonzero(numbers == 0)
        plugins = {}
        for name, (weight, raw, weighted) in self._plugins.items():
            final = weighted if isinstance(weighted, int) else wide[weighted.place][feasible]
            if raw is None:
                first_scores = final // weight
            else:
                first_scores = raw if isinstance(raw, int) else wide[raw.place][feasible]
            plugins[name] = PluginScores(weight, first_scores, final)
        table = ScoreTable(feasible, totals[feasible], plugins, len(feasible))
        return VerdictColumn(numbers, tuple(self._statuses)), table


class _LiveResults:
    """The results that a class of pods writes to, and the ones that were copied last."""

    __slots__ = (
        "_constants",
        "_nodes_generation",
        "_position",
        "_readers",
        "_totals",
        "_variable",
        "_verdicts",
        "results",
    )

    def __init__(self, shared: EquivalenceClass, table: NodeTable) -> None:
        scores = shared.scores
        self._verdicts, self._totals = shared.verdicts, scores.totals
        self._position = table.position
        live: list[IntArray] = [scores.totals.scores]
        plugins: dict[str, _Plugin] = {}
        for scorer in scores.scorers:
            raw, weighted = scorer.results.raw_scores, scorer.weighted_scores
            both: list[_Column | int | None] = []
            derived = not scorer.plugin.normalizes and not isinstance(weighted, int)
            for column in (None if derived else raw, weighted):
                if column is None or isinstance(column, int):
                    both.append(column)
                else:
                    both.append(_Column(len(live)))
                    live.append(column)
            assert both[1] is not None
            plugins[scorer.plugin.name] = (scorer.weight, both[0], both[1])
        # Read for each changed row of each attempt.
        self._readers = [column.item for column in live]
        # A raw score that all nodes share may change without any total changing.
        constant = [
            one.results for one in scores.scorers if isinstance(one.results.raw_scores, int)
        ]
        self._constants = [(one, one.raw_scores) for one in constant]
        self._variable = [
            (one, raw) for one, raw in self._constants if not one.depends_on_nodes_only
        ]
        self._nodes_generation = table.nodes_generation
        numbers, columns = copied_numbers(shared.verdicts), [compact(one) for one in live]
        # Statuses are only ever appended to this list: numbers of the past stay valid.
        self.results = SharedResults(numbers, shared.verdicts.statuses, columns, plugins)

    def advance(self, shared: EquivalenceClass, table: NodeTable) -> int:
        """Record the changes since the last attempt; return their bytes, or -1 if that is
        impossible.

        -1: the class has made its results anew.
        """
        if shared.verdicts is not self._verdicts or shared.scores.totals is not self._totals:
            return -1
        same_nodes = table.nodes_generation == self._nodes_generation
        for one, raw in self._variable if same_nodes else self._constants:
            if one.raw_scores != raw:
                return -1
        self._nodes_generation = table.nodes_generation
        results = self.results
        # The recorder has counted these results as given up.
        if not results.users:
            return -1
        changes = table.changes
        rows = changes.since(self._position, table.size)
        if rows is None or len(rows) > _FEW_ROWS or results.is_full:
            return -1
        self._position = changes.position
        ids = self._verdicts.ids
        values: list[int] = []
        for row in rows:
            values += (row, 0 if ids is None else ids.item(row))
            values += [read(row) for read in self._readers]
        return results.add(values)


class SharedResultsOf:
    """Whether and from where on a class's results are recorded as shared ones."""

    # Made for each class, of which there may be thousands: it refers to nothing that refers to it.

    __slots__ = ("_live", "_pause")

    def __init__(self) -> None:
        self._live: _LiveResults | None = None
        self._pause = 0

    def advance(
        self, shared: EquivalenceClass, table: NodeTable
    ) -> tuple[SharedResults, int] | None:
        """Record the changes since the last attempt.

        Returns the shared results and the bytes that the changes took. None: there are none that
        this attempt could advance, and its results have to be kept with the attempt.
        """
        live = self._live
        if live is not None:
            size_bytes = live.advance(shared, table)
            if size_bytes >= 0:
                return live.results, size_bytes
            if live.results.attempts < _WORTH_IT:
                self._pause = _PAUSE
            self._live = None
        if self._pause:
            self._pause -= 1
            return None
        self._live = _LiveResults(shared, table)
        return self._live.results, self._live.results.all_bytes
