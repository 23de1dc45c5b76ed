"""What nodes say of themselves: room, taints, labels, ports, images; and gates, which need none."""

from __future__ import annotations

from typing import Any

from testground import objects
from testground.stage import Stage

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
        rules["preferredDuringSchedulingIgnoredDuringExecution"] = preferences["wishes"]
    return {"nodeAffinity": rules}


def nodes_are_scored_by_what_is_left(stage: Stage) -> None:
    """Pods come one after the other; requests are summed up from all their parts."""
    stage.node("small", 4, memory="16Gi")
    stage.node("wide", 16, memory="20Gi")
    stage.node("deep", 7, memory="100Gi")
    stage.settle()
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
    stage.place("cpu-1", "2", memory="1Gi")
    stage.place("cpu-2", "2", memory="1Gi")
    stage.place("memory-1", "500m", memory="6Gi")
    stage.place("memory-2", "500m", memory="6Gi")
    stage.place("parts", "1", memory="2Gi", initContainers=[sidecar, first])
    stage.place("whole", "1", memory="2Gi", limits={"cpu": "1", "memory": "2Gi"})
    stage.place("level", "1", memory="2Gi", resources={"requests": {"cpu": "3", "memory": "4Gi"}})
    stage.bound(whole="small", level="deep")
    stage.place("too-wide", "12", memory="1Gi")
    stage.place("too-deep", "6", memory="90Gi")
    stage.refused("too-deep", "0/3 nodes are available")


def nodes_are_preferred_by_weight(stage: Stage) -> None:
    """Labels, taints that are only a wish, and images, against what room says."""
    image = {"names": ["heavy:1"], "sizeBytes": 900 * 2**20}
    stage.node("plain", 30)
    stage.node("ssd", 16, labels={"disk": "ssd"})
    stage.node("slow", 31, taints=SOFT)
    stage.node("loaded", 17, status={"images": [image]})
    stage.node("both", 8, labels={"disk": "ssd", "rack": "1"})
    stage.settle()
    ssd, rack = preferred(60, "disk", "ssd"), preferred(40, "rack", "1")
    stage.place("anywhere")
    stage.place("likes-ssd", affinity=affinity(wishes=[ssd]))
    stage.place("likes-both", affinity=affinity(wishes=[ssd, rack]))
    stage.place("tolerant", tolerations=[{"key": "slow", "operator": "Exists"}])
    container = {"name": "main", "image": "heavy:1", "resources": {"requests": {"cpu": "1"}}}
    stage.place("heavy", containers=[container])
    stage.place("not-ssd", affinity=affinity([_term("disk", "DoesNotExist")], wishes=[ssd]))
    numbers = [{"key": "rack", "operator": "Gt", "values": ["0"]}]
    stage.place("by-number", affinity=affinity([{"matchExpressions": numbers}]))
    fields = [{"key": "metadata.name", "operator": "In", "values": ["slow"]}]
    stage.place("by-name", affinity=affinity([{"matchFields": fields}]))
    stage.bound(**{"likes-both": "both", "by-number": "both", "by-name": "slow"})


def _term(key: str, operator: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator}]}


def refused_pods_are_told_why(stage: Stage) -> None:
    """Each node has a reason of its own."""
    stage.node("cordoned", 32, unschedulable=True)
    stage.node("tainted", 31, taints=FULL)
    stage.node("tiny", 1, memory="1Gi")
    stage.node("busy", 8, room={DEVICE: "2"}, labels={"disk": "ssd"})
    stage.node("no-pods", 16, pods=0)
    stage.pod("there", "6", on="busy", host_port=80, limits={DEVICE: "1"})
    stage.settle()
    ssd = {"nodeSelector": {"disk": "ssd"}}
    stage.place("too-big", "40")
    stage.place("nearly", "4", memory="2Gi")
    stage.place("port", "100m", host_port=80)
    stage.place("device", "100m", limits={DEVICE: "2"})
    stage.place("unknown-device", "100m", limits={"example.com/none": "1"})
    stage.place("ssd", "3", **ssd)
    stage.place("tape", nodeSelector={"disk": "tape"})
    stage.place("name", affinity=affinity([{"matchFields": [_name("nowhere")]}]))
    stage.place("never", "40", priority="polite")
    stage.refused("tape", "0/5 nodes are available")
    stage.bound(there="busy")


def _name(value: str) -> Json:
    return {"key": "metadata.name", "operator": "In", "values": [value]}


def changes_of_nodes_wake_pods(stage: Stage) -> None:
    """Each change helps one pod, which is bound long before anything is tried again by time."""
    stage.node("cordoned", 4, unschedulable=True, labels={"for": "cordon"})
    stage.node("tainted", 5, taints=FULL, labels={"for": "taint"})
    stage.node("plain", 6)
    stage.node("small", 2, labels={"for": "room"})
    stage.node("busy", 3, labels={"for": "port"})
    stage.pod("holder", "2", on="busy", host_port=80)
    stage.settle()
    for name in ("cordon", "taint", "label", "new"):
        stage.place(name, nodeSelector={"for": name})
    stage.place("room", "3", nodeSelector={"for": "room"})
    stage.place("port", "100m", host_port=80, nodeSelector={"for": "port"})
    stage.place("freed", "2", nodeSelector={"for": "port"})
    stage.note("all wait")
    stage.change_node("cordoned", {"spec": {"unschedulable": None}})
    stage.change_node("tainted", {"spec": {"taints": None}})
    stage.change_node("plain", {"metadata": {"labels": {"for": "label"}}})
    stage.change_node("small", {"status": {"allocatable": {"cpu": "4"}}}, status=True)
    stage.node("fresh", 3, labels={"for": "new"})
    stage.end("holder")
    stage.bound(cordon="cordoned", taint="tainted", label="plain", new="fresh")
    stage.bound(room="small", port="busy", freed="busy")


def changes_of_pods_wake_them(stage: Stage) -> None:
    """A toleration that is added, a request that gets smaller, a pod that ended."""
    stage.node("tainted", 4, taints=FULL)
    stage.node("small", 3)
    stage.pod("runs", "2", on="small")
    stage.settle()
    stage.place("intolerant", nodeSelector={"kubernetes.io/hostname": "tainted"})
    stage.place("second", "2", nodeSelector={"kubernetes.io/hostname": "small"})
    stage.note("both wait")
    tolerations = {"spec": {"tolerations": [{"key": "full", "operator": "Exists"}]}}
    stage.change(objects.PODS.format("default") + "/intolerant", tolerations)
    stage.bound(intolerant="tainted")
    ended = {"status": {"phase": "Succeeded"}}
    stage.change(objects.PODS.format("default") + "/runs/status", ended)
    stage.bound(second="small")


def gates_hold_pods_until_they_are_gone(stage: Stage) -> None:
    """Two gates, removed one by one; what comes later must not be held up."""
    stage.node("only", 4)
    stage.settle()
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    stage.place("gated", "3", schedulingGates=gates)
    stage.refused("gated", "non-empty scheduling gates")
    stage.place("quick", "2")
    stage.note("one is gated")
    path = objects.PODS.format("default") + "/gated"
    stage.change(path, {"spec": {"schedulingGates": gates[1:]}})
    stage.settle()
    stage.note("a gate is gone")
    stage.change(path, {"spec": {"schedulingGates": None}})
    stage.refused("gated", "Insufficient cpu")
    stage.note("both are gone")
    stage.end("quick")
    stage.bound(gated="only")


SCENARIOS = (
    nodes_are_scored_by_what_is_left,
    nodes_are_preferred_by_weight,
    refused_pods_are_told_why,
    changes_of_nodes_wake_pods,
    changes_of_pods_wake_them,
    gates_hold_pods_until_they_are_gone,
)
