"""A pod that could run is tried, whatever change it was that made room for it.

Each test lets a whole scheduler reject a pod, makes one change, and waits for longer than a
back-off and for less than the flush of unschedulable pods. Up to 1.37 kube-scheduler leaves the pod
waiting in each of them (docs/parity.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.plugin import PermitPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.storage import NO_PROVISIONER
from proreus.testing import Harness, make_node, make_pod
from proreus.testing.volumes import (
    DRIVER,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
    spec_with_claims,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LONGER_THAN_A_BACK_OFF = 15
ZONE = "topology.kubernetes.io/zone"


def rejected(cluster: Harness, pod: PodInfo) -> None:
    outcome = cluster.schedule(pod)
    assert not outcome.node, outcome


def assert_bound_soon(cluster: Harness, pod: PodInfo, node_name: str = "") -> None:
    cluster.advance(LONGER_THAN_A_BACK_OFF)
    cluster.schedule_all()
    bound = cluster.pod(pod).spec.node_name
    assert bound == node_name if node_name else bound, cluster.outcome(pod)


def in_zone(name: str, zone: str, **more: Any) -> Any:
    return make_node(name, labels={ZONE: zone}, **more)


# ---- InterPodAffinity ----------------------------------------------------------------------------


def affinity(kind: str, app: str, key: str = ZONE, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {kind: {REQUIRED: [term]}}


def near(app: str, **more: Any) -> dict[str, Any]:
    return affinity("podAffinity", app, **more)


def apart(app: str, **more: Any) -> dict[str, Any]:
    return affinity("podAntiAffinity", app, **more)


TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def in_blue(app: str) -> PodInfo:
    return make_pod("other", namespace="blue", labels={"app": app}, node_name="a")


def test_a_pod_comes_to_a_namespace_that_a_term_selects() -> None:
    cluster = Harness(nodes=[in_zone("a", "a")], objects=[namespace("blue", team="x")])
    pod = make_pod("near", affinity=near("db", **TEAM))
    rejected(cluster, pod)

    cluster.add(in_blue("db"))

    assert_bound_soon(cluster, pod)


def test_a_pod_of_a_namespace_that_a_term_selects_is_relabelled() -> None:
    objects = [namespace("blue", team="x"), in_blue("db")]
    cluster = Harness(nodes=[in_zone("a", "a")], objects=objects)
    pod = make_pod("apart", affinity=apart("db", **TEAM))
    rejected(cluster, pod)

    cluster.patch("Pod", "other", {"metadata": {"labels": {"app": "web"}}}, "blue")

    assert_bound_soon(cluster, pod)


@pytest.mark.parametrize(
    ("terms", "before", "after"), [(near, "y", "x"), (apart, "x", "y"), (apart, "x", None)]
)
def test_a_namespace_gets_other_labels(terms: Any, before: str, after: str | None) -> None:
    objects = [namespace("blue", team=before), in_blue("db")]
    cluster = Harness(nodes=[in_zone("a", "a")], objects=objects)
    pod = make_pod("pod", affinity=terms("db", **TEAM))
    rejected(cluster, pod)

    cluster.patch("Namespace", "blue", {"metadata": {"labels": {"team": after}}}, "")

    assert_bound_soon(cluster, pod)


def test_the_pods_namespace_gets_other_labels() -> None:
    there = make_pod("other", node_name="a", affinity=apart("web", **TEAM))
    objects = [namespace("default", team="x"), there]
    cluster = Harness(nodes=[in_zone("a", "a")], objects=objects)
    pod = make_pod("pod", labels={"app": "web"})
    rejected(cluster, pod)

    cluster.patch("Namespace", "default", {"metadata": {"labels": {"team": "y"}}}, "")

    assert_bound_soon(cluster, pod)


FINISHED = {"status": {"phase": "Succeeded"}}
RELABELLED = {"metadata": {"labels": {"app": "web"}}}


@pytest.mark.parametrize("change", [None, FINISHED, RELABELLED], ids=["gone", "done", "relabelled"])
def test_a_lone_pod_with_affinity_to_itself_is_replaced(change: dict[str, Any] | None) -> None:
    """kubernetes/kubernetes#141354: the node of the old pod is cordoned."""
    old = make_pod("old", labels={"app": "db"}, node_name="a", affinity=near("db"))
    nodes = [in_zone("a", "a", unschedulable=True), in_zone("b", "b")]
    cluster = Harness(nodes=nodes, objects=[old])
    pod = make_pod("new", labels={"app": "db"}, affinity=near("db"))
    rejected(cluster, pod)

    if change is None:
        cluster.remove("Pod", "old")
    else:
        cluster.patch("Pod", "old", change)

    assert_bound_soon(cluster, pod, "b")


EXCLUSIVE = make_pod("there", node_name="a", affinity=apart("web"))


def test_a_new_node_is_out_of_reach_of_the_pods_that_keep_others_away() -> None:
    cluster = Harness(nodes=[in_zone("a", "a")], objects=[EXCLUSIVE])
    pod = make_pod("pod", labels={"app": "web"})
    rejected(cluster, pod)

    cluster.add(in_zone("b", "b"))

    assert_bound_soon(cluster, pod, "b")


def test_a_new_node_loses_its_taint() -> None:
    cluster = Harness(nodes=[in_zone("a", "a")], objects=[EXCLUSIVE])
    pod = make_pod("pod", labels={"app": "web"})
    rejected(cluster, pod)

    cluster.add(in_zone("b", "b", taints=["not-ready:NoSchedule"]))
    cluster.advance(LONGER_THAN_A_BACK_OFF)
    cluster.schedule_all()
    cluster.add(in_zone("b", "b"))

    assert_bound_soon(cluster, pod, "b")


def test_a_node_moves_to_another_zone_with_the_pod_that_keeps_others_away() -> None:
    cluster = Harness(nodes=[in_zone("a", "a"), in_zone("b", "a")], objects=[EXCLUSIVE])
    pod = make_pod("pod", labels={"app": "web"})
    rejected(cluster, pod)

    cluster.patch("Node", "a", {"metadata": {"labels": {ZONE: "b"}}}, "")

    assert_bound_soon(cluster, pod, "b")


# ---- PodTopologySpread ---------------------------------------------------------------------------


def test_a_pod_that_counts_is_being_deleted() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    nodes = [in_zone("a", "a"), in_zone("b", "b", unschedulable=True)]
    there = make_pod("there", labels={"app": "db"}, node_name="a")
    cluster = Harness(nodes=nodes, objects=[there])
    spec = {"topologySpreadConstraints": [constraint]}
    pod = make_pod("pod", labels={"app": "db"}, spec=spec)
    rejected(cluster, pod)

    being_deleted = {"deletionTimestamp": "2025-01-01T00:00:00Z", "finalizers": ["x/y"]}
    cluster.patch("Pod", "there", {"metadata": being_deleted})

    assert_bound_soon(cluster, pod, "a")


# ---- volumes -------------------------------------------------------------------------------------


def test_a_node_is_gone_with_the_pod_that_used_the_claim() -> None:
    objects = [make_claim("c", volume="v", modes=["ReadWriteOncePod"]), make_volume("v")]
    there = make_pod("there", node_name="a", spec=spec_with_claims("c"))
    cluster = Harness(nodes=[make_node("a"), make_node("b")], objects=[*objects, there])
    pod = make_pod("pod", spec=spec_with_claims("c"))
    rejected(cluster, pod)

    cluster.remove("Node", "a", "")

    assert_bound_soon(cluster, pod, "b")


@pytest.mark.parametrize("change", ["node", "limits", "driver"])
def test_no_limit_of_volumes_holds_any_more(change: str) -> None:
    objects = [make_claim("c", volume="v"), make_volume("v"), make_csi_node("a", {DRIVER: 0})]
    cluster = Harness(nodes=[make_node("a")], objects=objects)
    pod = make_pod("pod", spec=spec_with_claims("c"))
    rejected(cluster, pod)

    if change == "node":
        cluster.add(make_node("b"))
    elif change == "limits":
        cluster.remove("CSINode", "a", "")
    else:
        cluster.add(make_csi_node("a"))

    assert_bound_soon(cluster, pod)


CAPACITY = {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}


@pytest.mark.parametrize("change", ["changed", "deleted"])
def test_a_driver_no_longer_announces_its_capacity(change: str) -> None:
    objects = [make_claim("c"), make_storage_class(), CAPACITY]
    cluster = Harness(nodes=[make_node("a")], objects=objects)
    pod = make_pod("pod", spec=spec_with_claims("c"))
    rejected(cluster, pod)

    if change == "changed":
        cluster.patch("CSIDriver", DRIVER, {"spec": {"storageCapacity": False}}, "")
    else:
        cluster.remove("CSIDriver", DRIVER, "")

    cluster.advance(LONGER_THAN_A_BACK_OFF)
    assert cluster.queue_of(pod) == "active"


class Hold(PermitPlugin):
    """Lets the pod "first" wait."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return Status.wait(600) if pod.name == "first" else None

    def events_to_register(self) -> Iterable[ClusterEvent]:
        return ()


def test_a_pod_gives_up_the_volume_that_it_was_to_get() -> None:
    objects = [make_claim("c"), make_claim("d"), make_storage_class(provisioner=NO_PROVISIONER)]
    cluster = Harness([Hold], [make_node("a")], [*objects, make_volume("v", phase="Available")])
    first = make_pod("first", spec=spec_with_claims("c"))
    pod = make_pod("pod", spec=spec_with_claims("d"))
    cluster.schedule(first)
    rejected(cluster, pod)

    cluster.waiting(first).reject("Hold", "no longer")

    cluster.advance(LONGER_THAN_A_BACK_OFF)
    assert cluster.queue_of(pod) == "active"


# ---- nodes ---------------------------------------------------------------------------------------


def configured(plugin: str, **args: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}],
    }


def test_a_node_begins_to_match_the_affinity_of_the_profile() -> None:
    expression = {"key": "pool", "operator": "In", "values": ["batch"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    config = configured("NodeAffinity", addedAffinity={REQUIRED: terms})
    cluster = Harness(nodes=[make_node("a")], config=config)
    pod = make_pod("pod")
    rejected(cluster, pod)

    cluster.patch("Node", "a", {"metadata": {"labels": {"pool": "batch"}}}, "")

    assert_bound_soon(cluster, pod)


def test_a_domain_counts_no_more_for_pods_with_a_node_selector() -> None:
    nodes = [
        make_node("a", labels={ZONE: "a", "disk": "ssd"}),
        make_node("b", labels={ZONE: "b", "disk": "ssd"}, unschedulable=True),
    ]
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    there = make_pod("there", labels={"app": "db"}, node_name="a")
    cluster = Harness(nodes=nodes, objects=[there])
    spec = {"topologySpreadConstraints": [constraint]}
    pod = make_pod("pod", labels={"app": "db"}, node_selector={"disk": "ssd"}, spec=spec)
    rejected(cluster, pod)

    cluster.patch("Node", "b", {"metadata": {"labels": {"disk": "hdd"}}}, "")

    assert_bound_soon(cluster, pod, "a")


# ---- nominated pods ------------------------------------------------------------------------------


def nominated(**more: Any) -> PodInfo:
    gated = {"schedulingGates": [{"name": "x/y"}]}
    status = {"nominatedNodeName": "a"}
    return make_pod("vip", priority=10, spec=gated, status=status, **more)


def test_a_nominated_pod_is_bound_to_another_node() -> None:
    cluster = Harness(
        nodes=[make_node("a", cpu=1), make_node("b", cpu=1)],
        objects=[make_pod("there", cpu="100m", node_name="b"), nominated(cpu=1)],
    )
    pod = make_pod("pod", cpu=1)
    rejected(cluster, pod)

    cluster.patch("Pod", "vip", {"spec": {"nodeName": "b", "schedulingGates": None}})

    assert_bound_soon(cluster, pod, "a")


def test_a_nominated_pod_gets_other_labels() -> None:
    cluster = Harness(nodes=[in_zone("a", "a")], objects=[nominated(labels={"app": "db"})])
    pod = make_pod("pod", affinity=apart("db"))
    rejected(cluster, pod)

    cluster.patch("Pod", "vip", {"metadata": {"labels": {"app": "web"}}})

    assert_bound_soon(cluster, pod, "a")


# ---- devices -------------------------------------------------------------------------------------


def device_class(name: str, age: int = 0, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": f"2025-01-{20 - age}T00:00:00Z"}
    return {"kind": "DeviceClass", "metadata": metadata, "spec": spec}


def resource_slice(name: str) -> dict[str, Any]:
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "cards.example.com",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "a",
            "devices": [{"name": "card"}],
        },
    }


def device_claim(name: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "cards", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", "exactly": exactly}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


def user(name: str, claim: str) -> PodInfo:
    return make_pod(name, spec={"resourceClaims": [{"name": "r", "resourceClaimName": claim}]})


def test_a_pod_gives_up_the_device_that_it_was_to_get() -> None:
    devices = [device_class("cards"), resource_slice("s")]
    claims = [device_claim("c"), device_claim("d")]
    cluster = Harness([Hold], [make_node("a")], [*devices, *claims])
    first, pod = user("first", "c"), user("pod", "d")
    cluster.schedule(first)
    rejected(cluster, pod)

    cluster.waiting(first).reject("Hold", "no longer")

    assert_bound_soon(cluster, pod)


def test_a_pool_has_a_slice_too_many_until_it_is_deleted() -> None:
    devices = [device_class("cards"), resource_slice("s"), resource_slice("t")]
    cluster = Harness(nodes=[make_node("a")], objects=[*devices, device_claim("c")])
    pod = user("pod", "c")
    rejected(cluster, pod)

    cluster.remove("ResourceSlice", "t", "")

    assert_bound_soon(cluster, pod)


def test_another_class_provides_a_resource_once_the_newest_is_deleted() -> None:
    none = [{"cel": {"expression": "false"}}]
    classes = [
        device_class("old", age=1, extendedResourceName="example.com/card"),
        device_class("new", extendedResourceName="example.com/card", selectors=none),
    ]
    cluster = Harness(nodes=[make_node("a")], objects=[*classes, resource_slice("s")])
    pod = make_pod("pod", resources={"example.com/card": 1})
    rejected(cluster, pod)

    cluster.remove("DeviceClass", "new", "")

    assert_bound_soon(cluster, pod)
