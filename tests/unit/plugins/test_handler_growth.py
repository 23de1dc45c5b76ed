"""What an event costs grows with the objects that it concerns: volumes, devices, native groups.

A tenant has some objects of each kind, and as many pods that use them. The objects come, change and
go, without pods, under pods that were tried, and from pods that wait for them. Four times as many
are four times the work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from proreus.testing import Harness, HarnessOptions, make_pod
from unit.growth import MOST_FOR_FOUR_TIMES, steps

Objects = list[dict[str, Any]]
FEW = 10

GROUP_GATES = (
    "GenericWorkload=true",
    "TopologyAwareWorkloadScheduling=true",
    "CompositePodGroup=true",
)
CLUSTER_SCOPED = frozenset(
    (
        "CSIDriver",
        "CSINode",
        "DeviceClass",
        "DeviceTaintRule",
        "Node",
        "PersistentVolume",
        "ResourceSlice",
        "StorageClass",
        "VolumeAttachment",
    )
)


def made(kind: str, name: str, spec: Any = None, **more: Any) -> dict[str, Any]:
    """Return an object; what has no spec gets its fields from ``more``."""
    meta: dict[str, Any] = {"name": name, "uid": f"{kind}-{name}"}
    if kind not in CLUSTER_SCOPED:
        meta["namespace"] = "default"
    return {"kind": kind, "metadata": meta} | ({} if spec is None else {"spec": spec}) | more


def node(name: str, cpu: str = "1000") -> dict[str, Any]:
    capacity = {"cpu": cpu, "memory": "1000Gi", "pods": "10000"}
    labels = {"kubernetes.io/hostname": name}
    found = made("Node", name, status={"allocatable": capacity, "capacity": capacity})
    found["metadata"]["labels"] = labels
    return found


# ---- volumes -----------------------------------------------------------------------------------


def volume_objects(one: int) -> Objects:
    """Return what the pod of a number needs: a volume of a class and a driver of its own."""
    driver, claim, size = f"d{one}", f"c{one}", {"storage": "1Gi"}
    at_n0 = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [at_n0]}]}}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": f"s{one}",
        "nodeAffinity": affinity,
        "csi": {"driver": driver, "volumeHandle": f"v{one}"},
    }
    requested = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": f"s{one}",
        "resources": {"requests": size},
    }
    attached = {
        "attacher": driver,
        "nodeName": "n0",
        "source": {"persistentVolumeName": f"other{one}"},
    }
    return [
        made("PersistentVolumeClaim", claim, requested),
        made("PersistentVolume", f"v{one}", volume),
        made(
            "StorageClass",
            f"s{one}",
            provisioner=driver,
            volumeBindingMode="WaitForFirstConsumer",
        ),
        made("CSINode", f"n{one}", {"drivers": [{"name": driver, "allocatable": {"count": 9}}]}),
        made("VolumeAttachment", f"a{one}", attached),
        made(
            "CSIStorageCapacity",
            f"k{one}",
            storageClassName=f"s{one}",
            capacity="1Ti",
            nodeTopology={"matchLabels": {"kubernetes.io/hostname": "n0"}},
        ),
        made("CSIDriver", driver, {"storageCapacity": True}),
    ]


def pod_with_volume(one: int) -> Any:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"c{one}"}}
    return make_pod(f"p{one:04}", "1m", spec={"volumes": [volume]})


# ---- devices -----------------------------------------------------------------------------------


def device_objects(one: int) -> Objects:
    """Return what the pod of a number needs: a claim, a class, a device in its own pool."""
    exactly = {"deviceClassName": f"k{one}", "allocationMode": "ExactCount", "count": 1}
    pool = {"name": f"n{one}", "generation": 1, "resourceSliceCount": 1}
    devices = {"driver": "d", "pool": pool, "nodeName": f"n{one}", "devices": [{"name": "a"}]}
    return [
        made(
            "ResourceClaim",
            f"c{one}",
            {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        ),
        made("ResourceSlice", f"s{one}", devices),
        made("DeviceClass", f"k{one}", {"selectors": []}),
    ]


def pod_with_device(one: int) -> Any:
    claim = {"name": "c", "resourceClaimName": f"c{one}"}
    return make_pod(f"p{one:04}", "1m", spec={"resourceClaims": [claim]})


# ---- groups ------------------------------------------------------------------------------------


def group(kind: str, name: str, parent: str | None, **policy: Any) -> dict[str, Any]:
    spec = {"schedulingPolicy": policy, "parentCompositePodGroupName": parent}
    return made(kind, name, spec)


def gang(one: int) -> Objects:
    """Return a gang of one pod."""
    return [group("PodGroup", f"g{one}", None, gang={"minCount": 1})]


def small_tree(one: int) -> Objects:
    """Return a tree of its own for the pod of a number."""
    return [
        group("PodGroup", f"g{one}", f"r{one}", gang={"minCount": 1}),
        group("CompositePodGroup", f"r{one}", None, gang={"minGroupCount": 1}),
    ]


def large_tree(one: int) -> Objects:
    """Return a group of the one tree that all pods are in."""
    root = [group("CompositePodGroup", "r", None, gang={"minGroupCount": 1})] if one == 0 else []
    return [group("PodGroup", f"g{one}", "r", gang={"minCount": 1}), *root]


def pod_of_group(one: int) -> Any:
    return make_pod(f"p{one:04}", "1m", spec={"schedulingGroup": {"podGroupName": f"g{one}"}})


# ---- what happens ------------------------------------------------------------------------------

Part = tuple[Callable[[int], Objects], Callable[[int], Any], tuple[str, ...]]
PARTS: dict[str, Part] = {
    "volumes": (volume_objects, pod_with_volume, ()),
    "devices": (device_objects, pod_with_device, ()),
    "gangs": (gang, pod_of_group, GROUP_GATES),
    "small trees": (small_tree, pod_of_group, GROUP_GATES),
    "large tree": (large_tree, pod_of_group, GROUP_GATES),
}


class Tenant:
    """A cluster, and ``number`` pods of a tenant with their objects, ``by_kind``."""

    def __init__(self, part: str, number: int) -> None:
        objects_of, pod_of, gates = PARTS[part]
        nodes = [node(f"n{one}") for one in range(number)]
        self.cluster = Harness([], nodes, options=HarnessOptions(gates=gates))
        self.pods = [pod_of(one) for one in range(number)]
        self.by_kind: dict[str, Objects] = {}
        for obj in (obj for one in range(number) for obj in objects_of(one)):
            self.by_kind.setdefault(obj["kind"], []).append(obj)

    def come(self, kind: str) -> None:
        for obj in self.by_kind[kind]:
            self.cluster.add(obj)

    def change(self, kind: str) -> None:
        for obj in self.by_kind[kind]:
            self.cluster.add({**obj, "metadata": {**obj["metadata"], "labels": {"a": "b"}}})

    def go(self, kind: str, most: int | None = None) -> None:
        for obj in self.by_kind[kind][:most]:
            meta = obj["metadata"]
            self.cluster.remove(kind, meta["name"], meta.get("namespace", "default"))

    def pods_come(self) -> None:
        for pod in self.pods:
            self.cluster.add(pod)

    def pods_go(self) -> None:
        for pod in self.pods:
            self.cluster.remove("Pod", pod.name)

    def pods_are_tried(self) -> None:
        async def schedule() -> None:
            while await self.cluster._cluster.schedule_next() is not None:
                pass

        self.cluster._do(schedule())


class Work(dict[str, int]):
    """How much work each part of a tenant's day is."""

    def count(self, what: str, work: Callable[..., None], *arguments: Any) -> None:
        self[what] = steps(lambda: work(*arguments))


def whole_day(part: str, number: int) -> Work:
    """Return the work when all objects come before the pods, and go after them."""
    work, tenant = Work(), Tenant(part, number)
    for kind in tenant.by_kind:
        work.count(f"{kind} come", tenant.come, kind)
        work.count(f"{kind} change", tenant.change, kind)
    work.count("pods come", tenant.pods_come)
    work.count("pods are tried", tenant.pods_are_tried)
    for kind in tenant.by_kind:
        work.count(f"{kind} change under pods", tenant.change, kind)
    work.count("pods go", tenant.pods_go)
    for kind in tenant.by_kind:
        work.count(f"{kind} go", tenant.go, kind)
    return work


def day_without(kind: str, part: str, number: int) -> Work:
    """Return the work of pods that wait for objects of a kind, which come later."""
    work, tenant = Work(), Tenant(part, number)
    for other in tenant.by_kind.keys() - {kind}:
        tenant.come(other)
    work.count("pods come", tenant.pods_come)
    work.count("pods are tried", tenant.pods_are_tried)
    work.count("one comes to pods that wait", tenant.cluster.add, tenant.by_kind[kind][0])
    tenant.come(kind)
    work.count("one goes from pods that wait", tenant.go, kind, 1)
    work.count("pods go", tenant.pods_go)
    return work


def growth_of(work_of: Callable[[int], Work]) -> dict[str, float]:
    # What is imported, or made once, is no work of these objects.
    work_of(2)
    few, many = work_of(FEW), work_of(4 * FEW)
    return {what: round(many[what] / few[what], 1) for what in few}


@pytest.mark.parametrize("part", PARTS)
def test_four_times_as_many_objects_are_no_more_than_six_times_the_work(part: str) -> None:
    grown = growth_of(partial(whole_day, part))
    assert max(grown.values()) < MOST_FOR_FOUR_TIMES, grown


@pytest.mark.parametrize(
    ("part", "kind"),
    [(part, obj["kind"]) for part, (objects_of, _, _) in PARTS.items() for obj in objects_of(0)],
)
def test_four_times_as_many_pods_that_wait_are_no_more_than_six_times_the_work(
    part: str, kind: str
) -> None:
    grown = growth_of(partial(day_without, kind, part))
    assert max(grown.values()) < MOST_FOR_FOUR_TIMES, grown
