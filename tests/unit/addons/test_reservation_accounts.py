"""A reservation beside other add-ons: its room is requested once, and nobody takes it for a pod."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.addons.device_share import DeviceShare
from proreus.addons.group_topology import GroupTopology
from proreus.addons.job_barrier import JobBarrier
from proreus.addons.load_aware_scheduling import LoadAwareScheduling
from proreus.addons.node_resource_topology_match import NodeResourceTopologyMatch
from proreus.addons.node_resource_topology_match.cache import fingerprint
from proreus.addons.reservation import Reservation
from proreus.framework import QueueSortPlugin
from proreus.insight.shadow.assembly import prepare_shadow
from proreus.insight.shadow.trial import ShadowLimits
from proreus.testing import Harness, make_node, make_pod
from unit.addons.test_coscheduling_plan import gang
from unit.addons.test_reservation import reservation, status, web


def cluster(plugins: list[type], *objects: Any, nodes: Any = None, **args: dict) -> Harness:
    points: dict[str, Any] = {"multiPoint": {"enabled": [{"name": one.name} for one in plugins]}}
    if CapacityScheduling in plugins:
        points["multiPoint"]["disabled"] = [{"name": "DefaultPreemption"}]
    for one in plugins:
        if issubclass(one, QueueSortPlugin):
            points["queueSort"] = {"enabled": [{"name": one.name}], "disabled": [{"name": "*"}]}
    config = [{"name": name, "args": given} for name, given in args.items()]
    profile = {"plugins": points, "pluginConfig": config}
    return Harness(
        plugins,
        [make_node("a", "4")] if nodes is None else nodes,
        objects,
        config={
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        },
    )


def settle(harness: Harness, rounds: int = 5) -> None:
    for _ in range(rounds):
        harness.schedule_all()
        harness.advance(10)


def bound(harness: Harness, *names: str) -> list[str]:
    return [name for name in names if harness.pod(name).spec.node_name]


# ---- quotas --------------------------------------------------------------------------------------

QUOTA = {
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": "q", "namespace": "default"},
    "spec": {"min": {"cpu": 4}, "max": {"cpu": 4}},
}
QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "q"},
    "spec": {"deserved": {"cpu": 4}, "capability": {"cpu": 4}},
}
IN_QUEUE = {"scheduling.volcano.sh/queue-name": "q"}


@pytest.mark.parametrize(
    ("quota", "args"), [(QUOTA, {}), (QUEUE, {"queues": {"source": "Volcano"}})]
)
@pytest.mark.parametrize("order", [1, -1])
def test_owners_have_what_the_quota_counts_for_their_reservation(
    quota: dict, args: dict, order: int
) -> None:
    held = reservation()
    held["spec"]["template"]["metadata"] = {"annotations": IN_QUEUE}
    nodes = [make_node("a", "8"), make_node("b", "8")]
    plugins = [CapacityScheduling, Reservation][::order]
    harness = cluster(plugins, quota, held, nodes=nodes, CapacityScheduling=args)
    settle(harness)
    assert status(harness)["phase"] == "Available"
    on = status(harness)["node"]

    # The quota is used up, but for the owners, and for these on the reservation's node alone.
    harness.add(make_pod("other", "1", metadata={"annotations": IN_QUEUE}))
    harness.add(*(web(f"w{number}", "2", annotations=IN_QUEUE) for number in range(3)))
    settle(harness)
    assert bound(harness, "other", "w0", "w1", "w2") == ["w0", "w1"]
    assert {harness.pod(name).spec.node_name for name in ("w0", "w1")} == {on}

    harness.remove("Pod", "w0")
    settle(harness)
    assert bound(harness, "other", "w1", "w2") == ["w1", "w2"]
    harness.remove("Reservation", "r", namespace="")
    harness.remove("Pod", "w1")
    settle(harness)
    assert bound(harness, "other", "w2") == ["other", "w2"]


# ---- devices -------------------------------------------------------------------------------------

GPU = "nvidia.com/gpu"


def gpu_node(gpus: int) -> Any:
    return make_node("a", "16", resources={GPU: str(gpus)})


def gpu_reservation(gpus: int) -> dict:
    found = reservation(cpu="1")
    requests = found["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    requests[GPU] = str(gpus)
    return found


def gpu_pod(name: str, gpus: int, **given: Any) -> Any:
    return web(name, "100m", resources={GPU: str(gpus)}, **given)


@pytest.mark.parametrize("order", [1, -1])
def test_devices_are_held_and_given_to_owners(order: int) -> None:
    plugins = [DeviceShare, Reservation][::order]
    harness = cluster(plugins, gpu_reservation(3), nodes=[gpu_node(4)])
    settle(harness)
    assert status(harness)["phase"] == "Available"

    others = [gpu_pod(f"o{number}", 1, labels={"app": "other"}) for number in range(2)]
    harness.add(*others)
    settle(harness)
    assert bound(harness, "o0", "o1") == ["o0"]

    harness.add(gpu_pod("w0", 1), gpu_pod("w1", 2))
    settle(harness)
    assert bound(harness, "w0", "w1", "o1") == ["w0", "w1"]
    allocated = "scheduling.koordinator.sh/gpu-minors"
    minors = [harness.pod(name).metadata.annotations[allocated] for name in ("o0", "w0", "w1")]
    assert sorted(",".join(minors).split(",")) == ["0", "1", "2", "3"]

    # An owner that goes gives its devices back to the reservation.
    harness.remove("Pod", "w0")
    settle(harness)
    assert not bound(harness, "o1")
    harness.remove("Reservation", "r", namespace="")
    settle(harness)
    assert bound(harness, "o1")


# ---- NUMA ----------------------------------------------------------------------------------------


def topology(pods: list[tuple[str, str]], available: str = "4") -> dict:
    amounts = [("cpu", "4", available), ("memory", "8Gi", "8Gi")]
    resources = [
        {"name": name, "capacity": most, "allocatable": most, "available": left}
        for name, most, left in amounts
    ]
    attributes = {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "nodeTopologyPodsFingerprint": fingerprint(pods),
    }
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "a"},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": [{"name": "node-0", "type": "Node", "resources": resources}],
    }


def test_an_agents_report_need_not_know_a_reservation() -> None:
    container = {
        "name": "c",
        "resources": {key: {"cpu": "4", "memory": "1Gi"} for key in ("requests", "limits")},
    }
    held = reservation(template={"containers": [container]})
    args = {"cacheResyncPeriodSeconds": 5, "cache": {"foreignPodsDetect": "All"}}
    harness = cluster(
        [NodeResourceTopologyMatch, Reservation],
        topology([]),
        held,
        nodes=[make_node("a", "8", "16Gi")],
        NodeResourceTopologyMatch=args,
    )
    settle(harness)
    harness.add(web("w", "4", memory="1Gi", spec={"containers": [container]}))
    settle(harness)
    assert bound(harness, "w")
    cache = harness.plugin(NodeResourceTopologyMatch)._cache
    assert cache._entries["a"].dirty
    harness.add(topology([("default", "w")], "0"))
    settle(harness)
    assert not cache._entries["a"].dirty


# ---- groups and jobs -----------------------------------------------------------------------------


def test_a_group_is_placed_in_the_room_that_is_held_for_it() -> None:
    racks = [make_node(name, "4", labels={"rack": name}) for name in "ab"]
    harness = cluster(
        [Coscheduling, Reservation, GroupTopology],
        reservation(),
        gang("g", 3, minResources={"cpu": "3"}),
        make_pod("fills", "4", node_name="b"),
        nodes=racks,
        Coscheduling={"mode": "plan"},
        GroupTopology={"levels": ["rack"]},
    )
    settle(harness)
    assert status(harness) == {"phase": "Available", "node": "a"}
    required = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    labels = {POD_GROUP_LABEL: "g"}
    names = [f"p{number}" for number in range(3)]
    harness.add(*(web(name, labels=labels, annotations=required) for name in names))
    settle(harness)
    assert bound(harness, *names) == names


@pytest.mark.parametrize("mode", ["permit", "plan"])
def test_a_reservation_is_no_member_of_the_group_whose_labels_it_has(mode: str) -> None:
    held = reservation(cpu="1")
    held["spec"]["template"]["metadata"] = {"labels": {POD_GROUP_LABEL: "g"}}
    harness = cluster([Coscheduling, Reservation], gang("g", 3), held, Coscheduling={"mode": mode})
    settle(harness)
    assert status(harness)["phase"] == "Available"
    labels = {POD_GROUP_LABEL: "g", "app": "none"}
    harness.add(*(web(f"p{number}", labels=labels) for number in range(2)))
    settle(harness)
    assert not bound(harness, "p0", "p1")
    harness.add(web("p2", labels=labels))
    settle(harness, 10)
    assert bound(harness, "p0", "p1", "p2") == ["p0", "p1", "p2"]


def test_a_reservation_is_no_member_of_the_job_whose_labels_it_has() -> None:
    labels, least = {"proreus.dev/job": "j"}, {"proreus.dev/min-members": "2"}
    held = reservation(cpu="1")
    held["spec"]["template"]["metadata"] = {"labels": labels, "annotations": least}
    harness = cluster([JobBarrier, Reservation], held)
    settle(harness)
    assert status(harness)["phase"] == "Available"
    harness.add(web("p0", labels=labels, annotations=least))
    settle(harness)
    assert not bound(harness, "p0")
    harness.add(web("p1", labels=labels, annotations=least))
    settle(harness)
    assert bound(harness, "p0", "p1") == ["p0", "p1"]


def test_a_reservation_is_expected_to_use_nothing() -> None:
    harness = cluster([LoadAwareScheduling, Reservation], reservation())
    settle(harness, 1)
    harness.add(make_pod("p", "0"))
    settle(harness, 1)
    assert status(harness)["phase"] == "Available"
    assert len(list(harness.plugin(LoadAwareScheduling).recent.on("a"))) == 1


# ---- configurations ------------------------------------------------------------------------------


def test_a_configuration_that_is_tried_only_does_not_answer_for_reservations() -> None:
    harness = cluster([Reservation])
    assembly, in_force = harness._cluster.assembly, harness.scheduler.profile_set
    given = in_force.configuration, in_force.registry

    async def try_others() -> None:
        assembly.prepare(*given).close()
        harness.scheduler.shadow = prepare_shadow(assembly, *given, ShadowLimits(1.0, 1.0))

    harness._do(try_others())
    harness.add(reservation())
    settle(harness)
    assert status(harness) == {"phase": "Available", "node": "a"}
