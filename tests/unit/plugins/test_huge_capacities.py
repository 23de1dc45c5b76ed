"""Scores of nodes whose amounts need more than 53 or 57 bits, as Go computes them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from proreus.plugins.node_resources_balanced_allocation import _balance, _changes
from proreus.plugins.resource_scoring import (
    ColumnLoad,
    LeastAllocated,
    Load,
    MostAllocated,
    RequestedToCapacityRatio,
    ResourceScorer,
    ScoredRequest,
    broken_linear,
    score_rows,
)
from proreus.testing import Harness, make_node, make_pod

MAX = 2**63 - 1
SHAPES = [[(0, 0), (100, 100)], [(20, 100), (60, 30), (90, 0)]]
SCORERS: dict[str, Any] = {
    "LeastAllocated": LeastAllocated(exact=False),
    "MostAllocated": MostAllocated(exact=False),
    "rising ratio": RequestedToCapacityRatio(SHAPES[0], exact=False),
    "falling ratio": RequestedToCapacityRatio(SHAPES[1], exact=False),
}


class Int64:
    """Go's arithmetic, one operation at a time."""

    @staticmethod
    def times(left: int, right: int) -> int:
        product = left * right & 2**64 - 1
        return product - 2**64 if product > MAX else product

    @staticmethod
    def quotient(left: int, right: int) -> int:
        magnitude = abs(left) // abs(right)
        return magnitude if (left < 0) == (right < 0) else -magnitude


def go_score(name: str, loads: Sequence[Load]) -> int:
    """Return what kube-scheduler's leastRequestedScore and the like return for these loads."""
    total = weights = 0
    for before, wanted, capacity, weight in loads:
        requested = before + wanted
        if name == "LeastAllocated":
            free = capacity - requested
            rate = 0 if free < 0 else Int64.quotient(Int64.times(free, 100), capacity)
        else:
            requested = min(requested, capacity)
            rate = Int64.quotient(Int64.times(requested, 100), capacity)
        if "ratio" in name:
            rate = broken_linear(SHAPES[name == "falling ratio"], rate)
            if rate <= 0:
                continue
        total += rate * weight
        weights += weight
    if not weights:
        return 0
    if "ratio" in name:
        return math.floor(total / weights + 0.5)
    return Int64.quotient(total, weights)


def go_balance(requested: list[int], capacities: list[int]) -> int:
    """Return balancedResourceScore."""
    pairs = zip(requested, capacities, strict=True)
    fractions = [min(float(r) / float(c), 1.0) for r, c in pairs]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean, squares = total / len(fractions), 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * 100.0)


def amount(rng: random.Random) -> int:
    """Return an amount of any size that fits int64, often at a limit."""
    return rng.choice(
        (
            rng.randrange(1, 2 ** rng.randrange(1, 64)),
            rng.choice((1, 2**53 + 1, MAX // 100, MAX // 100 + 1, 10**17, MAX // 3, MAX - 1, MAX)),
        )
    )


def drawn_loads(rng: random.Random, nodes: int) -> list[list[Load]]:
    """Return the loads of a pod on each node: as many resources on each of them."""
    wanted = [(rng.choice((0, amount(rng))), rng.randrange(1, 4)) for _ in range(rng.randint(1, 4))]
    return [
        [(rng.choice((0, amount(rng))), amount_, amount(rng), weight) for amount_, weight in wanted]
        for _ in range(nodes)
    ]


class Table:
    """The part of a node table that is scored. ``asked``: the pod's requests of its resources."""

    def __init__(self, loads: list[list[Load]]) -> None:
        names = [f"example.com/{number}" for number in range(len(loads[0]))]
        self.asked = [
            ScoredRequest(name, wanted, weight, False)
            for name, (_, wanted, _, weight) in zip(names, loads[0], strict=True)
        ]
        columns = columns_of(loads)
        self.requested = dict(zip(names, (one.requested for one in columns), strict=True))
        self.allocatable = dict(zip(names, (one.capacity for one in columns), strict=True))
        self._size = len(loads)

    def __len__(self) -> int:
        return self._size

    def copy(self) -> tuple[dict[str, list[int]], ...]:
        """Return the amounts."""
        return tuple(
            {name: column.tolist() for name, column in columns.items()}
            for columns in (self.requested, self.allocatable)
        )


def columns_of(loads: list[list[Load]]) -> list[ColumnLoad]:
    """Return the same loads as columns."""
    return [
        ColumnLoad(
            np.array([one[0] for one in column]),
            column[0][1],
            np.array([one[2] for one in column]),
            column[0][3],
        )
        for column in zip(*loads, strict=True)
    ]


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("seed", range(40))
def test_both_forms_score_as_go_does(name: str, seed: int) -> None:
    scorer: ResourceScorer = SCORERS[name]
    loads = drawn_loads(random.Random(seed), 50)
    expected = [go_score(name, node) for node in loads]
    assert [scorer.score(node) for node in loads] == expected
    table: Any = Table(loads)
    before = table.copy()
    scores = score_rows(table.asked, table, scorer.score_all, None, scorer.score)
    assert scores.tolist() == expected
    assert table.copy() == before


def test_an_overflow_was_drawn() -> None:
    scores = [
        go_score("LeastAllocated", node)
        for seed in range(40)
        for node in drawn_loads(random.Random(seed), 50)
    ]
    assert min(scores) < 0
    assert sum(score < 0 for score in scores) > 50


@pytest.mark.parametrize("seed", range(40))
def test_both_forms_balance_as_go_does(seed: int) -> None:
    loads = drawn_loads(random.Random(seed), 50)
    expected = []
    for node in loads:
        capacities = [load[2] for load in node]
        after = go_balance([min(load[0] + load[1], MAX) for load in node], capacities)
        before = go_balance([load[0] for load in node], capacities)
        expected.append(50 + (50 + after - before) // 2)
    assert _changes(columns_of(loads), len(loads)).tolist() == expected


def test_sums_of_fractions_are_those_of_go() -> None:
    """From 3.12 on, Python's ``sum`` of floats is more exact than one addition after another."""
    fractions = [0.1] * 9 + [1.0]
    total = 0.0
    for fraction in fractions:
        total += fraction
    mean = total / 10
    squares = 0.0
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    assert _balance(fractions) == int((1 - math.sqrt(squares / 10)) * 100.0)


@pytest.mark.parametrize("count", [2, 300], ids=["node by node", "columns"])
def test_a_node_with_more_than_go_can_score(count: int) -> None:
    """As in kube-scheduler: 9.3e16 * 100 overflows, and a plugin may not return the score."""
    huge = make_node("n0", cpu=2, memory=str(93 * 10**15))
    nodes = [huge, *(make_node(f"n{number}", cpu=64, memory="64Gi") for number in range(1, count))]
    with Harness(nodes=nodes) as cluster:
        outcome = cluster.schedule(make_pod("a", cpu=1, memory="1Gi"))
        fault = 'plugin "NodeResourcesFit" returns an invalid score -24, it should in the range'
        assert fault in outcome.message, outcome
