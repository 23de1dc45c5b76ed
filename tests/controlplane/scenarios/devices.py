"""Devices and the choice of nodes; ``test_devices`` compares which devices are allocated."""

from __future__ import annotations

from typing import Any

from envtest.scenario_cluster import GROUPS, ScenarioCluster

Json = dict[str, Any]

DEVICE_API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DEVICE_API}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"


def _publish(cluster: ScenarioCluster, node: str, *devices: str, size: int = 1) -> None:
    attributes = {"size": {"int": size}}
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": attributes} for name in devices],
    }
    cluster.add(f"{DEVICE_API}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def _claim(cluster: ScenarioCluster, name: str, *requests: Json) -> None:
    if len(requests) == 1:
        request: Json = {"name": "r", "exactly": requests[0]}
    else:
        named = [{"name": f"w{number}", **request} for number, request in enumerate(requests)]
        request = {"name": "r", "firstAvailable": named}
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    cluster.add(CLAIMS, body)


def _device_request(count: int = 1, size: int = 0) -> Json:
    expression = f'device.attributes["{DRIVER}"].size >= {size}'
    return {
        "deviceClassName": "gpu",
        "count": count,
        "selectors": [{"cel": {"expression": expression}}] if size else [],
    }


def _uses(*claims: str) -> Json:
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    return {"resourceClaims": entries}


def devices_decide_between_nodes(cluster: ScenarioCluster) -> None:
    """Nodes are chosen by devices, claims and prioritized alternatives; a new slice wakes a pod."""
    cluster.node("none", 60)
    cluster.node("small", 30)
    cluster.node("large", 10)
    cluster.node("late", 20)
    cel = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    body = {"metadata": {"name": "gpu"}, "spec": {"selectors": cel}}
    cluster.add(f"{DEVICE_API}/deviceclasses", body)
    _publish(cluster, "small", "s-0", "s-1")
    _publish(cluster, "large", "l-0", "l-1", "l-2", size=2)
    _claim(cluster, "any", _device_request())
    _claim(cluster, "big", _device_request(size=2))
    _claim(cluster, "alternatives", _device_request(size=2), _device_request())
    _claim(cluster, "pair", _device_request(2))
    _claim(cluster, "huge", _device_request(size=3))
    cluster.settle()
    cluster.place("any", **_uses("any"))
    cluster.place("big", **_uses("big"))
    cluster.place("alternatives", **_uses("alternatives"))
    cluster.place("same-claim", **_uses("any"))
    cluster.place("torn", **_uses("any", "big"))
    cluster.place("pair", **_uses("pair"))
    cluster.place("huge", **_uses("huge"))
    cluster.pod("missing", **_uses("missing"))
    cluster.bound(any="small", big="large", alternatives="large", **{"same-claim": "small"})
    cluster.refused("pair", "cannot allocate all claims")
    cluster.note("devices have run out")
    _publish(cluster, "late", "x-0", "x-1", "x-2", size=3)
    cluster.bound(pair="late", huge="late")
    cluster.note("there was no attempt for the pod whose claim is missing")
    _claim(cluster, "missing", _device_request(size=2))
    cluster.bound(missing="large")


def _container_with(cpu: str, *claims: str) -> Json:
    """Return the part of a pod's spec with which its container uses claims."""
    resources = {
        "requests": {"cpu": cpu, "memory": "1Gi"},
        "claims": [{"name": name} for name in claims],
    }
    container = {"name": "main", "image": "pause:3.10", "resources": resources}
    return {"containers": [container], **_uses(*claims)}


def _publish_cpus(cluster: ScenarioCluster, node: str, cpus: str, count: int) -> None:
    """Publish devices that each use an amount of their node's CPU."""
    mapped = {"cpu": {"allocationMultiplier": cpus}}
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {"name": f"d-{n}", "nodeAllocatableResourceMappings": mapped} for n in range(count)
        ],
    }
    cluster.add(f"{DEVICE_API}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def devices_take_of_their_node(cluster: ScenarioCluster) -> None:
    """Node resources used by devices count for all pods, and are in the status of their pods."""
    cluster.node("wide", 10)
    cluster.node("narrow", 5)
    cluster.add(f"{DEVICE_API}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    _publish_cpus(cluster, "wide", "3", 3)
    _publish_cpus(cluster, "narrow", "3", 2)
    for name, count in (("one", 1), ("two", 2), ("unused", 1), ("again", 1)):
        _claim(cluster, name, _device_request(count))
    cluster.settle()
    cluster.place("two", **_container_with("1", "two"))
    cluster.bound(two="wide")
    (status,) = cluster.remains("two")["status"]["nodeAllocatableResourceClaimStatuses"]
    assert status["resources"] == {"cpu": "6"}
    cluster.note("two devices take 6 cpus")
    cluster.place("plain", "4")
    cluster.bound(plain="narrow")
    cluster.place("one", **_container_with("1", "one"))
    cluster.refused("one", "Insufficient cpu")
    cluster.place("unused", "1", **_uses("unused"))
    cluster.refused("unused", "not referenced by any container")
    cluster.place("shares", **_container_with("1", "two"))
    cluster.refused("shares", "already used by another pod")
    cluster.note("no node has capacity for one more")
    cluster.change_node("wide", {"status": {"allocatable": {"cpu": "20"}}}, status=True)
    cluster.bound(one="wide")


def groups_have_claims(cluster: ScenarioCluster) -> None:
    """A claim of a PodGroup is reserved for the group; any other claim for each pod."""
    cluster.node("only", 20)
    cluster.add(f"{DEVICE_API}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    _publish(cluster, "only", "d-0", "d-1")
    _claim(cluster, "of-group", _device_request())
    _claim(cluster, "of-pods", _device_request())
    entries = [{"name": "of-group", "resourceClaimName": "of-group"}]
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": entries}
    cluster.add(GROUPS, {"metadata": {"name": "group"}, "spec": spec})
    cluster.settle()
    member = {"schedulingGroup": {"podGroupName": "group"}, **_uses("of-group", "of-pods")}
    cluster.place("first", **member)
    cluster.bound(first="only")
    cluster.place("second", **member)
    cluster.bound(second="only")
    assert _consumers(cluster, "of-group") == ["podgroups/group"]
    assert _consumers(cluster, "of-pods") == ["pods/first", "pods/second"]
    member["schedulingGroup"] = {"podGroupName": "no-such-group"}
    cluster.pod("stray", **member)
    cluster.settle()
    cluster.note("a pod whose group is not there")


def _consumers(cluster: ScenarioCluster, claim: str) -> list[str]:
    status = cluster.client.get(f"{CLAIMS}/{claim}")["status"]
    return sorted(f"{one['resource']}/{one['name']}" for one in status["reservedFor"])


SCENARIOS = (devices_decide_between_nodes,)
WITH_GATES = (devices_take_of_their_node, groups_have_claims)
