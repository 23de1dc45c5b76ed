"""The results of Filter and Score in one attempt, or in several of one equivalence class.

Kept is a column of verdicts, and a column of scores for each plugin whose scores differ by node: a
byte a node, mostly. Plugins that give all nodes the same score, as most do, take one int. Totals,
and raw scores of plugins without NormalizeScore, are computed when they are asked for.

One pod after the other of a Deployment finds what the pod before found, except on the few rows
that changed since. So the columns are copied once, and each attempt adds the rows that changed.
``Results.as_of`` puts the results of any of these attempts together again.

What makes this exact: an ``EquivalenceClass`` and its ``ClassScores`` write only to rows that the
table reports as changed, or replace ``verdicts`` or ``totals`` by new objects (``refresh_filter``,
``ClassScores.refresh``). In the latter case a new copy has to be made, and also where a raw score
that all nodes share is another one.

Example: three pods of a class are bound to the rows 7, 2 and 7. ``LiveResults.advance`` adds the
new values of row 7 before the second one's choice, and those of row 2 before the third one's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from proreus.base.int64 import wrap
from proreus.engine.extenders.extender_chain import ExtenderAnswers
from proreus.engine.runtime.equivalence_cache import EquivalenceClass
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.prioritize_nodes import ComputedScores
from proreus.engine.runtime.profile import Profile
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray, Rows
from proreus.insight.decisions.scores import PluginScores, ScoreTable
from proreus.insight.decisions.verdicts import VerdictColumn, copied_numbers

_Scores = IntArray | int
_Plugin = tuple[str, int, _Scores | None, _Scores]
"""A plugin's name, weight, raw and weighted scores. Raw is None where it is the weighted score
divided by the weight: without NormalizeScore."""

_BYTES = 800
_FEW_ROWS = 64
_MAX_CHANGES = 4096
"""After so many changed rows a new copy is made: reading an attempt costs one step for each."""
_MAX_NORMALIZED = 100


class Shared(ABC):
    """Data that several records refer to, whose bytes are counted once."""

    def __init__(self) -> None:
        self.users = 0
        self._counted_bytes = 0

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """About how much memory it takes."""

    def retain(self) -> int:
        """Count another user; return how many bytes are in use now that were not before."""
        self.users += 1
        grown = self.size_bytes - self._counted_bytes
        self._counted_bytes += grown
        return grown

    def release(self) -> int:
        """Count a user less; return how many bytes nobody uses any more."""
        self.users -= 1
        if self.users:
            return 0
        freed, self._counted_bytes = self._counted_bytes, 0
        return freed


class Results(Shared):
    """The results of one attempt, and of the attempts that followed it in its class.

    ``verdicts``: of the first one. ``plugins``: None if nothing was scored. An array has a score
    for each feasible row, or for each row of the table. ``rows``: the feasible ones; None: all that
    passed Filter.
    """

    def __init__(
        self,
        verdicts: VerdictColumn,
        plugins: Sequence[_Plugin] | None = None,
        rows: Rows | None = None,
    ) -> None:
        super().__init__()
        self.verdicts = verdicts
        self._plugins = plugins
        self._rows = rows
        self._changes = array("q")
        """Of each changed row: its number, that of its verdict, and its score in each column."""
        columns = _columns(plugins or ())
        self._width = 2 + len(columns)
        self._copied_bytes = _BYTES + verdicts.size_bytes + sum(one.nbytes for one in columns)

    @property
    def end(self) -> int:
        """The end of the last attempt's changes, to be passed to ``as_of`` later."""
        return len(self._changes)

    @property
    def size_bytes(self) -> int:
        """About how much memory they take."""
        return self._copied_bytes + 8 * self.end

    @property
    def takes_more(self) -> bool:
        """Whether a record uses them, and so few rows have changed that no new copy is better."""
        return self.users > 0 and self.end <= _MAX_CHANGES * self._width

    def add(self, changes: Iterable[int]) -> None:
        """Add an attempt with its changed rows."""
        self._changes.extend(changes)

    def as_of(self, end: int, nodes: int) -> tuple[VerdictColumn, ScoreTable | None]:
        """Return the results of so many nodes as they were when ``end`` was read, for the record of
        an attempt.
        """
        changed = np.frombuffer(self._changes, dtype=np.int64)[:end].reshape(-1, self._width)
        # Of a row that changed several times, the last values count.
        rows, first = np.unique(changed[::-1, 0], return_index=True)
        columns = iter(changed[::-1][first].T[1:])
        verdicts = self.verdicts.changed(rows, next(columns), nodes)
        if self._plugins is None:
            return verdicts, None
        plugins = [
            (name, weight, _changed(raw, rows, columns), _changed(weighted, rows, columns))
            for name, weight, raw, weighted in self._plugins
        ]
        return verdicts, _table(
            plugins, verdicts.passed_rows(nodes) if self._rows is None else self._rows
        )


def _changed(scores: Any, rows: Rows, columns: Iterator[IntArray]) -> Any:
    """Return scores with the values of the next column in some rows."""
    if not isinstance(scores, np.ndarray):
        return scores
    wide = scores.astype(np.int64)
    wide[rows] = next(columns)
    return wide


def _table(plugins: Iterable[_Plugin], rows: Rows) -> ScoreTable:
    scores = {}
    totals: IntArray = np.zeros(len(rows), dtype=np.int64)
    for name, weight, raw, weighted in plugins:
        weighted = _of_rows(weighted, rows)
        totals += weighted
        raw = weighted // weight if raw is None else _of_rows(raw, rows)
        scores[name] = PluginScores(weight, raw, weighted)
    return ScoreTable(rows, totals, scores)


def _of_rows(scores: _Scores, rows: Rows) -> _Scores:
    """Return scores of the rows; a longer column has one for each row of the table."""
    return scores if isinstance(scores, int) or len(scores) == len(rows) else scores[rows]


def _columns(plugins: Iterable[_Plugin]) -> list[IntArray]:
    return [one for _, _, *both in plugins for one in both if isinstance(one, np.ndarray)]


class LiveResults:
    """The results that an equivalence class writes to, and the copy of them that records share."""

    def __init__(self, profile: Profile, found: FeasibleNodes) -> None:
        shared = found.equivalence_class
        assert shared is not None
        self._verdicts, self._totals = shared.verdicts, shared.scores.totals
        self._position = profile.table.position
        plugins = _scores(profile, found, ComputedScores())
        # Read for each changed row of each attempt.
        self._readers = [column.item for column in _columns(plugins)]
        # A raw score that all nodes share may change without any total changing.
        self._constants = [
            (one.results, one.results.raw_scores)
            for one in shared.scores.scorers
            if isinstance(one.results.raw_scores, int)
        ]
        # Statuses are only ever appended to this list: numbers of the past stay valid.
        verdicts = VerdictColumn(copied_numbers(shared.verdicts), shared.verdicts.statuses)
        self.results = Results(verdicts, _copied(plugins))

    def advance(self, shared: EquivalenceClass, table: NodeTable) -> bool:
        """Add the changes since the last attempt; return False if the class has made its results
        anew.
        """
        if shared.verdicts is not self._verdicts or shared.scores.totals is not self._totals:
            return False
        if any(one.raw_scores != raw for one, raw in self._constants):
            return False
        changes = table.changes
        rows = changes.since(self._position, table.size)
        if rows is None or len(rows) > _FEW_ROWS or not self.results.takes_more:
            return False
        self._position = changes.position
        ids = self._verdicts.ids
        values: list[int] = []
        for row in rows:
            values += (row, 0 if ids is None else ids.item(row))
            values += [read(row) for read in self._readers]
        self.results.add(values)
        return True


def own_results(
    profile: Profile,
    found: FeasibleNodes,
    computed: ComputedScores | None,
    answers: ExtenderAnswers | None,
) -> Results:
    """Return a copy of the results of an attempt that shares them with no other.

    ``computed``: None if nothing was scored. ``answers``: of HTTP extenders, whose scores may be
    negative; None: no extender took part.
    """
    verdicts = VerdictColumn.of(found.verdicts, found.evaluated)
    if computed is None:
        return Results(verdicts)
    plugins = _copied(_scores(profile, found, computed))
    if answers is None:
        return Results(verdicts, plugins)
    names = [profile.table.infos[row].name for row in found.rows.tolist()]
    for url, by_name in answers.scores:
        added = np.array([wrap(by_name.get(name, 0)) for name in names], dtype=np.int64)
        plugins.append((url, 1, None, _smaller(added)))
    return Results(verdicts, plugins, found.rows.copy())


def _scores(profile: Profile, found: FeasibleNodes, computed: ComputedScores) -> list[_Plugin]:
    """Return the unchanged scores of each plugin, from the class or computed for this pod."""
    shared, fresh = found.equivalence_class, computed.weighted
    scores: dict[str, _Plugin] = {}
    for scorer in () if shared is None else shared.scores.scorers:
        name, raw = scorer.plugin.name, scorer.results.raw_scores
        # NormalizeScore may have run again, over fewer nodes than the class has.
        weighted = fresh.get(name, scorer.weighted_scores)
        scores[name] = _plugin(scorer.plugin.normalizes, name, scorer.weight, raw, weighted)
    for plugin in profile.score if fresh else ():
        name = plugin.name
        if name in fresh and name not in scores:
            raw, weight = computed.raw[name], profile.weights[name]
            scores[name] = _plugin(plugin.normalizes, name, weight, raw, fresh[name])
    return list(scores.values())


def _plugin(normalizes: bool, name: str, weight: int, raw: _Scores, weighted: _Scores) -> _Plugin:
    derived = not normalizes and not isinstance(weighted, int)
    return name, weight, None if derived else raw, weighted


def _copied(plugins: Iterable[_Plugin]) -> list[_Plugin]:
    # Scores of feasible rows have been checked; the values of others do not matter.
    return [
        (name, weight, _smaller(raw), _smaller(weighted, _MAX_NORMALIZED * weight))
        for name, weight, raw, weighted in plugins
    ]


def _smaller(scores: Any, highest: int = -1) -> Any:
    """Return a copy with as few bytes a score as possible, of scores from 0 to ``highest`` or of
    all.
    """
    if not isinstance(scores, np.ndarray):
        return scores
    if highest < 0:
        highest = min(int(scores.min(initial=0)), -1 - int(scores.max(initial=0)))
    return scores.astype(np.min_scalar_type(highest))
