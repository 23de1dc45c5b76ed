"""A pod that could run is tried, whatever change it was that made room for it.

Each test lets a whole scheduler reject a pod, makes one change, and waits for longer than a
back-off and for less than the flush of unschedulable pods. Up to 1.37 kube-scheduler leaves the pod
waiting in each of them (docs/parity.md).
"""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.pod_info import PodInfo
from proreus.testing import Harness, make_node, make_pod
from proreus.testing.volumes import (
    DRIVER,
    make_claim,
    make_csi_node,
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
