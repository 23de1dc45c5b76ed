"""The best rows are kept in step with the scores."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proreus.runtime.totals import Totals

SCORES = st.integers(-1, 4)


@given(
    first=st.lists(SCORES, min_size=1, max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 7), SCORES), max_size=40),
    seed=st.integers(0, 100),
)
def test_always_one_of_the_best(first, changes, seed) -> None:
    rng = random.Random(seed)
    expected, totals = list(first), Totals(np.array(first))
    for place, score in changes:
        row = place % len(first)
        expected[row] = score
        totals.put(row, score)
        assert expected[totals.draw(rng)] == max(expected)
    assert totals.scores.tolist() == expected


def test_each_of_the_best_is_as_likely_as_the_others() -> None:
    rng, totals = random.Random(7), Totals(np.full(5, 9))
    totals.draw(rng)
    for row, score in ((1, 3), (4, 0), (1, 9), (2, 8)):
        totals.put(row, score)
        totals.draw(rng)
    drawn = Counter(totals.draw(rng) for _ in range(3000))
    assert set(drawn) == {0, 1, 3}
    assert max(drawn.values()) < 1.2 * min(drawn.values())
