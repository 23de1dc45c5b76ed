"""Plugins that read single nodes (resources, taints, labels, ports, images), and gates."""

from __future__ import annotations

from typing import Any

from envtest import objects
from envtest.scenario_cluster import ScenarioCluster

Json = dict[str, Any]

FULL = [{"key": "full", "value": "yes", "effect": "NoSchedule"}]
SOFT = [{"key": "slow", "effect": "PreferNoSchedule"}]
DEVICE = "example.com/device"


def preferred(weight: int, key: str, value: str) -> Json:
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def affinity(required: list[Json] | None = None, **preferences: Any) -> Json:
    rules: Json = {}
    if required is not None:
        terms = {"nodeSelectorTerms": required}
        rules["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if preferences:
        rules["preferredDuringSchedulingIgnoredDuringExecution"] = preferences["preferred"]
    return {"nodeAffinity": rules}


def nodes_are_scored_by_what_is_left(cluster: ScenarioCluster) -> None:
    """Pods are scheduled one after the other, with requests of all kinds of containers."""
    cluster.node("small", 4, memory="16Gi")
    cluster.node("wide", 16, memory="20Gi")
    cluster.node("deep", 7, memory="100Gi")
    cluster.settle()
    sidecar = {
        "name": "side",
        "image": "pause",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "1500m", "memory": "3Gi"}},
    }
    first = {
        "name": "first",
        "image": "pause",
        "resources": {"requests": {"cpu": "3", "memory": "1Gi"}},
    }
    cluster.place("cpu-1", "2", memory="1Gi")
    cluster.place("cpu-2", "2", memory="1Gi")
    cluster.place("memory-1", "500m", memory="6Gi")
    cluster.place("memory-2", "500m", memory="6Gi")
    cluster.place("parts", "1", memory="2Gi", initContainers=[sidecar, first])
    cluster.place("whole", "1", memory="2Gi", limits={"cpu": "1", "memory": "2Gi"})
    cluster.place("level", "1", memory="2Gi", resources={"requests": {"cpu": "3", "memory": "4Gi"}})
    cluster.bound(whole="small", level="deep")
    cluster.place("too-wide", "12", memory="1Gi")
    cluster.place("too-deep", "6", memory="90Gi")
    cluster.refused("too-deep", "0/3 nodes are available")


def nodes_are_preferred_by_weight(cluster: ScenarioCluster) -> None:
    """Preferred labels, PreferNoSchedule taints and images, against the scores of resources."""
    image = {"names": ["heavy:1"], "sizeBytes": 900 * 2**20}
    cluster.node("plain", 30)
    cluster.node("ssd", 16, labels={"disk": "ssd"})
    cluster.node("slow", 31, taints=SOFT)
    cluster.node("loaded", 17, status={"images": [image]})
    cluster.node("both", 8, labels={"disk": "ssd", "rack": "1"})
    cluster.settle()
    ssd, rack = preferred(60, "disk", "ssd"), preferred(40, "rack", "1")
    cluster.place("anywhere")
    cluster.place("likes-ssd", affinity=affinity(preferred=[ssd]))
    cluster.place("likes-both", affinity=affinity(preferred=[ssd, rack]))
    cluster.place("tolerant", tolerations=[{"key": "slow", "operator": "Exists"}])
    container = {"name": "main", "image": "heavy:1", "resources": {"requests": {"cpu": "1"}}}
    cluster.place("heavy", containers=[container])
    cluster.place("not-ssd", affinity=affinity([_term("disk", "DoesNotExist")], preferred=[ssd]))
    numbers = [{"key": "rack", "operator": "Gt", "values": ["0"]}]
    cluster.place("by-number", affinity=affinity([{"matchExpressions": numbers}]))
    fields = [{"key": "metadata.name", "operator": "In", "values": ["slow"]}]
    cluster.place("by-name", affinity=affinity([{"matchFields": fields}]))
    cluster.bound(**{"likes-both": "both", "by-number": "both", "by-name": "slow"})


def _term(key: str, operator: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator}]}


def unschedulable_pods_have_their_reasons(cluster: ScenarioCluster) -> None:
    """Each node rejects the pod for a different reason."""
    cluster.node("cordoned", 32, unschedulable=True)
    cluster.node("tainted", 31, taints=FULL)
    cluster.node("tiny", 1, memory="1Gi")
    cluster.node("busy", 8, resources={DEVICE: "2"}, labels={"disk": "ssd"})
    cluster.node("no-pods", 16, pods=0)
    cluster.pod("there", "6", on="busy", host_port=80, limits={DEVICE: "1"})
    cluster.settle()
    ssd = {"nodeSelector": {"disk": "ssd"}}
    cluster.place("too-big", "40")
    cluster.place("nearly", "4", memory="2Gi")
    cluster.place("port", "100m", host_port=80)
    cluster.place("device", "100m", limits={DEVICE: "2"})
    cluster.place("unknown-device", "100m", limits={"example.com/none": "1"})
    cluster.place("ssd", "3", **ssd)
    cluster.place("tape", nodeSelector={"disk": "tape"})
    cluster.place("name", affinity=affinity([{"matchFields": [_name("nowhere")]}]))
    cluster.place("never", "40", priority="polite")
    cluster.refused("tape", "0/5 nodes are available")
    cluster.bound(there="busy")


def _name(value: str) -> Json:
    return {"key": "metadata.name", "operator": "In", "values": [value]}


def changes_of_nodes_wake_pods(cluster: ScenarioCluster) -> None:
    """Each change makes one pod schedulable, long before the flush of unschedulable pods."""
    cluster.node("cordoned", 4, unschedulable=True, labels={"for": "cordon"})
    cluster.node("tainted", 5, taints=FULL, labels={"for": "taint"})
    cluster.node("plain", 6)
    cluster.node("small", 2, labels={"for": "capacity"})
    cluster.node("busy", 3, labels={"for": "port"})
    cluster.pod("holder", "2", on="busy", host_port=80)
    cluster.settle()
    for name in ("cordon", "taint", "label", "new"):
        cluster.place(name, nodeSelector={"for": name})
    cluster.place("capacity", "3", nodeSelector={"for": "capacity"})
    cluster.place("port", "100m", host_port=80, nodeSelector={"for": "port"})
    cluster.place("freed", "2", nodeSelector={"for": "port"})
    cluster.note("all wait")
    cluster.change_node("cordoned", {"spec": {"unschedulable": None}})
    cluster.change_node("tainted", {"spec": {"taints": None}})
    cluster.change_node("plain", {"metadata": {"labels": {"for": "label"}}})
    cluster.change_node("small", {"status": {"allocatable": {"cpu": "4"}}}, status=True)
    cluster.node("fresh", 3, labels={"for": "new"})
    cluster.end("holder")
    cluster.bound(cordon="cordoned", taint="tainted", label="plain", new="fresh")
    cluster.bound(capacity="small", port="busy", freed="busy")


def changes_of_pods_wake_them(cluster: ScenarioCluster) -> None:
    """A toleration that is added, and a pod that ends."""
    cluster.node("tainted", 4, taints=FULL)
    cluster.node("small", 3)
    cluster.pod("runs", "2", on="small")
    cluster.settle()
    cluster.place("intolerant", nodeSelector={"kubernetes.io/hostname": "tainted"})
    cluster.place("second", "2", nodeSelector={"kubernetes.io/hostname": "small"})
    cluster.note("both wait")
    tolerations = {"spec": {"tolerations": [{"key": "full", "operator": "Exists"}]}}
    cluster.change(objects.PODS.format("default") + "/intolerant", tolerations)
    cluster.bound(intolerant="tainted")
    ended = {"status": {"phase": "Succeeded"}}
    cluster.change(objects.PODS.format("default") + "/runs/status", ended)
    cluster.bound(second="small")


def gates_hold_pods_until_they_are_gone(cluster: ScenarioCluster) -> None:
    """Two gates are removed one by one; a later pod must not wait for the gated one."""
    cluster.node("only", 4)
    cluster.settle()
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    cluster.place("gated", "3", schedulingGates=gates)
    cluster.refused("gated", "non-empty scheduling gates")
    cluster.place("quick", "2")
    cluster.note("one is gated")
    path = objects.PODS.format("default") + "/gated"
    cluster.change(path, {"spec": {"schedulingGates": gates[1:]}})
    cluster.settle()
    cluster.note("a gate is gone")
    cluster.change(path, {"spec": {"schedulingGates": None}})
    cluster.refused("gated", "Insufficient cpu")
    cluster.note("both are gone")
    cluster.end("quick")
    cluster.bound(gated="only")


SCENARIOS = (
    nodes_are_scored_by_what_is_left,
    nodes_are_preferred_by_weight,
    unschedulable_pods_have_their_reasons,
    changes_of_nodes_wake_pods,
    changes_of_pods_wake_them,
    gates_hold_pods_until_they_are_gone,
)
