"""Devices decide between nodes; which device of a node is given is compared in test_devices."""

from __future__ import annotations

from typing import Any

from testground.stage import GROUPS, Stage

Json = dict[str, Any]

DEVICE_API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DEVICE_API}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"


def _publish(stage: Stage, node: str, *devices: str, size: int = 1) -> None:
    attributes = {"size": {"int": size}}
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": attributes} for name in devices],
    }
    stage.add(f"{DEVICE_API}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def _claim(stage: Stage, name: str, *wishes: Json) -> None:
    if len(wishes) == 1:
        request: Json = {"name": "r", "exactly": wishes[0]}
    else:
        named = [{"name": f"w{number}", **wish} for number, wish in enumerate(wishes)]
        request = {"name": "r", "firstAvailable": named}
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    stage.add(CLAIMS, body)


def _wish(count: int = 1, size: int = 0) -> Json:
    expression = f'device.attributes["{DRIVER}"].size >= {size}'
    return {
        "deviceClassName": "gpu",
        "count": count,
        "selectors": [{"cel": {"expression": expression}}] if size else [],
    }


def _uses(*claims: str) -> Json:
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    return {"resourceClaims": entries}


def devices_decide_between_nodes(stage: Stage) -> None:
    """Pods follow devices, claims and preferences among alternatives; a new slice wakes one."""
    stage.node("none", 60)
    stage.node("small", 30)
    stage.node("large", 10)
    stage.node("late", 20)
    cel = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    body = {"metadata": {"name": "gpu"}, "spec": {"selectors": cel}}
    stage.add(f"{DEVICE_API}/deviceclasses", body)
    _publish(stage, "small", "s-0", "s-1")
    _publish(stage, "large", "l-0", "l-1", "l-2", size=2)
    _claim(stage, "any", _wish())
    _claim(stage, "big", _wish(size=2))
    _claim(stage, "alternatives", _wish(size=2), _wish())
    _claim(stage, "pair", _wish(2))
    _claim(stage, "huge", _wish(size=3))
    stage.settle()
    stage.place("any", **_uses("any"))
    stage.place("big", **_uses("big"))
    stage.place("alternatives", **_uses("alternatives"))
    stage.place("same-claim", **_uses("any"))
    stage.place("torn", **_uses("any", "big"))
    stage.place("pair", **_uses("pair"))
    stage.place("huge", **_uses("huge"))
    stage.pod("missing", **_uses("missing"))
    stage.bound(any="small", big="large", alternatives="large", **{"same-claim": "small"})
    stage.refused("pair", "cannot allocate all claims")
    stage.note("devices have run out")
    _publish(stage, "late", "x-0", "x-1", "x-2", size=3)
    stage.bound(pair="late", huge="late")
    stage.note("nobody has tried the pod whose claim is missing")
    _claim(stage, "missing", _wish(size=2))
    stage.bound(missing="large")


def _container_with(cpu: str, *claims: str) -> Json:
    """Return the part of a pod's spec that says that its container uses claims."""
    resources = {
        "requests": {"cpu": cpu, "memory": "1Gi"},
        "claims": [{"name": name} for name in claims],
    }
    container = {"name": "main", "image": "pause:3.10", "resources": resources}
    return {"containers": [container], **_uses(*claims)}


def _publish_cpus(stage: Stage, node: str, cpus: str, count: int) -> None:
    """Publish devices that each take so many cpus of their node."""
    mapped = {"cpu": {"allocationMultiplier": cpus}}
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {"name": f"d-{n}", "nodeAllocatableResourceMappings": mapped} for n in range(count)
        ],
    }
    stage.add(f"{DEVICE_API}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def devices_take_of_their_node(stage: Stage) -> None:
    """What devices take counts for pods with and without devices, and pods' statuses tell of it."""
    stage.node("wide", 10)
    stage.node("narrow", 5)
    stage.add(f"{DEVICE_API}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    _publish_cpus(stage, "wide", "3", 3)
    _publish_cpus(stage, "narrow", "3", 2)
    for name, count in (("one", 1), ("two", 2), ("unused", 1), ("again", 1)):
        _claim(stage, name, _wish(count))
    stage.settle()
    stage.place("two", **_container_with("1", "two"))
    stage.bound(two="wide")
    (told,) = stage.remains("two")["status"]["nodeAllocatableResourceClaimStatuses"]
    assert told["resources"] == {"cpu": "6"}
    stage.note("two devices take 6 cpus")
    stage.place("plain", "4")
    stage.bound(plain="narrow")
    stage.place("one", **_container_with("1", "one"))
    stage.refused("one", "Insufficient cpu")
    stage.place("unused", "1", **_uses("unused"))
    stage.refused("unused", "not referenced by any container")
    stage.place("shares", **_container_with("1", "two"))
    stage.refused("shares", "already used by another pod")
    stage.note("no node has room for one more")
    stage.change_node("wide", {"status": {"allocatable": {"cpu": "20"}}}, status=True)
    stage.bound(one="wide")


def groups_have_claims(stage: Stage) -> None:
    """A claim that a group names is reserved for the group; another one, for each pod."""
    stage.node("only", 20)
    stage.add(f"{DEVICE_API}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    _publish(stage, "only", "d-0", "d-1")
    _claim(stage, "of-group", _wish())
    _claim(stage, "of-pods", _wish())
    entries = [{"name": "of-group", "resourceClaimName": "of-group"}]
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": entries}
    stage.add(GROUPS, {"metadata": {"name": "group"}, "spec": spec})
    stage.settle()
    member = {"schedulingGroup": {"podGroupName": "group"}, **_uses("of-group", "of-pods")}
    stage.place("first", **member)
    stage.bound(first="only")
    stage.place("second", **member)
    stage.bound(second="only")
    assert _consumers(stage, "of-group") == ["podgroups/group"]
    assert _consumers(stage, "of-pods") == ["pods/first", "pods/second"]
    member["schedulingGroup"] = {"podGroupName": "no-such-group"}
    stage.pod("stray", **member)
    stage.settle()
    stage.note("a pod whose group is not there")


def _consumers(stage: Stage, claim: str) -> list[str]:
    status = stage.client.get(f"{CLAIMS}/{claim}")["status"]
    return sorted(f"{one['resource']}/{one['name']}" for one in status["reservedFor"])


SCENARIOS = (devices_decide_between_nodes,)
WITH_GATES = (devices_take_of_their_node, groups_have_claims)
