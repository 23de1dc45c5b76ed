"""The total score of every node, and which nodes have the highest.

In a cluster of equals thousands of nodes share the first place, and one pod changes the score of
one node. So ``Totals`` keep the best from pod to pod: drawing one of them does not look at all
nodes. What holds for one pod only are ``PassingTotals``.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from proreus.framework.verdicts import IntArray, Rows

INFEASIBLE = -1
"""What stands in ``Totals.scores`` where a node cannot take the pod."""

_NOWHERE = -1
_MOST_ABOVE = 64


class Ranking(Protocol):
    """What the choice of a node looks at."""

    @property
    def scores(self) -> IntArray:
        """Total scores by row of the table, negative where the node cannot take the pod."""
        ...

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        ...


class PassingTotals:
    """The total scores of some rows of a table, for one pod: nothing is kept for the next one."""

    __slots__ = ("_rows", "_size", "_totals")

    def __init__(self, size: int, rows: Rows, totals: IntArray) -> None:
        self._size = size
        self._rows = rows
        self._totals = totals

    @property
    def scores(self) -> IntArray:
        """Total scores by row of the table, negative where the node cannot take the pod."""
        scores = np.full(self._size, INFEASIBLE, dtype=np.int64)
        scores[self._rows] = self._totals
        return scores

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        best = (self._totals == self._totals.max()).nonzero()[0]
        return int(self._rows[best[int(rng.random() * len(best))]])


class Totals:
    """Total scores by row, negative where the node cannot take the pod.

    The best are found in two places. ``_crowd``: the many rows that share ``_level``. ``_above``:
    the few that rose beyond it since, as a heap; pods are drawn to these, which mostly ends it.

    Invariants, unless ``_count`` is 0 (not known): each row at ``_level`` is among the first
    ``_count`` entries of ``_crowd``, once, where ``_place`` says; each row with more is in
    ``_above`` with its score. Rows that have changed since may still be in both, as they were: they
    are thrown out when they are come across.
    """

    __slots__ = ("_above", "_count", "_crowd", "_level", "_place", "scores")

    def __init__(self, scores: IntArray) -> None:
        self.scores = scores
        self._crowd: Rows = np.empty(len(scores), dtype=np.intp)
        self._place: Rows = np.full(len(scores), _NOWHERE, dtype=np.intp)
        self._count = 0
        self._level = INFEASIBLE
        self._above: list[tuple[int, int]] = []

    def put(self, row: int, score: int) -> None:
        """Change the score of a row."""
        self.scores[row] = score
        if not self._count or score < self._level:
            return
        if score > self._level:
            heappush(self._above, (-score, row))
            if len(self._above) > _MOST_ABOVE:
                self._forget()
        elif self._place[row] == _NOWHERE:
            self._crowd[self._count], self._place[row] = row, self._count
            self._count += 1

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        if self._above and (best := self._best_above()):
            return best[int(rng.random() * len(best))]
        scores, crowd = self.scores, self._crowd
        while True:
            if not self._count:
                self._find()
            place = int(rng.random() * self._count)
            row = int(crowd[place])
            if scores[row] == self._level:
                return row
            self._count -= 1
            last = crowd[self._count]
            crowd[place], self._place[last] = last, place
            self._place[row] = _NOWHERE

    def _best_above(self) -> list[int]:
        """Return the best of the rows above the crowd, if there still are any."""
        above, scores = self._above, self.scores
        while above and scores[above[0][1]] != -above[0][0]:
            heappop(above)
        if len(above) < 2:
            return [row for _, row in above]
        highest, best = above[0][0], set[int]()
        while above and above[0][0] == highest:
            row = heappop(above)[1]
            if scores[row] == -highest:
                best.add(row)
        for row in best:
            heappush(above, (highest, row))
        return sorted(best)

    def _find(self) -> None:
        self._level = int(self.scores.max())
        rows = np.flatnonzero(self.scores == self._level)
        self._count = len(rows)
        self._crowd[: self._count] = rows
        self._place[rows] = np.arange(self._count)

    def _forget(self) -> None:
        self._place[self._crowd[: self._count]] = _NOWHERE
        self._count = 0
        self._above.clear()
