"""Judges from the apiserver's objects alone whether the schedulers kept their promises.

``observe`` gets every change of every object in the order in which the apiserver made it, so that
a node that was over-committed for a moment is found, not only one that still is at the end.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from envtest.assertions import key, node_of, terminal, thousandths

Json = dict[str, Any]

PODS, NODES, CLAIMS = "pods", "nodes", "resourceclaims"
VOLUMES, VOLUME_CLAIMS = "persistentvolumes", "persistentvolumeclaims"

APART = "fault-run/apart"
"""Pods with the same value of this label never share a node."""
VICTIM = "fault-run/victim"
"""Only pods with this label may be evicted."""


class Judge:
    """The cluster as the apiserver has it, and every broken promise, in ``violations``."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.bound_at: dict[str, float] = {}
        """By uid of the pod: when it was first seen bound."""
        self.evicted: set[str] = set()
        self.lock = threading.RLock()
        self.objects: dict[str, dict[str, Json]] = defaultdict(dict)
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, Json]] = defaultdict(dict)
        self._used: dict[str, Counter[str]] = defaultdict(Counter)
        self._device_of: dict[str, str] = {}

    def observe(self, kind: str, event: str, obj: Json, now: float) -> None:
        """Take a change: ``event`` is ADDED, MODIFIED or DELETED."""
        with self.lock:
            name = obj["metadata"].get("namespace", "") + "/" + obj["metadata"]["name"]
            if event == "DELETED":
                self.objects[kind].pop(name, None)
            else:
                self.objects[kind][name] = obj
            if kind == PODS:
                self._observe_pod(obj, event == "DELETED", now)
            elif kind == CLAIMS:
                self._observe_claim(obj, event == "DELETED")

    def replace(self, kind: str, objects: Mapping[str, Json], now: float) -> None:
        """Take a whole list: objects that are not in it are gone."""
        with self.lock:
            for name, obj in list(self.objects[kind].items()):
                if name not in objects or _uid(obj) != _uid(objects[name]):
                    self.observe(kind, "DELETED", obj, now)
            for obj in objects.values():
                self.observe(kind, "ADDED", obj, now)

    def pods(self) -> list[Json]:
        """Return the pods as last seen."""
        with self.lock:
            return list(self.objects[PODS].values())

    def listed(self, kind: str) -> dict[str, Json]:
        """Return the objects of a kind as last seen, by namespace/name."""
        with self.lock:
            return dict(self.objects[kind])

    def _observe_pod(self, pod: Json, deleted: bool, now: float) -> None:
        uid, where = _uid(pod), node_of(pod)
        if pod["metadata"].get("deletionTimestamp") and _disrupted(pod):
            self.evicted.add(uid)
            if VICTIM not in pod["metadata"].get("labels", {}):
                self.violations.append(f"{key(pod)} was evicted, which is no victim")
        before = self._node_of.get(uid)
        if before is not None and where != before:
            self.violations.append(f"{key(pod)} moved from {before} to {where}")
        if where is None:
            return
        self.bound_at.setdefault(uid, now)
        if deleted or terminal(pod):
            if self._on[where].pop(uid, None) is not None:
                self._used[where].subtract(_requests(pod))
            self._node_of.pop(uid, None)
        elif before is None:
            self._node_of[uid] = where
            self._on[where][uid] = pod
            self._used[where].update(_requests(pod))
            self.violations += self._conflicts(pod, where)

    def _conflicts(self, pod: Json, where: str) -> Iterator[str]:
        """Yield why a pod that was bound just now should not be where it is."""
        node = self.objects[NODES].get(f"/{where}")
        if node is None:
            yield f"{key(pod)} is on {where}, which does not exist"
            return
        for resource, amount in self._used[where].items():
            allocatable = node["status"]["allocatable"].get(resource, "0")
            if amount > thousandths(allocatable):
                yield f"{where} has {amount / 1000} of {allocatable} {resource} with {key(pod)}"
        ports = Counter(port for other in self._on[where].values() for port in _host_ports(other))
        yield from (f"{where} has port {p} {n} times" for p, n in ports.items() if n > 1)
        group = pod["metadata"].get("labels", {}).get(APART)
        together = [
            key(other)
            for other in self._on[where].values()
            if group is not None and other["metadata"].get("labels", {}).get(APART) == group
        ]
        if len(together) > 1:
            yield f"{where} has {together}, which must be apart"

    def _observe_claim(self, claim: Json, deleted: bool) -> None:
        name = f"{claim['metadata']['name']}/{_uid(claim)}"
        allocated = set() if deleted else set(_devices(claim))
        for device, owner in list(self._device_of.items()):
            if owner == name and device not in allocated:
                del self._device_of[device]
        for device in allocated:
            owner = self._device_of.setdefault(device, name)
            if owner != name:
                self.violations.append(f"device {device} is allocated to {owner} and {name}")

    # ---- at the end ------------------------------------------------------------------------------

    def final_violations(self) -> list[str]:
        """Return what must not be once everything has been scheduled."""
        with self.lock:
            return [
                *self.violations,
                *(f"{key(pod)} is not bound" for pod in self.pods() if node_of(pod) is None),
                *self._orphaned_devices(),
                *self._wrong_volumes(),
            ]

    def _orphaned_devices(self) -> Iterator[str]:
        by_uid = {_uid(pod): pod for pod in self.pods()}
        for name, claim in self.objects[CLAIMS].items():
            status = claim.get("status", {})
            for consumer in status.get("reservedFor", ()):
                if consumer["uid"] not in by_uid:
                    yield f"claim {name} is reserved for {consumer['name']}, which is gone"
            if status.get("allocation") and not status.get("reservedFor"):
                yield f"claim {name} is allocated for nobody"
        for pod in by_uid.values():
            for entry in pod["spec"].get("resourceClaims", ()):
                claim = self.objects[CLAIMS].get(f"default/{entry['resourceClaimName']}", {})
                consumers = claim.get("status", {}).get("reservedFor", ())
                if node_of(pod) and _uid(pod) not in {one["uid"] for one in consumers}:
                    yield f"{key(pod)} is bound without its claim"
                pools = {device.split("/")[0] for device in _devices(claim)}
                if node_of(pod) and pools - {node_of(pod)}:
                    yield f"{key(pod)} on {node_of(pod)} has devices of {pools}"

    def _wrong_volumes(self) -> Iterator[str]:
        taken: Counter[str] = Counter()
        for pod in self.pods():
            for entry in pod["spec"].get("volumes", ()):
                name = entry.get("persistentVolumeClaim", {}).get("claimName")
                if name is None or node_of(pod) is None:
                    continue
                claim = self.objects[VOLUME_CLAIMS].get(f"default/{name}", {})
                volume_name = claim.get("spec", {}).get("volumeName")
                volume = self.objects[VOLUMES].get(f"/{volume_name}")
                if volume is None:
                    yield f"{key(pod)} is bound without its volume"
                    continue
                taken[str(volume_name)] += 1
                if _host_of(volume) != node_of(pod):
                    yield f"{key(pod)} on {node_of(pod)} has a volume on {_host_of(volume)}"
                if volume["spec"].get("claimRef", {}).get("uid") != _uid(claim):
                    yield f"volume {volume_name} of {key(pod)} is of another claim"
        yield from (f"volume {name} has {n} pods" for name, n in taken.items() if n > 1)
        claims = {_uid(claim) for claim in self.objects[VOLUME_CLAIMS].values()}
        for name, volume in self.objects[VOLUMES].items():
            reference = volume["spec"].get("claimRef")
            if reference and reference.get("uid") not in claims:
                yield f"volume {name} is kept for {reference.get('name')}, which is gone"


def _uid(obj: Json) -> str:
    return str(obj["metadata"]["uid"])


def _disrupted(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "DisruptionTarget" for one in conditions)


def _requests(pod: Json) -> Counter[str]:
    total: Counter[str] = Counter(pods=1000)
    for container in pod["spec"]["containers"]:
        for resource, amount in container["resources"].get("requests", {}).items():
            if resource in ("cpu", "memory"):
                total[resource] += thousandths(amount)
    return total


def _host_ports(pod: Json) -> Iterator[int]:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            if number := port.get("hostPort"):
                yield number


def _devices(claim: Json) -> Iterator[str]:
    allocation = claim.get("status", {}).get("allocation") or {}
    for result in allocation.get("devices", {}).get("results", ()):
        yield f"{result['pool']}/{result['device']}"


def _host_of(volume: Json) -> str:
    [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return str(term["matchExpressions"][0]["values"][0])
