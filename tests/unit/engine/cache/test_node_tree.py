"""The order of nodes: round robin over zones (core.md 5.2)."""

from __future__ import annotations

import pytest

from proreus.engine.cache.node_tree import zone_of
from proreus.testing.builders import make_node

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"


def add(harness, *names: str) -> None:
    """Add nodes; the first letter of a name is its zone."""
    for name in names:
        harness.cache.add_node(harness.make_node(name, labels={ZONE: name[0]}))


def test_the_first_of_each_zone_then_the_second(harness) -> None:
    add(harness, "b1", "a1", "a2", "a3", "c1", "b2")
    assert harness.order() == ["b1", "a1", "c1", "b2", "a2", "a3"]


def test_a_zone_that_was_empty_comes_back_at_the_end(harness) -> None:
    add(harness, "a1", "b1")
    harness.cache.remove_node("a1")
    add(harness, "a2")
    assert harness.order() == ["b1", "a2"]


def test_another_zone_shows_only_when_nodes_come_or_go(harness) -> None:
    add(harness, "a1", "a2", "b1")
    assert harness.order() == ["a1", "b1", "a2"]
    harness.cache.update_node(harness.make_node("a1", labels={ZONE: "b"}))
    assert harness.order() == ["a1", "b1", "a2"]
    add(harness, "c1")
    assert harness.order() == ["a2", "b1", "c1", "a1"]


def test_a_node_that_comes_back_before_anybody_asked_stands_where_it_stood(harness) -> None:
    add(harness, "a1", "b1", "c1")
    assert harness.order() == ["a1", "b1", "c1"]
    harness.cache.remove_node("a1")
    add(harness, "a1")
    assert harness.order() == ["a1", "b1", "c1"]
    harness.cache.remove_node("a1")
    assert harness.order() == ["b1", "c1"]
    add(harness, "a1")
    assert harness.order() == ["b1", "c1", "a1"]


def test_rows_may_move(harness) -> None:
    add(harness, "a1", "b1", "a2", "b2")
    assert harness.order() == ["a1", "b1", "a2", "b2"]
    harness.cache.remove_node("a1")
    assert harness.order() == ["a2", "b1", "b2"]


def test_a_change_before_the_order_was_asked_for_counts(harness) -> None:
    add(harness, "a1", "b1")
    harness.cache.update_node(harness.make_node("a1", labels={ZONE: "b"}))
    assert harness.order() == ["b1", "a1"]


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ({}, ""),
        ({ZONE: "z"}, ":\0:z"),
        ({REGION: "r"}, "r:\0:"),
        ({REGION: "r", ZONE: "z"}, "r:\0:z"),
        ({REGION: "r", ZONE: "z", OLD_REGION: "s", OLD_ZONE: "y"}, "s:\0:y"),
        ({ZONE: "z", OLD_ZONE: ""}, ""),
    ],
)
def test_zone_of(labels, key) -> None:
    assert zone_of(make_node("n", labels=labels)) == key
