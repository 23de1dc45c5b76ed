"""Which of the best nodes is taken (core.md 6.6)."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from proreus.engine.runtime.select_host import CachedTotals, at_random, in_order, root_of_heap


def rows(size: int):
    return lambda: np.arange(size)


@pytest.mark.parametrize(
    ("totals", "chosen"),
    [
        ([5], 0),
        ([5, 5, 5], 0),
        ([1, 9, 9], 1),
        ([1, 1, 9, 9], 3),
        ([-1, 3, -1, 7], 3),
        ([-1, 0, 0, -1], 1),
        ([9, -1, 9], 0),
    ],
)
def test_top_of_heap(totals, chosen) -> None:
    assert root_of_heap(CachedTotals(np.array(totals)), rows(len(totals))) == chosen


def test_top_of_heap_looks_in_the_order_of_the_search() -> None:
    assert root_of_heap(CachedTotals(np.array([5, 5, 5])), lambda: np.array([2, 0, 1])) == 2


def test_at_random_takes_every_best_node_and_no_other() -> None:
    select = at_random(random.Random(1))
    totals = CachedTotals(np.array([7, -1, 9, 9, 3, 9]))
    chosen = Counter(select(totals, rows(6)) for _ in range(600))
    assert set(chosen) == {2, 3, 5}
    assert min(chosen.values()) > 150


def test_at_random_can_be_repeated() -> None:
    totals = CachedTotals(np.zeros(100, dtype=np.int64))
    draws = [at_random(random.Random(seed))(totals, rows(100)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_in_order_takes_the_best_after_the_one_before() -> None:
    """Groups of two on six equal nodes: each pair of nodes has the same groups."""
    select = in_order(random.Random(5))
    totals = CachedTotals(np.full(6, 9))
    taken = []
    for _ in range(18):
        row = select(totals, rows(6))
        totals.put(row, int(totals.scores[row]) - 1)
        taken.append(row)
    first = taken[0]
    assert taken == [(first + number) % 6 for number in range(18)]


def test_in_order_takes_none_but_the_best() -> None:
    select = in_order(random.Random(5))
    totals = CachedTotals(np.array([7, -1, 9, 9, 3, 9]))
    first = select(totals, rows(6))
    assert sorted([first, select(totals, rows(6)), select(totals, rows(6))]) == [2, 3, 5]
    totals.put(4, 12)
    assert select(totals, rows(6)) == 4
    assert select(totals, rows(6)) == 4
