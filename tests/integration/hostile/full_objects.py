"""Objects other than pods as large as an apiserver stores them, each full of one thing.

``scale`` multiplies how many of it there are, as in ``full_pods``.
"""

from __future__ import annotations

import random
from typing import Any

from .full_pods import HOST, Json, Named


def _many(count: int, scale: float) -> range:
    return range(int(count * scale) + 1)


def budget_requirements(rng: random.Random, scale: float) -> Json:
    """Return a budget whose selector has thousands of requirements, or of values."""
    if rng.random() < 0.5:
        expressions: list[dict[str, Any]] = [
            {"key": f"k{n}", "operator": "Exists"} for n in _many(30_000, scale)
        ]
    else:
        values = [f"v{n}" for n in _many(100_000, scale)]
        expressions = [{"key": "app", "operator": "NotIn", "values": values}]
    return {"spec": {"maxUnavailable": 1, "selector": {"matchExpressions": expressions}}}


def namespace_labels(rng: random.Random, scale: float) -> Json:
    """Return a namespace with tens of thousands of labels."""
    return {"metadata": {"labels": {f"l{n}": "v" for n in _many(80_000, scale)}}}


def service_selector(rng: random.Random, scale: float) -> Json:
    """Return a service that selects by tens of thousands of labels."""
    return {"spec": {"selector": {f"a{n}": "x" for n in _many(60_000, scale)}}}


def class_topologies(rng: random.Random, scale: float) -> Json:
    """Return a storage class with a topology term for each of thousands of nodes."""
    terms = [
        {"matchLabelExpressions": [{"key": HOST, "values": [f"n{n}"]}]}
        for n in _many(13_000, scale)
    ]
    mode = "WaitForFirstConsumer"
    return {"provisioner": "p", "volumeBindingMode": mode, "allowedTopologies": terms}


def volume_affinity(rng: random.Random, scale: float) -> Json:
    """Return a volume with a node term for each of thousands of nodes."""
    terms = [
        {"matchExpressions": [{"key": HOST, "operator": "In", "values": [f"n{n}"]}]}
        for n in _many(13_000, scale)
    ]
    return {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }
    }


def capacity_topology(rng: random.Random, scale: float) -> Json:
    """Return a capacity for nodes with each of thousands of labels."""
    expressions = [{"key": f"k{n}", "operator": "Exists"} for n in _many(30_000, scale)]
    topology = {"matchExpressions": expressions}
    return {"storageClassName": "standard", "capacity": "1Gi", "nodeTopology": topology}


def csi_drivers(rng: random.Random, scale: float) -> Json:
    """Return thousands of drivers of a node."""
    drivers: list[dict[str, Any]] = [
        {"name": f"d{n}", "nodeID": "x", "topologyKeys": [f"t{n}"], "allocatable": {"count": 1}}
        for n in _many(12_000, scale)
    ]
    return {"spec": {"drivers": drivers}}


def slice_devices(rng: random.Random, scale: float) -> Json:
    """Return a slice with thousands of devices, for all nodes."""
    devices = [{"name": f"d{n}", "attributes": {"side": {"int": n}}} for n in _many(12_000, scale)]
    pool = {"name": f"z{rng.randrange(10**6)}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "allNodes": True, "pool": pool, "devices": devices}
    return {"spec": spec}


def node_resources(rng: random.Random, scale: float) -> Json:
    """Return a node with tens of thousands of resources, which no other one has."""
    first = rng.randrange(10**6)
    amounts = {f"example.com/r{first + n}": "1" for n in _many(20_000, scale)}
    return {"status": {"allocatable": amounts, "capacity": amounts}}


def node_images(rng: random.Random, scale: float) -> Json:
    """Return a node with tens of thousands of images, which no other one has."""
    first = rng.randrange(10**6)
    images = [{"names": [f"i{first + n}"], "sizeBytes": n} for n in _many(40_000, scale)]
    return {"status": {"images": images}}


def node_taints(rng: random.Random, scale: float) -> Json:
    """Return a node with tens of thousands of taints."""
    return {
        "spec": {"taints": [{"key": f"t{n}", "effect": "NoSchedule"} for n in _many(30_000, scale)]}
    }


FULL_OBJECTS: dict[str, tuple[Named, ...]] = {
    "Node": (node_resources, node_images, node_taints),
    "PodDisruptionBudget": (budget_requirements,),
    "Namespace": (namespace_labels,),
    "Service": (service_selector,),
    "StorageClass": (class_topologies,),
    "PersistentVolume": (volume_affinity,),
    "CSIStorageCapacity": (capacity_topology,),
    "CSINode": (csi_drivers,),
    "ResourceSlice": (slice_devices,),
}
