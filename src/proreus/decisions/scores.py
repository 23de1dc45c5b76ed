"""The scores of one attempt: of every feasible node, or of the best with the totals of all.

Example: 3,000 nodes are feasible, and InterPodAffinity scored them for this pod alone. Kept are the
scores of the best 20 by plugin, and the totals of all 3,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from proreus.framework.verdicts import IntArray, Rows

BEST_NODES = 20
"""Of how many nodes the scores are kept where not all are."""

_BYTES = 800
EXTENDERS = "extenders"
"""The name under which the scores of HTTP extenders are kept, as one sum."""
_FIRST = 256
"""Of thousands of equal nodes enough are usually among these."""


@dataclass(slots=True)
class PluginScores:
    """One plugin's scores, in the order of ``ScoreTable.rows``; an int if all are the same.

    ``raw``: what Score returned, None where that is not known (HTTP extenders). ``weighted``: after
    NormalizeScore, times the ``weight``.
    """

    weight: int
    raw: IntArray | int | None
    weighted: IntArray | int

    def at(self, place: int) -> tuple[int | None, int]:
        """Return the raw and the weighted score of a node."""
        raw, weighted = self.raw, self.weighted
        return (
            int(raw[place]) if isinstance(raw, np.ndarray) else raw,
            int(weighted[place]) if isinstance(weighted, np.ndarray) else weighted,
        )


@dataclass(slots=True)
class ScoreTable:
    """Scores by node and plugin. ``rows`` and ``totals``: shape (nodes,).

    ``feasible``: how many nodes were. Unless ``complete``, these are the best of them: no other has
    a higher total. ``all_totals``: those of all feasible nodes, by row; None: see ``totals``.
    """

    rows: Rows
    totals: IntArray
    plugins: Mapping[str, PluginScores]
    feasible: int
    complete: bool = True
    all_totals: IntArray | None = None

    def counts(self) -> dict[int, int]:
        """Return how many feasible nodes have each total, the highest first."""
        totals = self.totals if self.all_totals is None else self.all_totals
        values, counts = np.unique(totals, return_counts=True)
        return dict(zip(values.tolist()[::-1], counts.tolist()[::-1], strict=True))

    def order(self) -> Rows:
        """Return the places of the nodes from the highest total to the lowest, stable."""
        order: Rows = np.argsort(-self.totals, kind="stable")
        return order


class BestScores:
    """The scores of the best nodes, and the totals of all, as they are kept: few objects, no dicts.

    ``plugins``: names and weights. ``raw`` and ``weighted``: shape (plugins, nodes).
    """

    # What is kept by the thousand costs the garbage collector time: arrays of numbers do not.
    __slots__ = ("all_totals", "plugins", "raw", "rows", "totals", "weighted")

    def __init__(
        self,
        plugins: tuple[tuple[str, int], ...],
        rows: Rows,
        totals: IntArray,
        all_totals: IntArray,
    ) -> None:
        self.plugins = plugins
        self.rows = rows
        self.totals = totals
        self.all_totals = all_totals
        self.raw: IntArray = np.empty((len(plugins), len(rows)), dtype=np.int64)
        self.weighted: IntArray = np.empty((len(plugins), len(rows)), dtype=np.int64)

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        arrays = (self.rows, self.totals, self.all_totals, self.raw, self.weighted)
        return sum(array.nbytes for array in arrays) + _BYTES

    def table(self) -> ScoreTable:
        """Return the scores as a table."""
        plugins = {
            name: PluginScores(weight, None if name == EXTENDERS else raw, weighted)
            for (name, weight), raw, weighted in zip(
                self.plugins, self.raw, self.weighted, strict=True
            )
        }
        feasible = len(self.all_totals)
        complete = feasible == len(self.rows)
        return ScoreTable(self.rows, self.totals, plugins, feasible, complete, self.all_totals)


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


def compact(scores: IntArray) -> IntArray:
    """Return a copy of scores in as few bytes a score as hold them."""
    lowest, highest = int(scores.min(initial=0)), int(scores.max(initial=0))
    for kind in (np.int16, np.int32):
        limits = np.iinfo(kind)
        if limits.min <= lowest and highest <= limits.max:
            smaller: IntArray = scores.astype(kind)
            return smaller
    return scores.copy()
