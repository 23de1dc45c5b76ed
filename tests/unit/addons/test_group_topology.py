from __future__ import annotations

from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.addons.coscheduling.ranks import rank_of
from proreus.addons.group_topology import GroupTopology
from proreus.addons.group_topology.domains import best_fit, least_free, slices_of
from proreus.addons.group_topology.plugin import TopologyRequest, topology_request
from proreus.engine.groups import algorithm
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


def test_a_pod_beyond_the_minimum_goes_where_it_may_if_it_may_not_to_the_others() -> None:
    cluster = cluster_of({"a-1": [2], "b-1": [4]}, 1)
    assert place(cluster, 1, **{PREFERRED: "rack"}) == ["a-1-0"]
    cluster.add(member(1, {PREFERRED: "rack"}))
    cluster.patch("Pod", "p1", {"spec": {"nodeSelector": {"rack": "b-1"}}})
    cluster.schedule_all()
    assert cluster.pod("p1").spec.node_name == "b-1-0"


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


# ---- domains that cannot be told by their room -------------------------------------------------


def place_sizes(cluster: Harness, *sizes: int, **annotations: str) -> list[str]:
    cluster.add(*(member(n, annotations, str(size)) for n, size in enumerate(sizes)))
    cluster.schedule_all()
    return [cluster.pod(f"p{number}").spec.node_name for number in range(len(sizes))]


def message(cluster: Harness) -> str:
    (condition,) = cluster.pod("p0").status.conditions
    return condition.message


@pytest.mark.parametrize(
    ("sizes", "cpus"),
    [
        ((4, 1, 1, 1, 1), [8]),
        ((4, 1, 1, 1, 1), [4, 4]),
        ((1, 1, 1, 1, 4), [4, 4]),
        ((4, 1, 1, 1, 1), [4, 1, 1, 1, 1]),
        ((8, 1, 1), [9, 9]),
        ((3, 3, 2, 2, 2), [6, 6]),
    ],
)
@pytest.mark.parametrize("asked", [REQUIRED, PREFERRED])
def test_pods_of_different_sizes_go_to_a_rack_that_holds_them(
    sizes: tuple[int, ...], cpus: list[int], asked: str
) -> None:
    cluster = cluster_of({"a-1": [1], "a-2": cpus, "b-1": [99]}, len(sizes))
    assert racks_of(place_sizes(cluster, *sizes, **{asked: "rack"})) == ["a-2"] * len(sizes)


@pytest.mark.parametrize("others", [9, 40])
@pytest.mark.parametrize("why", ["taint", "selector"])
def test_a_rack_that_holds_the_group_is_found_behind_many_that_do_not(
    others: int, why: str
) -> None:
    racks = {f"a-{number:02}": [4] for number in range(others)}
    cluster = cluster_of({**racks, "b-1": [8]}, 4)
    for rack in racks:
        taint = {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}
        label = {"metadata": {"labels": {"gpu": "no"}}}
        cluster.patch("Node", f"{rack}-0", taint if why == "taint" else label)
    cluster.patch("Node", "b-1-0", {"metadata": {"labels": {"gpu": "yes"}}})
    selector = {"gpu": "yes"} if why == "selector" else {}
    labels, annotations = {POD_GROUP_LABEL: "g"}, {"annotations": {REQUIRED: "rack"}}
    for number in range(4):
        cluster.add(
            make_pod(f"p{number}", "1", labels=labels, metadata=annotations, node_selector=selector)
        )
    cluster.schedule_all()
    assert [cluster.pod(f"p{n}").spec.node_name for n in range(4)] == ["b-1-0"] * 4


def test_the_reason_names_what_each_rack_lacks() -> None:
    cluster = cluster_of({"a-1": [3], "a-2": [3], "a-3": [4], "b-1": [2, 2, 2]}, 2)
    cluster.patch("Node", "a-3-0", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    assert place_sizes(cluster, 3, 1, **{REQUIRED: "rack"}) == [""] * 2
    found = message(cluster)
    assert "0/4 placements are available" in found
    assert "rack=a-1 and 2 others: Insufficient cpu" in found
    assert "rack=a-3: 2 pods are needed together, 0 fit, pod default/p0: " in found
    assert "node(s) had untolerated taint" in found


def test_the_reason_says_so_where_the_group_has_pods_elsewhere() -> None:
    cluster = cluster_of({"a-1": [2], "b-1": [4]}, 2)
    assert racks_of(place_sizes(cluster, 1, 1, **{REQUIRED: "rack"})) == ["a-1"] * 2
    cluster.add(member(2, {REQUIRED: "rack"}))
    cluster.schedule_all()
    (condition,) = cluster.pod("p2").status.conditions
    assert "rack=a-1: Insufficient cpu" in condition.message
    assert "rack=b-1: pods of the group have nodes elsewhere" in condition.message


def test_resources_that_the_cluster_lacks_are_lacking_wherever_the_group_is_tried() -> None:
    cluster = cluster_of({"a-1": [2], "b-1": [4]}, 2)
    group = gang(2)
    cluster.add({**group, "spec": {"minMember": 2, "minResources": {"cpu": "7"}}})
    assert place_sizes(cluster, 1, 1, **{PREFERRED: "rack"}) == ["", ""]
    assert "resource gap: cpu: 1000" in message(cluster)


def test_what_one_attempt_cannot_try_is_tried_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm, "_MOST_TRIES", 3)
    racks = {f"a-{number}": [4] for number in range(7)}
    cluster = cluster_of({**racks, "b-1": [8]}, 2)
    for rack in racks:
        taint = {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}
        cluster.patch("Node", f"{rack}-0", taint)
    assert place_sizes(cluster, 1, 1, **{REQUIRED: "rack"}) == ["", ""]
    assert "; 5 are tried next" in message(cluster)
    cluster.advance(20)
    cluster.schedule_all()
    cluster.advance(20)
    cluster.schedule_all()
    assert [cluster.pod(f"p{number}").spec.node_name for number in range(2)] == ["b-1-0"] * 2
    cluster.scheduler.queue.validate()


TAINTED = {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}


def in_several_attempts(monkeypatch: pytest.MonkeyPatch, too_small: int = 2) -> Harness:
    """Return a cluster whose one group has tried some of its seven racks in vain.

    Those that are not ``too_small`` have a taint.
    """
    monkeypatch.setattr(algorithm, "_MOST_TRIES", 3)
    large = 7 - too_small
    cluster = cluster_of({f"a-{number}": [4 if number < large else 1] for number in range(7)}, 2)
    for number in range(large):
        cluster.patch("Node", f"a-{number}-0", TAINTED)
    assert place_sizes(cluster, 2, 2, **{REQUIRED: "rack"}) == ["", ""]
    assert attempts(cluster) == 1
    return cluster


def attempts(cluster: Harness) -> int:
    queued = cluster.scheduler.queue.get("default/p0")
    return 0 if queued is None else queued.attempts


def pass_seconds(cluster: Harness, seconds: int) -> None:
    for _ in range(seconds):
        cluster.advance(1)
        cluster.schedule_all()
    cluster.scheduler.queue.validate()


def nodes_of(cluster: Harness, members: int = 2) -> list[str]:
    return [cluster.pod(f"p{number}").spec.node_name for number in range(members)]


def test_a_group_that_was_tried_everywhere_waits_for_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = in_several_attempts(monkeypatch)
    pass_seconds(cluster, 60)
    assert attempts(cluster) == 2
    pass_seconds(cluster, 120)
    assert attempts(cluster) == 2
    cluster.patch("Node", "a-1-0", {"spec": {"taints": None}})
    pass_seconds(cluster, 30)
    assert nodes_of(cluster) == ["a-1-0"] * 2


def test_an_event_between_two_attempts_is_for_the_racks_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = in_several_attempts(monkeypatch)
    cluster.patch("Node", "a-0-0", {"spec": {"taints": None}})
    pass_seconds(cluster, 60)
    assert nodes_of(cluster) == ["a-0-0"] * 2


def test_an_event_between_two_attempts_that_helps_nobody_costs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = in_several_attempts(monkeypatch, too_small=0)
    cluster.patch("Node", "a-0-0", {"metadata": {"annotations": {"other": "1"}}})
    pass_seconds(cluster, 120)
    assert attempts(cluster) == 3


def test_what_helps_another_domain_than_the_first_wakes_the_group() -> None:
    cluster = cluster_of({"a-1": [4], "b-1": [5]}, 4)
    cluster.patch("Node", "a-1-0", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    cluster.add(make_pod("other", "2", node_name="b-1-0"))
    assert place_sizes(cluster, 1, 1, 1, 1, **{REQUIRED: "rack"}) == [""] * 4
    cluster.remove("Pod", "other")
    cluster.advance(15)
    cluster.schedule_all()
    assert [cluster.pod(f"p{number}").spec.node_name for number in range(4)] == ["b-1-0"] * 4


def test_an_event_wakes_the_group_that_a_filter_rejected_in_another_domain() -> None:
    cluster = cluster_of({"a-1": [4], "b-1": [5]}, 4)
    cluster.patch("Node", "a-1-0", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    cluster.patch("Node", "b-1-0", {"metadata": {"labels": {"gpu": "no"}}})
    cluster.patch("Node", "a-1-0", {"metadata": {"labels": {"gpu": "yes"}}})
    for number in range(4):
        cluster.add(
            make_pod(
                f"p{number}",
                "1",
                labels={POD_GROUP_LABEL: "g"},
                metadata={"annotations": {REQUIRED: "rack"}},
                node_selector={"gpu": "yes"},
            )
        )
    cluster.schedule_all()
    assert cluster.pod("p0").spec.node_name == ""
    cluster.patch("Node", "b-1-0", {"metadata": {"labels": {"gpu": "yes"}}})
    cluster.advance(15)
    cluster.schedule_all()
    assert [cluster.pod(f"p{number}").spec.node_name for number in range(4)] == ["b-1-0"] * 4
