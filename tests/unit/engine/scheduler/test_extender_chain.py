"""How scores of extenders and plugins are added, and how equal nodes are ordered at random."""

import random
from collections import Counter

import numpy as np
import pytest

from proreus.base.errors import ExtenderError
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.extenders.extender_chain import ExtenderAnswers, ExtenderChain
from proreus.engine.extenders.extender_wire import ExtenderFilterResult
from proreus.engine.runtime.find_nodes import FeasibleNodes, PodSignatures
from proreus.engine.runtime.select_host import CachedTotals, at_random, root_of_heap
from proreus.framework.verdicts import Verdicts
from proreus.testing.builders import make_node, make_pod, make_table

POD = make_pod()
TABLE = make_table([make_node(name) for name in "abcd"], [])
ALL = np.arange(4)


class Fixed:
    """Returns the scores that it was made with."""

    url = "http://fixed"
    filter_verb = "x"

    def __init__(self, scores):
        self._scores = scores
        self.prioritize_verb = "" if scores is None else "x"

    async def prioritize(self, pod, nodes):
        if isinstance(self._scores, Exception):
            raise self._scores
        return self._scores


@pytest.fixture
def prioritize():
    async def run(ranking, *scores, rows=ALL, seed=0):
        chain = ExtenderChain((), TABLE, SchedulerMetrics(), random.Random(seed))
        asked = [Fixed(one) for one in scores]
        return (await chain.prioritize(asked, POD.pod, rows, np.array(ranking))).scores

    return run


def order(ranking):
    """Return the names of feasible rows, the best first."""
    rows = sorted((row for row in range(4) if ranking[row] >= 0), key=lambda row: -ranking[row])
    return "".join(TABLE[row].name for row in rows)


async def test_scores_are_added_to_those_of_plugins(prioritize):
    ranking = await prioritize([10, 20, 30, 40], {"a": 25, "b": -100}, {"b": 200, "x": 999})
    assert order(ranking) == "bdac"  # 120, 40, 35, 30


async def test_negative_totals_are_still_feasible(prioritize):
    ranking = await prioritize([0, 0, -1, 0], {"a": -50, "b": -70, "d": -60}, rows=ALL[[0, 1, 3]])
    assert order(ranking) == "adb"
    assert ranking[2] == -1


async def test_sums_wrap_around_like_gos(prioritize):
    ranking = await prioritize([5, 0, 0, 0], {"a": 2**63 - 1, "b": 1, "c": 2, "d": 3})
    assert order(ranking) == "dcba"


async def test_the_ranking_given_is_not_touched(prioritize):
    given = np.array([1, 2, 3, 4])
    chain = ExtenderChain((), TABLE, SchedulerMetrics(), random.Random(0))
    await chain.prioritize([Fixed({"a": 50})], POD.pod, ALL, given)
    assert given.tolist() == [1, 2, 3, 4]


async def test_an_extender_that_fails_changes_nothing(prioritize):
    ranking = await prioritize([10, 20, 20, 5], ExtenderError("no"))
    assert ranking.tolist() == [1, 2, 2, 0]


async def test_failures_of_nodes_that_do_not_exist_are_dropped():
    class Filter(Fixed):
        ignorable = False

        async def filter(self, pod, nodes):
            ghosts = {f"ghost-{number}": "full" for number in range(1_000)}
            return ExtenderFilterResult(
                ["a"], False, {"b": "full", **ghosts}, {"c": "old", **ghosts}
            )

    chain = ExtenderChain((), TABLE, SchedulerMetrics(), random.Random(0))
    found = FeasibleNodes(Verdicts(4), None, None, PodSignatures(POD))
    answers = ExtenderAnswers()
    found = await chain.filter([Filter(None)], POD.pod, found, answers)
    assert found.rows.tolist() == [0]
    [answer] = answers.filters
    assert (answer.failed, answer.unresolvable) == ({"b": "full"}, {"c": "old"})
    reasons = [status and status.message for status in map(found.verdicts.status, range(4))]
    assert reasons[:3] == [None, "full", "old"]


async def test_equal_nodes_are_ordered_at_random_if_they_were_scored(prioritize):
    winners = Counter()
    for seed in range(200):
        ranking = await prioritize([7, 7, 7, 0], {"a": 0, "b": 0}, seed=seed)
        chosen = root_of_heap(CachedTotals(ranking), lambda: ALL)
        assert chosen == at_random(random.Random(1))(CachedTotals(ranking), lambda: ALL)
        winners[TABLE[chosen].name] += 1
    # c has the same score, but nobody has scored it.
    assert winners.keys() == {"a", "b"}
    assert min(winners.values()) > 60


async def test_without_scores_the_heap_decides(prioritize):
    ranking = await prioritize([1, 1, 9, 9], {})
    assert root_of_heap(CachedTotals(ranking), lambda: ALL) == root_of_heap(
        CachedTotals(np.array([1, 1, 9, 9])), lambda: ALL
    )
    assert at_random(random.Random(0))(CachedTotals(ranking), lambda: ALL) in (2, 3)


async def test_an_extender_without_the_verb_scores_all_nodes_equally(prioritize):
    winners = set()
    for seed in range(30):
        ranking = await prioritize([7, 7, 7, 0], None, seed=seed)
        winners.add(TABLE[root_of_heap(CachedTotals(ranking), lambda: ALL)].name)
    assert winners == {"a", "b", "c"}
