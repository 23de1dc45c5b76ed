"""The scores of one attempt: of every feasible node, or of the best with the totals of all.

Example: 3,000 nodes are feasible, and InterPodAffinity scored them for this pod alone. Kept are the
scores of the best 20 by plugin, and the totals of all 3,000.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from proreus.framework.verdicts import IntArray, Rows

BEST_NODES = 20
"""Of how many nodes the scores are kept where not all are."""


class PluginScores(Struct):
    """One plugin's scores, in the order of ``ScoreTable.rows``; an int if all are the same.

    ``raw``: what Score returned. ``weighted``: after NormalizeScore, times the ``weight``. HTTP
    extenders are in such columns too: what each adds to the total, with weight 1.
    """

    weight: int
    raw: IntArray | int
    weighted: IntArray | int

    def at(self, place: int) -> tuple[int, int]:
        """Return the raw and the weighted score of a node."""
        raw, weighted = self.raw, self.weighted
        return (
            int(raw[place]) if isinstance(raw, np.ndarray) else raw,
            int(weighted[place]) if isinstance(weighted, np.ndarray) else weighted,
        )


class ScoreTable(Struct):
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


def compact(scores: IntArray) -> IntArray:
    """Return a copy of scores in as few bytes a score as hold them."""
    lowest, highest = int(scores.min(initial=0)), int(scores.max(initial=0))
    for kind in (np.int16, np.int32):
        limits = np.iinfo(kind)
        if limits.min <= lowest and highest <= limits.max:
            smaller: IntArray = scores.astype(kind)
            return smaller
    return scores.copy()
