"""DeviceShare: where the GPUs of a pod are, NICs next to them, MIG instances, fragmentation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.addons.device_share import DeviceShare
from proreus.addons.device_share.annotations import ALLOCATED
from proreus.addons.device_share.devices import (
    PARTITIONS,
    DeviceObject,
    Inventory,
    NodeDevice,
    inventory_of,
)
from proreus.addons.device_share.fragmentation import RecentGpuPods, Room
from proreus.addons.device_share.hints import Hints, InvalidRequest, hints_of
from proreus.addons.device_share.placement import most_used_first, place
from proreus.addons.device_share.requests import PodDeviceRequest, Share, request_of
from proreus.addons.device_share.usage import Grant, NodeDeviceUsage, free_gpus, start_of
from proreus.framework import NodeInfo, PodInfo
from proreus.objects import ObjectMeta
from proreus.testing import FakeHandle, Harness, make_node, make_pod

GIB = 2**30
WHOLE = Share(1, 1000, 0, 1000)
GPUS = tuple(NodeDevice(n, memory=40 * GIB, numa=n // 4, pcie=str(n // 2)) for n in range(8))
NICS = tuple(NodeDevice(n, "rdma", numa=n // 2, pcie=str(n)) for n in range(0, 4, 2))


def usage(*taken: int, devices: tuple[NodeDevice, ...] = GPUS, **more: Any) -> NodeDeviceUsage:
    found = NodeDeviceUsage(Inventory(devices, **more))
    found.add(Grant("gpu", minor, 1000, 0, 1000) for minor in taken)
    return found


def minors(
    node: NodeDeviceUsage, request: PodDeviceRequest, type_: str = "gpu"
) -> list[int] | None:
    found = place(node, request, most_used_first)
    return None if found is None else [one.minor for one in found if one.type == type_]


def whole(count: int) -> PodDeviceRequest:
    return PodDeviceRequest("nvidia", (Share(count, 1000, 0, 1000),))


# ---- several GPUs --------------------------------------------------------------------------------


def test_gpus_come_from_the_smallest_domain_with_the_fewest_left() -> None:
    assert minors(usage(0, 2), whole(2)) == [4, 5]
    assert minors(usage(0), whole(1)) == [1]
    assert minors(usage(0), whole(3)) == [1, 2, 3]
    assert minors(usage(), whole(4)) == [0, 1, 2, 3]
    assert minors(usage(0, 4, 5), whole(4)) == [1, 2, 3, 6]
    assert minors(usage(0), whole(8)) is None


def test_placement_leaves_the_usage_as_it_was() -> None:
    node = usage(0, 3)
    before = [(one.milli, one.memory, one.users) for one in node.by_key.values()]
    place(node, whole(3), most_used_first)
    assert [(one.milli, one.memory, one.users) for one in node.by_key.values()] == before


# ---- GPUs and NICs -------------------------------------------------------------------------------


def joint(gpus: int, nics: int, *, same_pcie: bool) -> PodDeviceRequest:
    shares = (Share(gpus, 1000, 0, 1000), Share(nics, 1000, 0, 1000, "rdma"))
    hints = Hints(joint_types=frozenset(("rdma",)), same_pcie=same_pcie)
    return PodDeviceRequest("koordinator", shares, hints=hints)


def test_a_nic_comes_from_the_switch_of_the_gpu_or_from_its_numa_node() -> None:
    node = usage(0, 1, devices=GPUS + NICS)
    assert minors(node, joint(2, 1, same_pcie=False)) == [2, 3]
    assert minors(node, joint(2, 1, same_pcie=False), "rdma") == [0]
    assert minors(node, joint(2, 1, same_pcie=True)) == [4, 5]
    assert minors(node, joint(2, 1, same_pcie=True), "rdma") == [2]


def test_same_pcie_is_required() -> None:
    node = usage(0, 1, 4, 5, devices=GPUS + NICS)
    assert minors(node, joint(1, 1, same_pcie=True)) is None
    assert minors(node, joint(1, 1, same_pcie=False)) == [2]


def test_gpus_under_two_switches_get_a_nic_each() -> None:
    node = usage(devices=GPUS + NICS)
    assert minors(node, joint(4, 1, same_pcie=True), "rdma") in ([0, 2], [2, 0])


def device_object(*, partitions: str = "{}", policy_gpus: int = 4) -> dict[str, Any]:
    def entry(type_: str, minor: int, **resources: object) -> dict[str, Any]:
        return {
            "id": f"{type_}-{minor}",
            "type": type_,
            "minor": minor,
            "health": minor != policy_gpus,
            "resources": resources,
            "topology": {"nodeID": minor // 2, "pcieID": str(minor // 2), "socketID": 0},
        }

    gpus = [
        entry("gpu", n, **{"koordinator.sh/gpu-memory": "16Gi"}) for n in range(policy_gpus + 1)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {
            "name": "a",
            "annotations": {"scheduling.koordinator.sh/gpu-partitions": partitions},
        },
        "spec": {"devices": [*gpus, entry("rdma", 0), entry("rdma", 2)]},
    }


def koordinator_node() -> Any:
    amounts = {"koordinator.sh/gpu": 400, "koordinator.sh/rdma": 200}
    return make_node("a", "32", resources=amounts)


def placed(cluster: Harness, name: str) -> dict[str, list[int]]:
    found = json.loads(cluster.pod(f"default/{name}").metadata.annotations[ALLOCATED])
    return {type_: [one["minor"] for one in entries] for type_, entries in found.items()}


def test_a_gpu_and_a_nic_by_koordinators_objects() -> None:
    cluster = Harness([DeviceShare], [koordinator_node()], [device_object()])
    annotation = {
        "scheduling.koordinator.sh/device-joint-allocate": json.dumps(
            {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
        )
    }
    asked = {"koordinator.sh/gpu": 200, "koordinator.sh/rdma": 100}
    for name in ("p", "q", "r"):
        cluster.schedule(make_pod(name, resources=asked, metadata={"annotations": annotation}))

    assert {placed(cluster, name)["gpu"][0] // 2 for name in ("p", "q")} == {0, 1}
    for name in ("p", "q"):
        found = placed(cluster, name)
        assert {minor // 2 for minor in found["gpu"]} == {minor // 2 for minor in found["rdma"]}
    assert cluster.outcome("default/r").node == ""


def test_a_device_object_wakes_pods() -> None:
    cluster = Harness([DeviceShare], [make_node("a", resources={"koordinator.sh/rdma": 100})])
    cluster.schedule(make_pod("p", resources={"koordinator.sh/rdma": 100}))
    assert cluster.queue_of("default/p") == "unschedulable"
    cluster.add(device_object())
    assert cluster.queue_of("default/p") != "unschedulable"


def test_partitions() -> None:
    table = {
        "2": [
            {"minors": [0, 1], "ringBusBandwidth": "100Gi"},
            {"minors": [1, 2], "ringBusBandwidth": "400Gi"},
        ]
    }
    objects = [device_object(partitions=json.dumps(table))]
    annotation = {
        "scheduling.koordinator.sh/gpu-partition-spec": '{"allocatePolicy": "Restricted"}'
    }
    cluster = Harness([DeviceShare], [koordinator_node()], objects)
    for name in ("p", "q"):
        asked = {"koordinator.sh/gpu": 200}
        cluster.schedule(make_pod(name, resources=asked, metadata={"annotations": annotation}))
    assert placed(cluster, "p") == {"gpu": [1, 2]}
    assert cluster.outcome("default/q").node == ""
    assert cluster.schedule(make_pod("any", resources={"koordinator.sh/gpu": 200})).node == "a"


SPEC = "scheduling.koordinator.sh/gpu-partition-spec"
HINT = "scheduling.koordinator.sh/device-allocate-hint"


def pair(name: str, **annotations: Any) -> Any:
    """Return a pod that asks for two GPUs."""
    texts = {key: json.dumps(value) for key, value in annotations.items()}
    asked = {"koordinator.sh/gpu": 200}
    return make_pod(name, resources=asked, metadata={"annotations": texts})


def scored_partitions() -> dict[str, Any]:
    table = {
        "2": [
            {"minors": [0, 1], "ringBusBandwidth": "400Gi", "allocationScore": 1},
            {"minors": [1, 2], "ringBusBandwidth": "100Gi", "allocationScore": 2},
            {"minors": [0, 3], "ringBusBandwidth": "200Gi", "allocationScore": 1},
        ]
    }
    return device_object(partitions=json.dumps(table))


@pytest.mark.parametrize(
    ("spec", "minors"),
    [
        (None, [[1, 2], [0, 3]]),
        ({"allocatePolicy": "Restricted"}, [[1, 2], []]),
        ({"allocatePolicy": "BestEffort"}, [[1, 2], [0, 3]]),
        ({"allocatePolicy": "BestEffort", "ringBusBandwidth": "150Gi"}, [[0, 1], []]),
    ],
)
def test_partitions_by_score_and_bandwidth(spec: Any, minors: list[list[int]]) -> None:
    cluster = Harness([DeviceShare], [koordinator_node()], [scored_partitions()])
    found = []
    for name in ("p", "q"):
        bound = cluster.schedule(pair(name, **({} if spec is None else {SPEC: spec}))).node
        found.append(placed(cluster, name)["gpu"] if bound else [])
    assert found == minors


def test_a_node_may_give_partitions_alone() -> None:
    objects = device_object(partitions='{"2": [{"minors": [0, 1]}]}')
    cluster = Harness([DeviceShare], [koordinator_node()], [objects])
    assert [bool(cluster.schedule(pair(name)).node) for name in "pq"] == [True, True]
    objects["metadata"]["labels"] = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
    cluster = Harness([DeviceShare], [koordinator_node()], [objects])
    assert [bool(cluster.schedule(pair(name)).node) for name in "pq"] == [True, False]


@pytest.mark.parametrize(
    ("scope", "count", "found"),
    [
        ("PCIe", 2, None),
        ("PCIe", 1, [1]),
        ("NUMANode", 2, [1, 3]),
        ("NUMANode", 3, None),
        ("Node", 3, [1, 3, 5]),
        ("Device", 2, None),
        ("Device", 1, [1]),
    ],
)
def test_gpus_within_a_topology_scope(scope: str, count: int, found: list[int] | None) -> None:
    node = usage(0, 2, 4, 6)
    text = json.dumps({"gpu": {"requiredTopologyScope": scope}})
    asked = {"koordinator.sh/gpu": 100 * count}
    request = request_of(make_pod("p", resources=asked, metadata={"annotations": {HINT: text}}))
    assert request is not None
    assert minors(node, request) == found


def test_a_scope_needs_devices_whose_place_is_known() -> None:
    node = usage(devices=tuple(NodeDevice(n) for n in range(2)))
    for scope, found in (("PCIe", None), ("NUMANode", None), ("Node", [0])):
        request = PodDeviceRequest("koordinator", (WHOLE,), hints=Hints(scope=scope))
        assert minors(node, request) == found


def test_devices_by_label_and_number() -> None:
    objects = device_object()
    for entry in objects["spec"]["devices"]:
        entry["labels"] = {"kind": "new" if entry["minor"] == 2 else "old"}
    cluster = Harness([DeviceShare], [koordinator_node()], [objects])
    hint = {"rdma": {"selector": {"matchLabels": {"kind": "new"}}}}
    annotations = {"annotations": {HINT: json.dumps(hint)}}
    cluster.schedule(make_pod("p", resources={"koordinator.sh/rdma": 50}, metadata=annotations))
    assert placed(cluster, "p") == {"rdma": [2]}
    hint = {"rdma": {"allocateStrategy": "RequestsAsCount"}}
    annotations = {"annotations": {HINT: json.dumps(hint)}}
    cluster.schedule(make_pod("q", resources={"koordinator.sh/rdma": 2}, metadata=annotations))
    assert placed(cluster, "q") == {"rdma": [0, 2]}


@pytest.mark.parametrize(
    "hint",
    [
        {"rdma": {"vfSelector": {}}},
        {"rdma": {"allocateStrategy": "ApplyForAll"}},
        {"gpu": {"exclusivePolicy": "PCIeLevel"}},
        {"gpu": {"requiredTopologyScope": "Rack"}},
        {"gpu": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}},
        [],
    ],
)
def test_hints_that_cannot_be_followed_are_not_ignored(hint: Any) -> None:
    with pytest.raises(InvalidRequest):
        request_of(pair("p", **{HINT: hint}))


@pytest.mark.parametrize(
    ("annotation", "content"),
    [
        ("gpu-partition-spec", {"allocatePolicy": "Strict"}),
        ("gpu-partition-spec", {"ringBusBandwidth": "x"}),
        ("device-joint-allocate", {"deviceTypes": "rdma"}),
        ("device-joint-allocate", {"requiredScope": "SameNUMA"}),
    ],
)
def test_what_cannot_be_read_is_an_invalid_request(annotation: str, content: Any) -> None:
    with pytest.raises(InvalidRequest):
        hints_of({f"scheduling.koordinator.sh/{annotation}": json.dumps(content)})


@pytest.mark.parametrize(
    "entry",
    [{"allocationScore": "high"}, {"minors": 5}, {"minors": [[0]]}, {"ringBusBandwidth": "x"}],
)
def test_partitions_of_a_device_object_that_cannot_be_read_are_none(entry: Any) -> None:
    found = DeviceObject(
        metadata=ObjectMeta(annotations={PARTITIONS: json.dumps({"2": [{"minors": [0], **entry}]})})
    )
    (info,) = FakeHandle([make_node("a")], ()).nodes
    assert inventory_of(info, found).partitions == ()


# ---- MIG -----------------------------------------------------------------------------------------

A100 = NodeDevice(0, memory=40 * GIB, mig=True)
H100 = NodeDevice(0, memory=int(79.6 * GIB), mig=True)


def test_where_mig_instances_begin() -> None:
    # A small one goes where a 4g.20gb and a 2g.10gb still fit.
    assert start_of("1g.5gb", A100, 0, 0) == 6
    assert start_of("4g.20gb", A100, 0b1000000, 1) == 0
    assert start_of("3g.20gb", A100, 0, 0) == 4
    assert start_of("7g.40gb", A100, 0, 0) == 0
    assert start_of("7g.40gb", A100, 1, 1) is None
    assert start_of("1g.10gb", H100, 0b1111111, 6) is None
    assert start_of("1g.10gb", H100, 0, 0) == 6
    assert start_of("9g.1gb", A100, 0, 0) is None
    assert start_of("small", A100, 0, 0) is None


def test_seven_small_instances_fill_a_gpu() -> None:
    node = usage(devices=(A100,))
    request = PodDeviceRequest("nvidia", (Share(7, profile="1g.5gb"),))
    found = place(node, request, most_used_first)
    assert found is not None
    assert sorted(one.start for one in found) == [0, 1, 2, 3, 4, 5, 6]
    assert (
        place(node, PodDeviceRequest("nvidia", (Share(8, profile="1g.5gb"),)), most_used_first)
        is None
    )


def test_mig_instances_and_other_users_do_not_share_a_gpu() -> None:
    node = make_node(
        "a",
        resources={"nvidia.com/gpu": 2, "nvidia.com/mig-3g.20gb": 4},
        labels={"nvidia.com/mig.capable": "true", "nvidia.com/gpu.memory": "40960"},
    )
    strategy = {"DeviceShare": {"scoringStrategy": {"type": "MostAllocated"}}}
    cluster = Harness([DeviceShare], [node], args=strategy)

    def instance(name: str) -> Any:
        return make_pod(name, resources={"nvidia.com/mig-3g.20gb": 1})

    def half(name: str) -> Any:
        return make_pod(name, metadata={"annotations": {"gpu-fraction": "0.5"}})

    for one in (instance("p"), half("h"), instance("q"), instance("r")):
        cluster.schedule(one)
    assert placed(cluster, "p") == placed(cluster, "q") == {"gpu": [0]}
    assert placed(cluster, "h") == {"gpu": [1]}
    assert cluster.outcome("default/r").why_not("a") == "DeviceShare: Insufficient free devices"

    bound = [cluster.pod(f"default/{name}") for name in ("p", "h")]
    again = Harness([DeviceShare], [node], bound, args=strategy)
    again.schedule(instance("q"))
    assert placed(again, "q") == {"gpu": [0]}
    assert again.schedule(instance("r")).node == ""


def test_instances_that_exist_are_left_to_node_resources_fit() -> None:
    cluster = Harness([DeviceShare], [make_node("a", resources={"nvidia.com/mig-1g.5gb": 1})])
    asked = {"nvidia.com/mig-1g.5gb": 1}
    assert cluster.schedule(make_pod("p", resources=asked)).node == "a"
    outcome = cluster.schedule(make_pod("q", resources=asked))
    assert outcome.why_not("a") == "NodeResourcesFit: Insufficient nvidia.com/mig-1g.5gb"


# ---- fragmentation -------------------------------------------------------------------------------


def pod_with_gpus(count: int, cpu: str = "1", **more: Any) -> PodInfo:
    return make_pod("p", cpu, resources={"nvidia.com/gpu": count}, **more)


def seen(*pods: PodInfo, size: int = 10) -> RecentGpuPods:
    recent = RecentGpuPods(size)
    for pod in pods:
        request = request_of(pod)
        assert request is not None
        recent.note(pod, request)
    return recent


def usable(recent: RecentGpuPods, node: NodeInfo, usage: NodeDeviceUsage, cpu: int = 0) -> float:
    """Return the usable thousandths beside a pod with so much CPU."""
    kind = recent.kind(node, usage.inventory)
    free_cpu = node.allocatable["cpu"] - cpu
    return recent.usable(Room(kind, free_cpu, node.allocatable["memory"], free_gpus(usage)))


def free_node(cpu: str = "16", **more: Any) -> NodeInfo:
    node = NodeInfo("a")
    node.set_node(make_node("a", cpu, **more))
    return node


def test_gpus_that_the_cpus_of_the_node_do_not_suffice_for_are_wasted() -> None:
    recent = seen(pod_with_gpus(1, "12"))
    two_free = usage(*range(6))
    assert usable(recent, free_node(), two_free) == 1000
    assert usable(recent, free_node(), two_free, cpu=4000) == 1000
    assert usable(recent, free_node(), two_free, cpu=8000) == 0


def test_gpus_that_are_too_few_are_wasted() -> None:
    recent = seen(pod_with_gpus(4))
    assert usable(recent, free_node(), usage(0, 1, 2, 3, 4)) == 0
    assert usable(recent, free_node(), usage(0, 1, 2, 3)) == 4000


def test_before_any_pod_is_seen_whole_gpus_are_usable() -> None:
    part_used = usage(*range(6))
    part_used.add([Grant("gpu", 6, 300, 0, 300)])
    assert usable(RecentGpuPods(10), free_node(), part_used) == 1000


def test_what_is_left_of_a_shared_gpu_is_usable_by_pods_that_ask_for_so_little() -> None:
    one = usage(*range(7))
    one.add([Grant("gpu", 7, 500, 0, 500)])
    half = make_pod("p", metadata={"annotations": {"gpu-fraction": "0.5"}})
    assert usable(seen(half), free_node(), one) == 500
    one.add([Grant("gpu", 7, 100, 0, 100)])
    assert usable(seen(half), free_node(), one) == 0


def test_gpus_of_a_node_that_recent_pods_cannot_run_on_are_wasted() -> None:
    elsewhere = pod_with_gpus(1, node_selector={"model": "b"})
    assert usable(seen(elsewhere), free_node(labels={"model": "a"}), usage()) == 0
    assert usable(seen(elsewhere), free_node(labels={"model": "b"}), usage()) == 8000
    tainted = free_node(taints=["model=a:NoSchedule"])
    assert usable(seen(pod_with_gpus(1)), tainted, usage()) == 0


def test_pods_with_several_gpus_are_replayed_first() -> None:
    recent = seen(*[pod_with_gpus(1, "1")] * 7, pod_with_gpus(8, "9"), size=8)
    assert usable(recent, free_node("9"), usage()) == 8000


def test_mig_instances_are_replayed_by_their_slices() -> None:
    cards = tuple(NodeDevice(n, memory=40 * GIB, mig=True) for n in range(2))
    profile = make_pod("p", resources={"nvidia.com/mig-3g.20gb": 3})
    assert usable(seen(profile), free_node(), usage(devices=cards)) == 1500


def test_the_pods_that_are_replayed_change_as_others_are_seen() -> None:
    recent = seen(*[pod_with_gpus(8)] * 2, size=2)
    assert usable(recent, free_node(), usage(0)) == 0
    generation = recent.generation
    for pod in [pod_with_gpus(1)] * 2:
        recent.note(pod, PodDeviceRequest("nvidia", (WHOLE,)))
    assert recent.generation == generation + 1
    assert usable(recent, free_node(), usage(0)) == 7000


def test_scores_are_kept_as_long_as_the_same_pods_come() -> None:
    recent = seen(*[pod_with_gpus(1)] * 4, size=4)
    generation = recent.generation
    for _ in range(20):
        recent.note(pod_with_gpus(1), PodDeviceRequest("nvidia", (WHOLE,)))
    assert recent.generation == generation


def test_a_pod_without_gpus_avoids_the_cpus_that_gpus_need() -> None:
    args = {"DeviceShare": {"scoringStrategy": {"type": "LeastFragmented"}}}
    nodes = [
        make_node(name, cpu, resources={"nvidia.com/gpu": 2})
        for name, cpu in (("scarce", "16"), ("ample", "64"))
    ]
    cluster = Harness([DeviceShare], nodes, args=args, weights={"DeviceShare": 100})
    cluster.schedule(make_pod("seen", "8", resources={"nvidia.com/gpu": 2}))
    cluster.remove("Pod", "seen")
    assert cluster.schedule(make_pod("plain", "9")).node == "ample"


def test_a_pod_goes_where_it_leaves_the_most_for_the_others() -> None:
    args = {"DeviceShare": {"scoringStrategy": {"type": "LeastFragmented"}}}
    nodes = [make_node(name, "32", resources={"nvidia.com/gpu": 2}) for name in ("a", "b")]
    cluster = Harness([DeviceShare], nodes, args=args)
    for name in ("a", "b"):
        whole_node = make_pod(f"two-{name}", resources={"nvidia.com/gpu": 2})
        cluster.schedule(whole_node)
        cluster.remove("Pod", f"two-{name}")
    first = cluster.schedule(make_pod("first", resources={"nvidia.com/gpu": 1})).node
    # The second single GPU spoils nothing beside the first one.
    assert cluster.schedule(make_pod("second", resources={"nvidia.com/gpu": 1})).node == first


# ---- accounts hold under any order of arrivals and departures ------------------------------------

_SHARES = st.sampled_from(
    (
        WHOLE,
        Share(2, 1000, 0, 1000),
        Share(1, 300, 0, 500),
        Share(1, 0, 10 * GIB),
        Share(1, profile="2g.10gb"),
        Share(2, 250, 0, 250),
    )
)


@given(st.lists(st.tuples(_SHARES, st.booleans(), st.integers(0, 9)), max_size=40))
def test_no_device_is_given_away_twice(script: list[tuple[Share, bool, int]]) -> None:
    devices = tuple(NodeDevice(n, memory=40 * GIB, mig=n < 2) for n in range(4))
    node, placed_pods = usage(devices=devices), []
    for share, leaves, which in script:
        if leaves and placed_pods:
            node.add(placed_pods.pop(which % len(placed_pods)), sign=-1)
            continue
        grants = place(node, PodDeviceRequest("nvidia", (share,)), most_used_first)
        if grants is not None:
            node.add(grants)
            placed_pods.append(grants)
        for one in node.by_key.values():
            assert 0 <= one.milli <= 1000
            assert 0 <= one.memory <= one.device.memory_capacity
            assert one.compute_slices <= 7
            assert not (one.instances and one.milli)
    for grants in placed_pods:
        node.add(grants, sign=-1)
    assert all(not one.users and not one.slices for one in node.by_key.values())
