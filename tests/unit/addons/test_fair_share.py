from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.addons.capacity_scheduling.fair_share import ShareClaim, fair_shares, scaled
from proreus.addons.capacity_scheduling.queue_accounts import DecayedUsage
from proreus.addons.capacity_scheduling.queue_tree import CapacityQueue, QueueTree


def test_what_a_queue_does_not_ask_for_is_offered_once_more() -> None:
    claims = [ShareClaim("a", 2, 10), ShareClaim("b", 2, 3)]
    assert fair_shares(10, claims) == {"a": 7, "b": 3}


@pytest.mark.parametrize(
    ("guarantee", "expected"),
    [(0, {"a": 70, "b": 10, "c": 20}), (40, {"a": 52, "b": 40, "c": 8})],
    ids=["lends", "keeps"],
)
def test_what_is_lent(guarantee: int, expected: dict[str, int]) -> None:
    claims = [
        ShareClaim("a", 40, 70, 60),
        ShareClaim("b", 40, 10, 1, guarantee=guarantee),
        ShareClaim("c", 0, 50, 40),
    ]
    assert fair_shares(100, claims) == expected


def test_a_higher_priority_comes_first() -> None:
    claims = [ShareClaim("low", 0, 10), ShareClaim("high", 0, 7, priority=1)]
    assert fair_shares(10, claims) == {"low": 3, "high": 7}


def test_a_weight_of_zero_is_for_what_is_deserved_only() -> None:
    claims = [ShareClaim("a", 2, 10, weight=0), ShareClaim("b", 0, 3)]
    assert fair_shares(10, claims) == {"a": 2, "b": 3}


def test_past_use_is_made_good() -> None:
    claims = [ShareClaim("a", 0, 10, usage=0.75), ShareClaim("b", 0, 10, usage=0.25)]
    assert fair_shares(8, claims) == {"a": 4, "b": 4}
    assert fair_shares(8, claims, k=1) == {"a": 2, "b": 6}
    assert fair_shares(8, claims, k=100) == {"a": 0, "b": 8}


def test_single_units_go_to_the_largest_remainders() -> None:
    claims = [ShareClaim(name, 0, 10) for name in "abc"]
    assert fair_shares(8, claims) == {"a": 3, "b": 3, "c": 2}


def test_amounts_are_scaled_by_largest_remainders() -> None:
    assert scaled({"a": 6, "b": 3, "c": 3}, 8) == {"a": 4, "b": 2, "c": 2}
    assert scaled({"a": 1, "b": 1, "c": 1}, 2) == {"a": 1, "b": 1, "c": 0}
    assert scaled({"a": 1}, 2) == {"a": 1}


claims_of_queues = st.lists(
    st.builds(
        ShareClaim,
        st.sampled_from("abcdef"),
        deserved=st.integers(0, 20),
        request=st.integers(0, 40),
        weight=st.floats(0.01, 100),
        priority=st.integers(0, 2),
        usage=st.floats(0, 1),
    ),
    unique_by=lambda claim: claim.name,
)


@given(st.integers(0, 60), claims_of_queues, st.floats(0, 10))
def test_nothing_is_given_twice_or_left_while_somebody_asks(
    amount: int, claims: list[ShareClaim], k: float
) -> None:
    found = fair_shares(amount, claims, k)
    asked = sum(claim.request for claim in claims)
    assert sum(found.values()) == min(amount, asked)
    deserved = {claim.name: min(claim.deserved, claim.request) for claim in claims}
    for claim in claims:
        assert found[claim.name] <= claim.request
        if sum(deserved.values()) <= amount:
            assert found[claim.name] >= deserved[claim.name]


def test_each_half_life_counts_half_as_much() -> None:
    usage = DecayedUsage(100, 0)
    usage.change({"cpu": 4}, 0)
    usage.change({}, 100)
    first = usage.at(100)["cpu"]
    assert usage.at(200)["cpu"] == pytest.approx(first / 2)
    usage.change({"cpu": 4}, 200)
    assert usage.at(300)["cpu"] == pytest.approx(first / 4 + first)


def tree(*queues: CapacityQueue) -> QueueTree:
    return QueueTree(queues)


def test_shares_go_down_the_tree() -> None:
    found = tree(
        CapacityQueue("dev", deserved={"cpu": 6}),
        CapacityQueue("ops", deserved={"cpu": 4}),
        CapacityQueue("dev-1", "dev", deserved={"cpu": 4}, weight=3),
        CapacityQueue("dev-2", "dev", weight=1),
    ).shares({"cpu": 20}, {"dev-1": {"cpu": 99}, "dev-2": {"cpu": 99}}, lambda *_: 0.0, 0)
    assert {name: share["cpu"] for name, share in found.fair.items()} == {
        "dev": 20,
        "ops": 0,
        "dev-1": 16,
        "dev-2": 4,
    }


def test_children_deserve_no_more_than_their_parent() -> None:
    found = tree(
        CapacityQueue("dev", deserved={"cpu": 6}),
        CapacityQueue("dev-1", "dev", deserved={"cpu": 8}),
        CapacityQueue("dev-2", "dev", deserved={"cpu": 4}),
        CapacityQueue("all", unlimited=frozenset(("cpu",))),
    ).shares({"cpu": 6}, {}, lambda *_: 0.0, 0)
    assert {name: one["cpu"] for name, one in found.deserved.items()} == {
        "dev": 3,
        "all": 3,
        "dev-1": 2,
        "dev-2": 1,
    }


def test_a_limit_caps_what_is_asked_for() -> None:
    found = tree(
        CapacityQueue("a", limit={"cpu": 3}), CapacityQueue("a-1", "a"), CapacityQueue("b")
    ).shares({"cpu": 10}, {"a-1": {"cpu": 9}, "b": {"cpu": 9}}, lambda *_: 0.0, 0)
    assert (found.fair["a"]["cpu"], found.fair["a-1"]["cpu"], found.fair["b"]["cpu"]) == (3, 3, 7)


def test_queues_in_a_circle_stand_at_the_top() -> None:
    found = tree(
        CapacityQueue("a", "b"), CapacityQueue("b", "c"), CapacityQueue("c", "b"),
        CapacityQueue("lost", "nowhere"), *(CapacityQueue(f"{n}", f"{n + 1}") for n in range(500)),
    )  # fmt: skip
    assert found.path("a") == ("a",)
    assert found.path("lost") == ("lost",)
    assert max(len(found.path(str(n))) for n in range(500)) <= 64
    assert found.path("unknown") == ()
