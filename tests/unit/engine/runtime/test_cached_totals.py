"""CachedTotals: the set of the best rows follows the scores, whatever changes."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proreus.engine.runtime.select_host import CachedTotals

SCORES = st.integers(-1, 4)


@given(
    first=st.lists(SCORES, min_size=1, max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 7), SCORES, st.integers(0, 2)), max_size=40),
    seed=st.integers(0, 100),
)
def test_always_one_of_the_best(first, changes, seed) -> None:
    rng = random.Random(seed)
    expected, totals = list(first), CachedTotals(np.array(first))
    for place, score, draws in changes:
        row = place % len(first)
        expected[row] = score
        totals.put(row, score)
        for _ in range(draws):
            assert expected[totals.draw(rng)] == max(expected)
    assert totals.scores.tolist() == expected


def test_each_of_the_best_is_as_likely_as_the_others() -> None:
    rng, totals = random.Random(7), CachedTotals(np.full(5, 9))
    totals.draw(rng)
    for row, score in ((1, 3), (4, 0), (1, 9), (2, 8)):
        totals.put(row, score)
        totals.draw(rng)
    drawn = Counter(totals.draw(rng) for _ in range(3000))
    assert set(drawn) == {0, 1, 3}
    assert max(drawn.values()) < 1.2 * min(drawn.values())


def test_each_of_those_that_rose_above_the_others_is_as_likely() -> None:
    rng, totals = random.Random(7), CachedTotals(np.full(5, 3))
    totals.draw(rng)
    for row, score in ((1, 9), (4, 9), (2, 8), (1, 3), (1, 9), (4, 7), (3, 9)):
        totals.put(row, score)
    drawn = Counter(totals.draw(rng) for _ in range(2000))
    assert set(drawn) == {1, 3}
    assert max(drawn.values()) < 1.2 * min(drawn.values())


def test_a_whole_cluster_that_rises_is_found() -> None:
    rng, totals = random.Random(7), CachedTotals(np.full(500, 3))
    totals.draw(rng)
    for row in range(300):
        totals.put(row, 5)
    assert {totals.draw(rng) for _ in range(5000)} == set(range(300))


def test_a_node_that_a_pod_makes_better_costs_no_search(monkeypatch) -> None:
    """It takes the next pod, and falls back behind the others."""
    rng, totals = random.Random(7), CachedTotals(np.full(1000, 3))
    searches = []
    find = CachedTotals._collect_tied
    monkeypatch.setattr(
        CachedTotals, "_collect_tied", lambda self: (searches.append(1), find(self))
    )
    for _ in range(400):
        row = totals.draw(rng)
        totals.put(row, 4 if totals.scores[row] == 3 else 2)
    assert len(searches) == 1
