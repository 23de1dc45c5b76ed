"""Devices and volumes that Reserve of a dry run's earlier pods took."""

from __future__ import annotations

from typing import Any

from .conftest import World, node, pod

DRIVER = "gpu.example.com"
DRA = "resource.k8s.io/v1"
STORAGE = "storage.k8s.io/v1"


def devices(number: int) -> Any:
    return {
        "apiVersion": DRA,
        "kind": "ResourceSlice",
        "metadata": {"name": "slice", "uid": "slice"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "a",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{one}"} for one in range(number)],
        },
    }


def device_claim(name: str) -> Any:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}
    request["exactly"]["allocationMode"] = "ExactCount"
    return {
        "apiVersion": DRA,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [request]}},
    }


def with_device(number: int) -> Any:
    claims = [{"name": "gpu", "resourceClaimName": f"claim-{number}"}]
    return pod(f"p{number}", resourceClaims=claims)


def test_a_device_is_taken_once_and_free_afterwards(world: World) -> None:
    world.add(
        {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        node("a"),
        node("b"),
        devices(2),
        *(device_claim(f"claim-{number}") for number in range(3)),
    )
    for _ in range(2):
        answer = world.ask(*(with_device(number) for number in range(3)))
        assert [one.node for one in answer.pods] == ["a", "a", ""]
        assert "cannot allocate all claims" in answer.pods[2].message
    answer = world.ask(*(with_device(number) for number in range(3)), placement="Independent")
    assert answer.all_fit


def volume(name: str) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "csi": {"driver": "local.example.com", "volumeHandle": name},
        },
        "status": {"phase": "Available"},
    }


def volume_claim(name: str) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def test_a_volume_is_taken_once_and_free_afterwards(world: World) -> None:
    world.add(
        {
            "apiVersion": STORAGE,
            "kind": "StorageClass",
            "metadata": {"name": "local", "uid": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        node("a"),
        volume("v0"),
        *(volume_claim(f"claim-{number}") for number in range(2)),
    )
    pods = [
        pod(
            f"p{number}",
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}],
        )
        for number in range(2)
    ]
    for _ in range(2):
        answer = world.ask(*pods)
        assert [one.node for one in answer.pods] == ["a", ""]
        assert "available persistent volumes to bind" in answer.pods[1].message
    assert world.ask(*pods, placement="Independent").all_fit
