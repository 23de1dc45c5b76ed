"""The total score of every node, and which nodes have the highest.

In a cluster of equals thousands of nodes share the first place, and one pod changes the score of
one node. So the best are kept from pod to pod: drawing one of them does not look at all nodes.
"""

from __future__ import annotations

import random

import numpy as np

from proreus.framework.verdicts import IntArray, Rows

INFEASIBLE = -1
"""What stands in ``Totals.scores`` where a node cannot take the pod."""


class Totals:
    """Total scores by row, negative where the node cannot take the pod.

    Invariant: where ``_first`` is known, each row whose score is ``_best`` is among its first
    ``_count`` entries, once; no row has more. Other rows may be among them too: they lost their
    place since, and are thrown out when they are drawn.
    """

    __slots__ = ("_best", "_count", "_first", "scores")

    def __init__(self, scores: IntArray) -> None:
        self.scores = scores
        self._first: Rows | None = None
        self._count = 0
        self._best = INFEASIBLE

    def put(self, row: int, score: int) -> None:
        """Change the score of a row."""
        if self._first is not None and score >= self._best and self.scores[row] != score:
            if score > self._best:
                self._best, self._count = score, 1
                self._first = np.array([row], dtype=np.intp)
            else:
                # It may be among the first from earlier times, or not: count them anew.
                self._first = None
        self.scores[row] = score

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        scores = self.scores
        while True:
            if self._first is None or not self._count:
                self._best = int(scores.max())
                self._first = np.flatnonzero(scores == self._best)
                self._count = len(self._first)
            place = rng.randrange(self._count) if self._count > 1 else 0
            row = int(self._first[place])
            if scores[row] == self._best:
                return row
            self._count -= 1
            self._first[place] = self._first[self._count]
