"""Nodes, pods and related objects for the benchmarks of this folder.

Plain dicts as they are posted to an apiserver, with the API's defaults that the engine relies on.
This module does not measure anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SCHEDULER = "default-scheduler"
DRIVER = "bench.example.com"
ZONES = 3
VOLUMES_A_NODE, DEVICES_A_NODE = 39, 8
PROFILE: Json = {
    "schedulerName": SCHEDULER,
    "pluginConfig": [{"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 100}}],
}
"""The default configuration, except that preemption tries every node instead of a tenth."""

WAITING = {"waiting": "yes"}
"""A label of the pending pods."""

_ALIKE = {"matchLabels": {"color": "blue"}}


# ---- objects -------------------------------------------------------------------------------------


def node(number: int) -> Json:
    """Return a node of 32 CPUs in one of three zones."""
    name = f"node-{number}"
    resources = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {HOST: name, ZONE: f"zone-{number % ZONES}"},
        },
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(
    name: str,
    spec: Json | None = None,
    *,
    labels: Json | None = None,
    cpu: str = "100m",
    memory: str = "500Mi",
    node_name: str = "",
) -> Json:
    """Return a pod with one container and no grace period."""
    requests = {"cpu": cpu, "memory": memory}
    placed = {"nodeName": node_name} if node_name else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels or {}},
        "spec": {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "app:1", "resources": {"requests": requests}}],
            **placed,
            **(spec or {}),
        },
    }


# ---- families of constraints ---------------------------------------------------------------------


def _nothing(name: str) -> Iterable[Json]:
    return ()


@dataclass(frozen=True)
class Family:
    """Pods with one kind of constraint.

    ``spec``: returns the spec of a pod, by its name. ``one_in``: one in so many of the existing
    pods has the constraint too; 0 = none. ``belongings``, ``of_node``: return the objects that go
    with a pod or a node. ``once``: further objects.
    """

    spec: Callable[[str], Json]
    one_in: int = 2
    belongings: Callable[[str], Iterable[Json]] = _nothing
    of_node: Callable[[str], Iterable[Json]] = _nothing
    once: tuple[Json, ...] = ()

    def pending(self, name: str) -> Json:
        """Return a pending pod."""
        return pod(name, self.spec(name), labels={"color": "blue", **WAITING})

    def placed(self, count: int, nodes: int) -> Iterator[Json]:
        """Yield the existing pods, spread over the nodes."""
        for number in range(count):
            constrained = self.one_in > 0 and number % self.one_in == 0
            where = number // self.one_in if constrained else number
            name = f"placed-{number}"
            yield pod(
                name,
                self.spec(name) if constrained else None,
                labels={"color": "blue" if constrained else "red"},
                node_name=f"node-{where % nodes}",
            )


def _spread(action: str) -> Callable[[str], Json]:
    """Topology spread constraints over zones."""
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": action,
        "labelSelector": _ALIKE,
    }
    return lambda name: {"topologySpreadConstraints": [constraint]}


def _required(kind: str, key: str) -> Callable[[str], Json]:
    """Required affinity or anti-affinity to pods of the same family."""
    term = {"labelSelector": _ALIKE, "topologyKey": key}
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return lambda name: {"affinity": affinity}


def _preferred(kind: str, key: str) -> Callable[[str], Json]:
    """Preferred affinity or anti-affinity to pods of the same family."""
    term = {"weight": 1, "podAffinityTerm": {"labelSelector": _ALIKE, "topologyKey": key}}
    affinity = {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return lambda name: {"affinity": affinity}


def _in_two_zones(name: str) -> Json:
    expression = {"key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def _with_claim(name: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def _bound_claim(name: str) -> Iterable[Json]:
    """Return a volume and the claim that it is bound to."""
    size = {"storage": "1Gi"}
    shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **shared,
            "capacity": size,
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
            "csi": {"driver": DRIVER, "volumeHandle": name},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {**shared, "volumeName": name, "resources": {"requests": size}},
    }


def _csi_node(name: str) -> Iterable[Json]:
    driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": VOLUMES_A_NODE}}
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    }


def _with_device(name: str) -> Json:
    return {"resourceClaims": [{"name": "device", "resourceClaimName": name}]}


def _device_claim(name: str) -> Iterable[Json]:
    exactly = {"deviceClassName": "bench", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", "exactly": exactly}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [request]}},
    }


def _device_slice(name: str) -> Iterable[Json]:
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"device-{number}"} for number in range(DEVICES_A_NODE)],
        },
    }


_DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "bench"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}

FAMILIES = {
    "plain": Family(lambda name: {}),
    "node affinity": Family(_in_two_zones),
    "hard spread": Family(_spread("DoNotSchedule")),
    "soft spread": Family(_spread("ScheduleAnyway")),
    "required affinity": Family(_required("podAffinity", ZONE)),
    "required anti-affinity": Family(_required("podAntiAffinity", HOST), one_in=10),
    "preferred affinity": Family(_preferred("podAffinity", HOST)),
    "preferred anti-affinity": Family(_preferred("podAntiAffinity", HOST)),
    "bound volume": Family(_with_claim, 0, _bound_claim, _csi_node),
    "device claim": Family(_with_device, 0, _device_claim, _device_slice, (_DEVICE_CLASS,)),
}


# ---- preemption ----------------------------------------------------------------------------------

MILLI_CPU = 32_000
APPS = 40
"""How many Deployments the less important pods belong to; with budgets, one for each."""
_IMPORTANT, _LEVELS = 1_000, 5


def _priority(level: int) -> Json:
    return {"priorityClassName": f"level-{level}", "priority": level}


def _priority_class(level: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"level-{level}"},
        "value": level,
    }


def _budget(app: str) -> Json:
    """Return a budget that allows two disruptions."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1},
        "status": {
            "disruptionsAllowed": 2,
            "currentHealthy": 3,
            "desiredHealthy": 1,
            "expectedPods": 3,
        },
    }


class Preempting(Family):
    """Pods that need a fifth of a node, where each node is full of 4 to 20 less important ones."""

    def pending(self, name: str) -> Json:
        """Return a preemptor."""
        spec = _priority(_IMPORTANT) | self.spec(name)
        return pod(name, spec, labels={"color": "blue", **WAITING}, cpu=f"{MILLI_CPU // 5}m")

    def placed(self, count: int, nodes: int) -> Iterator[Json]:
        """Yield the less important pods, as many as it takes to fill all nodes."""
        rng = random.Random(7)
        for number in range(nodes):
            pods_on_node = rng.randint(4, 20)
            for index in range(pods_on_node):
                yield pod(
                    f"placed-{number}-{index}",
                    _priority(rng.randrange(_LEVELS)),
                    labels={"app": f"app-{rng.randrange(APPS)}"},
                    cpu=f"{MILLI_CPU // pods_on_node}m",
                    node_name=f"node-{number}",
                )


_CLASSES = tuple(_priority_class(level) for level in (*range(_LEVELS), _IMPORTANT))
_BUDGETS = tuple(_budget(f"app-{number}") for number in range(APPS))

FAMILIES |= {
    "preemption": Preempting(lambda name: {}, once=_CLASSES),
    "preemption, budgets": Preempting(lambda name: {}, once=_CLASSES + _BUDGETS),
    "preemption, hard spread": Preempting(_spread("DoNotSchedule"), once=_CLASSES),
}
