from __future__ import annotations

from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.addons.coscheduling.ranks import rank_of
from proreus.addons.group_topology import GroupTopology
from proreus.addons.group_topology.domains import best_fit, least_free
from proreus.addons.group_topology.requests import TopologyRequest, topology_request
from proreus.addons.group_topology.slices import slices_of
from proreus.framework import ConfigError
from proreus.testing import Harness, make_node, make_pod

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
INDEX = "batch.kubernetes.io/job-completion-index"


def gang(members: int) -> dict:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": members},
    }


def member(number: int, annotations: dict[str, str], cpu: str = "1"):
    labels = {POD_GROUP_LABEL: "g", INDEX: str(number)}
    return make_pod(f"p{number}", cpu, labels=labels, metadata={"annotations": annotations})


def cluster_of(racks: dict[str, list[int]], members: int, **args: Any) -> Harness:
    """Return a cluster; ``racks``: CPUs of the nodes of each rack, named ``block-rack``."""
    nodes = [
        make_node(f"{rack}-{number}", str(cpus), labels={"rack": rack, "block": rack[0]})
        for rack, sizes in racks.items()
        for number, cpus in enumerate(sizes)
    ]
    return Harness(
        [Coscheduling, GroupTopology],
        nodes,
        [gang(members)],
        args={
            "Coscheduling": {"mode": "plan"},
            "GroupTopology": {"levels": ["block", "rack"], **args},
        },
        weights={"GroupTopology": 1000},
    )


def place(cluster: Harness, members: int, **annotations: str) -> list[str]:
    cluster.add(*(member(number, annotations) for number in range(members)))
    cluster.schedule_all()
    return [cluster.pod(f"p{number}").spec.node_name for number in range(members)]


def racks_of(names: list[str]) -> list[str]:
    return [name.rpartition("-")[0] for name in names]


def test_a_group_goes_to_the_rack_with_the_least_room_that_holds_it() -> None:
    cluster = cluster_of({"a-1": [8], "a-2": [2, 2], "b-1": [3], "b-2": [16]}, 4)
    assert racks_of(place(cluster, 4, **{PREFERRED: "rack"})) == ["a-2"] * 4


def test_balance_takes_the_one_with_the_most_room() -> None:
    cluster = cluster_of({"a-1": [8], "a-2": [4], "b-2": [16]}, 4, policy="Balance")
    assert racks_of(place(cluster, 4, **{PREFERRED: "rack"})) == ["b-2"] * 4


def test_a_group_larger_than_any_rack_stays_in_one_block_rack_by_rack_in_order() -> None:
    cluster = cluster_of({"a-1": [3], "a-2": [3], "a-3": [1, 1], "a-4": [1], "b-1": [4]}, 7)
    found = racks_of(place(cluster, 7, **{PREFERRED: "rack"}))
    assert found == ["a-1"] * 3 + ["a-2"] * 3 + ["a-4"]


def test_a_rack_that_is_required_and_not_there_leaves_the_group_waiting() -> None:
    cluster = cluster_of({"a-1": [3], "a-2": [3]}, 4)
    assert place(cluster, 4, **{REQUIRED: "rack"}) == [""] * 4
    (condition,) = cluster.pod("p0").status.conditions
    assert "no rack has room for 4 pods" in condition.message
    assert condition.reason == "Unschedulable"


def test_a_block_that_is_required_holds_all() -> None:
    cluster = cluster_of({"a-1": [3], "a-2": [1], "b-1": [3]}, 4)
    assert {name[0] for name in place(cluster, 4, **{REQUIRED: "block"})} == {"a"}


def test_a_preference_that_cannot_be_met_is_given_up() -> None:
    cluster = cluster_of({"a-1": [3], "b-1": [3]}, 5)
    assert all(place(cluster, 5, **{PREFERRED: "rack"}))


def test_a_domain_that_filters_reject_is_passed_over() -> None:
    cluster = cluster_of({"a-1": [4], "b-1": [8]}, 4)
    cluster.patch("Node", "a-1-0", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    assert racks_of(place(cluster, 4, **{REQUIRED: "rack"})) == ["b-1"] * 4


def test_a_pod_that_joins_later_goes_where_the_others_are() -> None:
    cluster = cluster_of({"a-1": [8], "b-1": [4]}, 3)
    assert racks_of(place(cluster, 3, **{REQUIRED: "rack"})) == ["b-1"] * 3
    cluster.add(member(3, {REQUIRED: "rack"}))
    cluster.schedule_all()
    assert cluster.pod("p3").spec.node_name == "b-1-0"
    cluster.add(member(4, {REQUIRED: "rack"}))
    cluster.schedule_all()
    assert cluster.pod("p4").spec.node_name == ""


def test_groups_that_ask_for_nothing_and_pods_alone_are_left_alone() -> None:
    cluster = cluster_of({"a-1": [2], "b-1": [2]}, 4)
    assert all(place(cluster, 4))
    cluster.add(make_node("more", "4"))
    assert cluster.schedule(make_pod("alone", "1")).node == "more"


@pytest.mark.parametrize(
    ("policy", "capacities", "needed", "chosen"),
    [
        (best_fit, [3, 3, 2, 1], 7, [3, 3, 1]),
        (least_free, [3, 3, 2, 1], 7, [1, 2, 3, 3]),
        (best_fit, [5, 9, 6, 0], 6, [6]),
        (best_fit, [1, 0, 2], 9, [2, 1]),
        (least_free, [4, 0, 2], 3, [2, 4]),
    ],
)
def test_which_domains_are_taken(policy, capacities, needed: int, chosen: list[int]) -> None:
    assert [capacities[index] for index in policy(capacities, needed)] == chosen


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({}, None),
        ({REQUIRED: "rack"}, TopologyRequest("rack", required=True)),
        ({"kai.scheduler/topology-required-placement": "z"}, TopologyRequest("z", required=True)),
        ({"kai.scheduler/topology-preferred-placement": "z"}, TopologyRequest("z")),
        ({"kueue.x-k8s.io/podset-unconstrained-topology": "true"}, TopologyRequest()),
    ],
)
def test_what_annotations_ask_for(annotations, asked) -> None:
    pod = make_pod("p", metadata={"annotations": annotations}).pod
    assert topology_request(pod) == asked


def test_numbers_of_pods() -> None:
    def rank(labels: dict[str, str]) -> tuple[int, ...]:
        return rank_of(make_pod("p", labels=labels).pod)

    assert rank({INDEX: "10"}) > rank({INDEX: "9"})
    assert rank({"jobset.sigs.k8s.io/job-index": "1", INDEX: "0"}) == (1, 0)
    leader = "leaderworkerset.sigs.k8s.io"
    assert rank({f"{leader}/group-index": "2", f"{leader}/worker-index": "3"}) == (2, 3)
    assert rank({INDEX: "x"}) == rank({}) == ()


def test_arguments_are_checked() -> None:
    for args in ({"levels": []}, {"levels": ["a", "a"]}, {"maxPlacements": 0}):
        with pytest.raises(ConfigError, match=r"levels|maxPlacements"):
            Harness([GroupTopology], args={"GroupTopology": args})


SLICE = {
    "kueue.x-k8s.io/podset-slice-required-topology": "rack",
    "kueue.x-k8s.io/podset-slice-size": "4",
}


def slices_in(cluster: Harness, members: int) -> list[set[str]]:
    """Return the racks of each four pods."""
    racks = racks_of([cluster.pod(f"p{number}").spec.node_name for number in range(members)])
    return [set(racks[first : first + 4]) for first in range(0, members, 4)]


def test_each_slice_is_in_one_rack() -> None:
    # b-1 has room for three pods, and gets none.
    cluster = cluster_of({"a-1": [3, 3], "a-2": [3, 2], "b-1": [3], "b-2": [2, 2]}, 12)
    place(cluster, 12, **SLICE)
    assert sorted(map(sorted, slices_in(cluster, 12))) == [["a-1"], ["a-2"], ["b-2"]]


def test_slices_and_a_domain_for_all_of_them() -> None:
    cluster = cluster_of({"a-1": [7], "b-1": [4], "b-2": [4]}, 8)
    place(cluster, 8, **SLICE, **{REQUIRED: "block"})
    assert slices_in(cluster, 8) in ([{"b-1"}, {"b-2"}], [{"b-2"}, {"b-1"}])


def test_a_group_waits_where_no_rack_has_room_for_a_slice() -> None:
    cluster = cluster_of({"a-1": [3], "b-1": [3], "b-2": [3]}, 8)
    assert not any(place(cluster, 8, **SLICE))
    (condition,) = cluster.pod("p0").status.conditions
    assert "no rack has room for a slice of 4 pods" in condition.message


@pytest.mark.parametrize("numbered", [True, False])
def test_a_pod_that_is_replaced_joins_its_slice(numbered: bool) -> None:
    def of_slice(name: str, number: int):
        index = {INDEX: str(number)} if numbered else {}
        labels = {POD_GROUP_LABEL: "g", **index}
        return make_pod(name, "1", labels=labels, metadata={"annotations": SLICE})

    cluster = cluster_of({"a-1": [9], "b-1": [9]}, 8)
    cluster.add(*(of_slice(f"p{number}", number) for number in range(8)))
    cluster.schedule_all()
    rack = racks_of([cluster.pod("p5").spec.node_name])
    cluster.remove("Pod", "p5")
    # Were it free to choose, it would go to the emptiest node.
    (other,) = {"a-1", "b-1"} - set(rack)
    cluster.add(make_node("more", "64", labels={"rack": other, "block": other[0]}))
    cluster.add(of_slice("new", 5))
    cluster.schedule_all()
    assert racks_of([cluster.pod("new").spec.node_name]) == rack


@pytest.mark.parametrize("size", ["", "0", "-1", "four"])
def test_a_size_that_is_none_asks_for_no_slices(size: str) -> None:
    pod = make_pod(
        "p", metadata={"annotations": {**SLICE, "kueue.x-k8s.io/podset-slice-size": size}}
    )
    assert slices_of(pod.pod) is None
