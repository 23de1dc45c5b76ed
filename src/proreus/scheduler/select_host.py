"""Which of the best nodes is taken.

A scheduler takes any, at random, so that load spreads over equals. Recorded answers were made by
kube-scheduler, whose choice is what a heap over the nodes happens to have on top; offline scripts
make it the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from proreus.framework.verdicts import Rows
from proreus.runtime.totals import Ranking

SelectHost = Callable[[Ranking, Callable[[], Rows]], int]
"""``select(ranking, order)``: the row to take; ``order()`` returns all rows in the order in which
kube-scheduler looks at them."""


def at_random(rng: random.Random) -> SelectHost:
    """Return the choice of any of the best, by a source of chance that can be seeded."""

    def select(ranking: Ranking, order: Callable[[], Rows]) -> int:
        return ranking.draw(rng)

    return select


def top_of_heap(ranking: Ranking, order: Callable[[], Rows]) -> int:
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
