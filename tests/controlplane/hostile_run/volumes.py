"""Small volumes, claims and objects of CSI drivers that an apiserver stores, with odd values."""

from __future__ import annotations

import random
from typing import Any

from hostile_run.odd_values import (
    DRIVER,
    INT32,
    INT64,
    KEYS,
    TEXTS,
    VALUES,
    label_selector,
    name_of,
    node_selector,
    quantities,
    some,
)

Json = dict[str, Any]


def persistent_volume(rng: random.Random, number: int) -> Json:
    """Return a volume of one of five sorts."""
    sources: list[Json] = [
        {"hostPath": {"path": "/x"}},
        {"csi": {"driver": name_of("CSIDriver", number), "volumeHandle": "\U0001f600"}},
        {"nfs": {"server": "s", "path": "/"}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"local": {"path": "/l"}},
    ]
    spec: Json = {
        "capacity": {"storage": rng.choice(["1", "1n", "7Ei", str(INT64)])},
        "accessModes": [rng.choice(["ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"])],
        "storageClassName": rng.choice(["", name_of("StorageClass", number), "gone"]),
        **rng.choice(sources),
    }
    if "local" in spec or rng.random() < 0.5:
        spec["nodeAffinity"] = {"required": node_selector(rng)}
    if rng.random() < 0.5:
        claim = rng.choice([name_of("PersistentVolumeClaim", number), "gone"])
        uid = rng.choice(["", "\u0001"])
        spec["claimRef"] = {
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": claim,
            "uid": uid,
        }
    return {"spec": spec}


def persistent_volume_claim(rng: random.Random, number: int) -> Json:
    """Return a claim."""
    spec: Json = {
        "accessModes": [rng.choice(["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])],
        "resources": {"requests": {"storage": rng.choice(["1", "1n", "7Ei", str(INT64)])}},
        "storageClassName": rng.choice(["", name_of("StorageClass", number), "gone"]),
    }
    if rng.random() < 0.3:
        spec["volumeName"] = rng.choice([name_of("PersistentVolume", number), "gone"])
    if rng.random() < 0.3:
        spec["selector"] = label_selector(rng)
    key = rng.choice(["pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node"])
    return {"metadata": {"annotations": {key: rng.choice(TEXTS)}}, "spec": spec}


def storage_class(rng: random.Random, _number: int) -> Json:
    """Return a storage class."""
    made: Json = {
        "provisioner": rng.choice(["kubernetes.io/no-provisioner", DRIVER]),
        "parameters": {f"p{n}": rng.choice(TEXTS) for n in range(rng.choice([0, 3, 100]))},
        "volumeBindingMode": rng.choice(["Immediate", "WaitForFirstConsumer"]),
    }
    if rng.random() < 0.5:
        expression = {
            "key": rng.choice(KEYS),
            "values": sorted({*some(rng, lambda: rng.choice(VALUES))}),
        }
        made["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    return made


def csi_node(rng: random.Random, _number: int) -> Json:
    """Return the drivers of a node that does not exist."""
    drivers = [
        {
            "name": f"d{n}.example.com",
            "nodeID": rng.choice(["x", "\U0001f600", "i" * 190]),
            "topologyKeys": rng.sample(KEYS, 2),
            "allocatable": {"count": rng.choice([0, INT32])},
        }
        for n in range(rng.choice([0, 1, 100]))
    ]
    return {"spec": {"drivers": drivers}}


def csi_driver(rng: random.Random, _number: int) -> Json:
    """Return a driver."""
    switches = ("attachRequired", "storageCapacity", "podInfoOnMount", "requiresRepublish")
    return {"spec": {name: rng.random() < 0.5 for name in switches}}


def csi_storage_capacity(rng: random.Random, number: int) -> Json:
    """Return a capacity."""
    made: Json = {"storageClassName": name_of("StorageClass", number)}
    made |= quantities(rng, "capacity", "maximumVolumeSize")
    if rng.random() < 0.8:
        made["nodeTopology"] = label_selector(rng)
    return made


def volume_attachment(rng: random.Random, number: int) -> Json:
    """Return an attachment."""
    volume = rng.choice([name_of("PersistentVolume", number), "gone"])
    node = rng.choice(["node-00001", "gone"])
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {"spec": spec}
