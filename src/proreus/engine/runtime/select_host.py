"""selectHost: the total scores of nodes, and the choice among the best.

A scheduler takes any of the best nodes, at random, so that load spreads over equal nodes
(``at_random``); the pods of a PodGroup take them in order (``in_order``). The recorded cases were
decided by kube-scheduler, which takes the root of a heap over the nodes; ``root_of_heap`` builds
the same heap, for replaying them.

In a cluster of equal nodes thousands share the highest total, and one pod changes the total of one
node. So ``CachedTotals`` keeps the set of the best from pod to pod, and drawing one of them does
not look at all nodes. ``AttemptTotals`` holds the totals of one pod only.

Example: of 5,000 empty nodes all have 300 points. ``_tied`` holds the 5,000 rows and a draw is one
random index. The pod's node drops to 298: it stays in ``_tied`` until a later draw meets it there
and swaps it out. A node whose pods have gone rises to 302: it is pushed to ``_higher``, and draws
look there first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from proreus.framework.verdicts import IntArray, Rows

INFEASIBLE = -1
"""The total of a node that cannot take the pod, lower than any that plugins can reach."""

_NOWHERE = -1
_MAX_HIGHER = 64


class AttemptTotals:
    """The total scores of some ``rows`` of a table, for one pod; ``totals`` in their order."""

    __slots__ = ("_size", "rows", "totals")

    def __init__(self, size: int, rows: Rows, totals: IntArray) -> None:
        self._size = size
        self.rows = rows
        self.totals = totals

    @property
    def scores(self) -> IntArray:
        """Total scores by row of the table, negative where the node cannot take the pod."""
        scores = np.full(self._size, INFEASIBLE, dtype=np.int64)
        scores[self.rows] = self.totals
        return scores

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        # ``rng.choice`` costs several times as much; with 53 random bits the bias is negligible.
        best = (self.totals == self.totals.max()).nonzero()[0]
        return int(self.rows[best[int(rng.random() * len(best))]])


class CachedTotals:
    """Total scores by row, negative where the node cannot take the pod.

    The best are found in two places. ``_tied``: the many rows that had ``_tied_score``, the highest
    total when they were collected. ``_higher``: a heap of the few that have risen above it since.

    Invariants, unless ``_count`` is 0 (not known): each row at ``_tied_score`` is among the first
    ``_count`` entries of ``_tied``, once, at ``_index_in_tied[row]``; each row above it is in
    ``_higher`` with its score. Both may also hold rows whose score has changed since; a draw
    removes the stale entries that it meets.
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
        # A row that falls below the tie is not searched for in ``_tied``: it stays as a stale entry
        # until a draw hits it, which keeps this constant-time for the usual case (a pod was bound).
        if not self._count or score < self._tied_score:
            return
        if score > self._tied_score:
            heappush(self._higher, (-score, row))
            # Many risen rows are a new tie (a Deployment was deleted): collecting it once is
            # cheaper than popping a long heap at every draw.
            if len(self._higher) > _MAX_HIGHER:
                self._invalidate()
        elif self._index_in_tied[row] == _NOWHERE:
            self._tied[self._count], self._index_in_tied[row] = row, self._count
            self._count += 1

    def draw(self, rng: random.Random) -> int:
        """Return one of the best rows, each as likely as any other."""
        if self._higher and (best := self._best_of_higher()):
            return best[int(rng.random() * len(best))]
        scores, tied = self.scores, self._tied
        # Each row at the tied score is in the list once, so hitting a stale entry, dropping it and
        # drawing again leaves all current ones equally likely.
        while True:
            if not self._count:
                self._collect_tied()
            place = int(rng.random() * self._count)
            row = int(tied[place])
            if scores[row] == self._tied_score:
                return row
            # Stale: the last entry takes its place. A ``put`` makes at most one entry stale, so the
            # removals cost constant time a put.
            self._count -= 1
            last = tied[self._count]
            tied[place], self._index_in_tied[last] = last, place
            self._index_in_tied[row] = _NOWHERE

    def _best_of_higher(self) -> list[int]:
        """Return the best of the rows above the tied ones, [] if none is left."""
        above, scores = self._higher, self.scores
        # An entry is stale if the row's score is not the one that it was pushed with.
        while above and scores[above[0][1]] != -above[0][0]:
            heappop(above)
        if len(above) < 2:
            return [row for _, row in above]
        highest, best = above[0][0], set[int]()
        while above and above[0][0] == highest:
            row = heappop(above)[1]
            if scores[row] == -highest:
                best.add(row)
        # Pushed again: all of them stay candidates for the next pod. The set has dropped duplicates
        # of a row that rose, fell and rose to the same score again.
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


NodeScores = AttemptTotals | CachedTotals

SelectHost = Callable[[NodeScores, Callable[[], Rows]], int]
"""``select(totals, order)`` returns the row to take; ``order()`` returns all rows in the order in
which kube-scheduler looks at them."""


def at_random(rng: random.Random) -> SelectHost:
    """Return a ``SelectHost`` that takes any of the best rows, each as likely as any other."""

    def select(totals: NodeScores, order: Callable[[], Rows]) -> int:
        return totals.draw(rng)

    return select


def in_order(rng: random.Random) -> SelectHost:
    """Return a ``SelectHost`` that takes the best row after the one taken before, then the first.

    The first is taken at random. For the pods of groups: on equal nodes, the groups that share one
    node share the others as well. Evicting a group as a whole then frees the same few nodes as the
    next one, instead of a little room on many; kube-scheduler leaves it to chance.
    """
    taken: int | None = None

    def select(totals: NodeScores, order: Callable[[], Rows]) -> int:
        nonlocal taken
        if taken is None:
            taken = totals.draw(rng)
        else:
            scores = totals.scores
            best = (scores == scores.max()).nonzero()[0]
            place = int(best.searchsorted(taken, side="right"))
            taken = int(best[place if place < len(best) else 0])
        return taken

    return select


def root_of_heap(totals: NodeScores, order: Callable[[], Rows]) -> int:
    """Return the root of the heap that kube-scheduler builds over feasible nodes in order."""
    rows: list[int] = order().tolist()
    scores = totals.scores
    heap = [(int(scores[row]), row) for row in rows if scores[row] >= 0]
    # ``heapq.heapify`` breaks ties by row number; Go's container/heap leaves equals where they are.
    for parent in range(len(heap) // 2 - 1, -1, -1):
        _sift_down(heap, parent)
    return heap[0][1]


def _sift_down(heap: list[tuple[int, int]], parent: int) -> None:
    """Sift an entry down below higher scores; equals stay in place, as in Go's ``heap.down``."""
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
