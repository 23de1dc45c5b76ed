"""Which placements of a group are tried: first where it is nominated to, then a share of all."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37, V1_38
from proreus.engine.groups.placement_search import (
    GroupPlacements,
    PlacementSearch,
    enough_placements,
    every_placement,
    search_of,
)
from proreus.framework.pod_group import OrderedPlacements, Placement
from proreus.testing import FakeHandle, make_node, make_pod


def search(
    placements: Any,
    nominated: tuple[str, ...] = (),
    percentage: int = 0,
    scored: bool = True,
    find: Any = enough_placements,
) -> PlacementSearch:
    profile = SimpleNamespace(
        placement_score=("Scorer",) if scored else (), percentage_of_placements_to_score=percentage
    )
    nodes = FakeHandle([make_node(f"n{number}") for number in range(8)]).nodes
    pods = [
        SimpleNamespace(pod=make_pod("p", status={"nominatedNodeName": name}).pod)
        for name in nominated
    ]
    group = GroupPlacements(
        placements, cast(Any, pods), cast(Any, profile), nodes, random.Random(1)
    )
    found: PlacementSearch = find(group)
    return PlacementSearch(list(found.places), found.wanted, found.nominated)


def racks(count: int, nodes: int = 1) -> list[Placement]:
    return [
        Placement(f"r{rack}", frozenset(f"n{nodes * rack + node}" for node in range(nodes)))
        for rack in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "nodes", "percentage", "wanted"),
    [
        (3, 2, 0, 3),
        (40, 50, 0, 25),  # 100 - 2,000 * 9 / 500 = 64 %
        (100, 60, 0, 5),  # at least 5 %
        (3, 2, 50, 1),
        (3, 2, 67, 2),
        (3, 2, 1, 1),
        (3, 2, 100, 3),
    ],
)
def test_a_share_of_the_placements_is_searched(count, nodes, percentage, wanted) -> None:
    found = search(racks(count, nodes), percentage=percentage)
    assert found.wanted == wanted
    assert sorted(found.places) == list(range(count))


def test_the_order_is_random_where_not_all_are_searched() -> None:
    assert search(racks(20)).places == list(range(20))
    assert search(racks(20), percentage=50).places != list(range(20))


def test_without_scores_one_placement_is_enough() -> None:
    assert search(racks(3), scored=False).wanted == 1


def test_all_nodes_count_as_many_as_there_are() -> None:
    every = [Placement("all", None)] * 8
    assert search(every).wanted == 7  # 100 - 64 * 9 / 500 = 99 %


def test_placements_in_an_order_of_preference_end_with_the_first_in_that_order() -> None:
    ordered = OrderedPlacements(racks(3))
    for find in (enough_placements, every_placement):
        found = search(ordered, percentage=1, find=find)
        assert (found.places, found.wanted) == ([0, 1, 2], 1)


def test_the_placement_that_pods_are_nominated_to_is_the_first() -> None:
    found = search(racks(3, 2), nominated=("", "n4"))
    assert (found.places, found.nominated) == ([2, 0, 1], 2)
    assert not found.is_over(1, place=0)
    assert found.is_over(1, place=2)
    assert not found.is_over(0, place=2)


def test_all_nodes_have_the_node_that_pods_are_nominated_to() -> None:
    assert search([Placement("all", None)], nominated=("n4",)).nominated == 0
    assert search([Placement("all", None)], nominated=("gone",)).nominated is None


@pytest.mark.parametrize("nominated", [("n0", "n4"), ("gone",), ()])
def test_nominations_to_no_or_several_placements_do_not_count(nominated) -> None:
    found = search(racks(3, 2), nominated=nominated)
    assert (found.places, found.nominated) == ([0, 1, 2], None)


def test_up_to_1_37_every_placement_is_tried() -> None:
    assert search_of(FeatureGates.from_list([], V1_37)) is every_placement
    assert search_of(FeatureGates.from_list([], V1_38)) is enough_placements
    found = search(racks(3, 2), nominated=("n4",), percentage=1, find=every_placement)
    assert (found.places, found.wanted, found.nominated) == ([0, 1, 2], 3, None)


# ---- in a cluster --------------------------------------------------------------------------------


async def nominated_to_b(kit, version, **pods: str):
    """Two zones with one node each, of which the second one has less room."""
    cluster = kit.Cluster(kit.TOPOLOGY, version=version)
    cluster.nodes(zone="x", a="4")
    cluster.nodes(zone="y", b="2")
    cluster.group(min_count=1, **kit.IN_ONE_ZONE)
    for name, cpu in pods.items():
        cluster.pods(name, cpu=cpu, status={"nominatedNodeName": "b"})
    await cluster.cycle()
    return cluster


async def test_a_group_goes_where_its_pods_are_nominated_to(kit) -> None:
    """As a single pod does, though more of its pods fit elsewhere."""
    cluster = await nominated_to_b(kit, V1_38, p="2", q="2")
    assert set(cluster.placed().values()) == {"b"}
    cluster = await nominated_to_b(kit, V1_37, p="2", q="2")
    assert set(cluster.placed().values()) == {"a"}


async def test_a_group_goes_elsewhere_if_it_does_not_fit_where_it_is_nominated_to(kit) -> None:
    cluster = await nominated_to_b(kit, V1_38, p="3")
    assert cluster.placed() == {"p": "a"}


async def test_a_complete_group_is_told_that_its_nominated_placement_is_full(kit) -> None:
    cluster = kit.Cluster(kit.TOPOLOGY, version=V1_38)
    cluster.nodes(zone="x", a="1")
    cluster.group(min_count=1)
    cluster.pods("there", node_name="a")
    cluster.pods("p", status={"nominatedNodeName": "a"})
    await cluster.cycle()
    why = "nominated placement is feasible but no pending pod was scheduled"
    assert (
        f"0/1 placements are available, first placement status: {why}"
        in cluster.condition().message
    )
