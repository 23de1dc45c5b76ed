"""The scores of the feasible nodes of one attempt, by plugin."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from proreus.framework.verdicts import IntArray, Rows


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
    """Scores of the feasible nodes by plugin. ``rows`` and ``totals``: shape (nodes,)."""

    rows: Rows
    totals: IntArray
    plugins: Mapping[str, PluginScores]

    def counts(self) -> dict[int, int]:
        """Return how many feasible nodes have each total, the highest first."""
        values, counts = np.unique(self.totals, return_counts=True)
        return dict(zip(values.tolist()[::-1], counts.tolist()[::-1], strict=True))

    def order(self) -> Rows:
        """Return the places of the nodes from the highest total to the lowest, stable."""
        order: Rows = np.argsort(-self.totals, kind="stable")
        return order
