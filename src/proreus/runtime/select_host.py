"""selectHost: the total score of every node, and which of the best nodes is taken.

A scheduler takes any of the best, at random, so that load spreads over equals (``at_random``).
Recorded answers were made by kube-scheduler, whose choice is what a heap over the nodes happens to
have on top; offline scripts make it the same way (``top_of_heap``).

In a cluster of equals thousands of nodes share the highest total, and one pod changes the total of
one node. So ``CachedTotals`` keep the set of the best from pod to pod, and drawing one of them does
not look at all nodes. What holds for one pod only are ``AttemptTotals``.

Example: of 5,000 empty nodes all have 300 points. ``_tied`` holds the 5,000 rows and a draw is one
random index. The pod's node drops to 298: it stays in ``_tied`` until a later draw meets it there
and swaps it out. A node whose pods have gone rises to 302: it is pushed to ``_higher``, and draws
look there first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from proreus.framework.verdicts import IntArray, Rows

INFEASIBLE = -1
"""What stands in ``CachedTotals.scores`` where a node cannot take the pod."""

_NOWHERE = -1
_MAX_HIGHER = 64


class NodeScores(Protocol):
    """What the choice of a node looks at."""

    @property
    def scores(self) -> IntArray:
        """Total scores by row of the table, negative where the node cannot take the pod."""
        ...

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        ...


class AttemptTotals:
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


class CachedTotals:
    """Total scores by row, negative where the node cannot take the pod.

    The best are found in two places. ``_tied``: the many rows that share ``_tied_score``.
    ``_higher``: the few that rose beyond it since, as a heap; pods are drawn to these, which mostly
    ends it.

    Invariants, unless ``_count`` is 0 (not known): each row at ``_tied_score`` is among the first
    ``_count`` entries of ``_tied``, once, where ``_index_in_tied`` says; each row with more is in
    ``_higher`` with its score. Rows that have changed since may still be in both, as they were:
    they are thrown out when they are come across.
    """

    __slots__ = ("_count", "_higher", "_index_in_tied", "_tied", "_tied_score", "scores")

    def __init__(self, scores: IntArray) -> None:
        self.scores = scores
        self._tied: Rows = np.empty(len(scores), dtype=np.intp)
        self._index_in_tied: Rows = np.full(len(scores), _NOWHERE, dtype=np.intp)
        self._count = 0
        self._tied_score = INFEASIBLE
        self._higher: list[tuple[int, int]] = []

    def put(self, row: int, score: int) -> None:
        """Change the score of a row."""
        self.scores[row] = score
        if not self._count or score < self._tied_score:
            return
        if score > self._tied_score:
            heappush(self._higher, (-score, row))
            if len(self._higher) > _MAX_HIGHER:
                self._invalidate()
        elif self._index_in_tied[row] == _NOWHERE:
            self._tied[self._count], self._index_in_tied[row] = row, self._count
            self._count += 1

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        if self._higher and (best := self._best_of_higher()):
            return best[int(rng.random() * len(best))]
        scores, crowd = self.scores, self._tied
        while True:
            if not self._count:
                self._collect_tied()
            place = int(rng.random() * self._count)
            row = int(crowd[place])
            if scores[row] == self._tied_score:
                return row
            self._count -= 1
            last = crowd[self._count]
            crowd[place], self._index_in_tied[last] = last, place
            self._index_in_tied[row] = _NOWHERE

    def _best_of_higher(self) -> list[int]:
        """Return the best of the rows above the crowd, if there still are any."""
        above, scores = self._higher, self.scores
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

    def _collect_tied(self) -> None:
        self._tied_score = int(self.scores.max())
        rows = np.flatnonzero(self.scores == self._tied_score)
        self._count = len(rows)
        self._tied[: self._count] = rows
        self._index_in_tied[rows] = np.arange(self._count)

    def _invalidate(self) -> None:
        self._index_in_tied[self._tied[: self._count]] = _NOWHERE
        self._count = 0
        self._higher.clear()


SelectHost = Callable[[NodeScores, Callable[[], Rows]], int]
"""``select(ranking, order)``: the row to take; ``order()`` returns all rows in the order in which
kube-scheduler looks at them."""


def at_random(rng: random.Random) -> SelectHost:
    """Return the choice of any of the best, by a source of chance that can be seeded."""

    def select(ranking: NodeScores, order: Callable[[], Rows]) -> int:
        return ranking.draw(rng)

    return select


def top_of_heap(ranking: NodeScores, order: Callable[[], Rows]) -> int:
    """Return the root of the heap that kube-scheduler builds over feasible nodes in order."""
    rows: list[int] = order().tolist()
    scores = ranking.scores
    heap = [(int(scores[row]), row) for row in rows if scores[row] >= 0]
    for parent in range(len(heap) // 2 - 1, -1, -1):
        _sift_down(heap, parent)
    return heap[0][1]


def _sift_down(heap: list[tuple[int, int]], parent: int) -> None:
    """Let an entry sink below better ones; equals stay where they are, as in Go's heap."""
    while True:
        child = 2 * parent + 1
        if child >= len(heap):
            return
        if child + 1 < len(heap) and heap[child + 1][0] > heap[child][0]:
            child += 1
        if heap[child][0] <= heap[parent][0]:
            return
        heap[parent], heap[child] = heap[child], heap[parent]
        parent = child
