"""The scores that are kept with one attempt alone, since no other attempt has the same.

    keep_scores ─► _whole_columns   of all nodes, a byte a score and plugin, if few plugins differ
                ─► _best_nodes      else of the best 20 nodes, and the totals of all

A plugin that gives all nodes the same score, as most do, takes one int. So in a usual attempt two
plugins have columns (NodeResourcesFit and NodeResourcesBalancedAllocation), and to copy these
takes a tenth of the time that looking for the best nodes takes. What can be computed from what is
kept (totals; raw scores of plugins without NormalizeScore) is computed when it is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proreus.base.int64 import wrap
from proreus.engine.extenders.extender_answers import ExtenderAnswers
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.prioritize_nodes import ComputedScores
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.select_host import AttemptTotals, NodeScores
from proreus.framework.verdicts import IntArray, Rows
from proreus.insight.decisions.scores import BEST_NODES, PluginScores, ScoreTable, compact
from proreus.insight.decisions.verdicts import VerdictColumn

_Scores = IntArray | int
_Kept = tuple[str, int, _Scores | None, _Scores]
"""A plugin's name, weight, raw and weighted scores. Raw is None where it is the weighted score
divided by the weight: without NormalizeScore."""

_BYTES = 800
_MAX_COLUMN_BYTES = 5
"""The most bytes of whole columns for each node."""
_MAX_NORMALIZED = 100
_FIRST = 256
"""Of thousands of equal nodes enough are usually among these."""
_MAX_UINT8 = np.iinfo(np.uint8).max
_MAX_INT16 = np.iinfo(np.int16).max


class KeptScores:
    """The scores of one attempt, as they are kept: few objects, and numbers of few bytes.

    ``rows``: the nodes that ``plugins`` have scores of; None: all feasible ones, or all there are.
    ``all_totals``: of all feasible nodes; None: the sums of the plugins' scores.
    """

    # What is kept by the thousand costs the garbage collector time: arrays of numbers do not.
    __slots__ = ("_all_totals", "_plugins", "_rows")

    def __init__(
        self,
        plugins: tuple[_Kept, ...],
        rows: Rows | None,
        all_totals: IntArray | None,
    ) -> None:
        self._plugins = plugins
        self._rows = rows
        self._all_totals = all_totals

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        arrays: list[_Scores | None] = [self._rows, self._all_totals]
        for _, _, raw, weighted in self._plugins:
            arrays += [raw, weighted]
        return _BYTES + sum(
            0 if one is None or isinstance(one, int) else one.nbytes for one in arrays
        )

    def table(self, verdicts: VerdictColumn | None, nodes: int) -> ScoreTable:
        """Return the scores as a table. ``verdicts``: of the same attempt, over so many nodes."""
        rows = self._rows
        if rows is None:
            rows = np.arange(nodes) if verdicts is None else verdicts.passed_rows(nodes)
        plugins = {}
        totals: IntArray = np.zeros(len(rows), dtype=np.int64)
        for name, weight, raw, weighted in self._plugins:
            weighted = _of_rows(weighted, rows)
            totals += weighted
            raw = weighted // weight if raw is None else _of_rows(raw, rows)
            plugins[name] = PluginScores(weight, raw, weighted)
        if self._all_totals is None:
            return ScoreTable(rows, totals, plugins, len(rows))
        all_totals = self._all_totals
        feasible = len(all_totals)
        complete = feasible == len(rows)
        return ScoreTable(rows, totals, plugins, feasible, complete, all_totals)


def _of_rows(scores: _Scores, rows: Rows) -> _Scores:
    """Return scores of the rows; a longer column has one for each row of the table."""
    if isinstance(scores, int):
        return scores
    wide: IntArray = scores.astype(np.int64)
    return wide if len(wide) == len(rows) else wide[rows]


def keep_scores(
    profile: Profile,
    found: FeasibleNodes,
    totals: NodeScores,
    computed: ComputedScores,
    row: int,
    answers: ExtenderAnswers | None,
) -> KeptScores:
    """Return a copy of an attempt's scores, that of the chosen ``row`` among them.

    ``answers``: of HTTP extenders, whose scores may be negative; None: no extender took part.
    """
    columns = None if answers is not None else _whole_columns(profile, found, computed)
    if columns is not None:
        return KeptScores(columns, None, None)
    return _best_nodes(profile, found, totals, computed, row, answers)


def _scores(profile: Profile, found: FeasibleNodes, computed: ComputedScores) -> list[_Kept]:
    """Return name, weight, raw and weighted scores of each plugin; see ``_Kept``.

    An array has a score for each feasible row, or for each row of the table.
    """
    # A loop for each case, without calls: for a pod of a class of its own this is most of the cost.
    shared, fresh = found.equivalence_class, computed.weighted
    scores: list[_Kept] = []
    cached: set[str] = set()
    for scorer in () if shared is None else shared.scores.scorers:
        plugin, weighted = scorer.plugin, scorer.weighted_scores
        name = plugin.name
        if fresh:
            cached.add(name)
            # NormalizeScore ran again, over fewer nodes than the class has.
            weighted = fresh.get(name, weighted)
        derived = not plugin.normalizes and not isinstance(weighted, int)
        raw = None if derived else scorer.results.raw_scores
        scores.append((name, scorer.weight, raw, weighted))
    if fresh:
        for plugin in profile.score:
            name = plugin.name
            if name in fresh and name not in cached:
                weighted = fresh[name]
                derived = not plugin.normalizes and not isinstance(weighted, int)
                raw = None if derived else computed.raw[name]
                scores.append((name, profile.weights[name], raw, weighted))
    return scores


def _whole_columns(
    profile: Profile, found: FeasibleNodes, computed: ComputedScores
) -> tuple[_Kept, ...] | None:
    """Return the scores of all feasible nodes; None if that takes too much memory."""
    kept: list[_Kept] = []
    left = _MAX_COLUMN_BYTES
    for scores in _scores(profile, found, computed):
        name, weight, raw, weighted = scores
        if isinstance(weighted, int):
            kept.append(scores)
            continue
        # Scores of feasible rows have been checked; what others have there does not matter.
        weighted = weighted.astype(_smallest(_MAX_NORMALIZED * weight))
        left -= weighted.itemsize
        if raw is not None and not isinstance(raw, int) and left > 0:
            raw = compact(raw)
            left -= raw.itemsize
        if left < 0:
            return None
        kept.append((name, weight, raw, weighted))
    return tuple(kept)


def _smallest(highest: int) -> type[np.integer[Any]]:
    """Return the smallest type that holds scores from 0 to ``highest``."""
    if highest <= _MAX_UINT8:
        return np.uint8
    return np.int16 if highest <= _MAX_INT16 else np.int64


def _best_nodes(
    profile: Profile,
    found: FeasibleNodes,
    totals: NodeScores,
    computed: ComputedScores,
    row: int,
    answers: ExtenderAnswers | None,
) -> KeptScores:
    rows: Rows | None = None
    if isinstance(totals, AttemptTotals):
        rows, sums = totals.rows, totals.totals
        # After extenders ``totals`` are ranks.
        if answers is not None and answers.totals is not None:
            sums = answers.totals
        place = int(rows.searchsorted(row))
    else:
        sums, place = totals.scores, row
        if not found.all_nodes_feasible:
            rows = found.rows
            sums, place = sums[rows], int(rows.searchsorted(row))
    # Looking for the lowest total takes as long as copying: only extenders may make one negative.
    small = answers is None and int(sums[place]) <= _MAX_INT16
    # All that follows reads the copy: it is a quarter of the size, and stays in the cache.
    all_totals: IntArray = sums.astype(np.int16) if small else compact(sums)
    places = best_places(all_totals, place)
    best = places if rows is None else rows[places]
    feasible = len(sums)

    def of_best(scores: _Scores) -> _Scores:
        if isinstance(scores, int):
            return scores
        return scores[places] if len(scores) == feasible else scores[best]

    kept: list[_Kept] = [
        (name, weight, None if raw is None else of_best(raw), of_best(weighted))
        for name, weight, raw, weighted in _scores(profile, found, computed)
    ]
    if answers is not None:
        names = [profile.table.infos[row].name for row in best.tolist()]
        for url, by_name in answers.scores:
            added = np.array([wrap(by_name.get(name, 0)) for name in names], dtype=np.int64)
            kept.append((url, 1, None, added))
    return KeptScores(tuple(kept), best, all_totals)


def best_places(totals: IntArray, chosen: int) -> Rows:
    """Return where the best of all feasible nodes are, ``chosen`` among them.

    ``chosen``: the place of one that has the highest total.
    """
    if len(totals) <= BEST_NODES:
        return np.arange(len(totals))
    best = _first_with(totals, int(totals[chosen]), BEST_NODES)
    if len(best) < BEST_NODES:
        # A partition takes several times as long: NumPy has vector instructions for sorting.
        threshold = int(np.sort(totals)[-BEST_NODES])
        better = (totals > threshold).nonzero()[0]
        best = np.append(better, _first_with(totals, threshold, BEST_NODES - len(better)))
    if chosen not in best:
        # Of equals any may stand for the others.
        best[-1] = chosen
    return best


def _first_with(totals: IntArray, total: int, count: int) -> Rows:
    """Return the first places that have a total, at most ``count``."""
    first = (totals[:_FIRST] == total).nonzero()[0]
    if len(first) < count:
        first = (totals == total).nonzero()[0]
    found: Rows = first[:count]
    return found
