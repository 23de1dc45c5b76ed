"""Small objects of every kind that an apiserver stores, with odd values wherever it allows them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hostile_run import cluster_objects, devices, pods, volumes
from hostile_run.odd_values import metadata, name_of

Json = dict[str, Any]
Maker = Callable[[random.Random, int], Json]

MAKERS: dict[str, Maker] = {
    "Namespace": cluster_objects.namespace,
    "Node": cluster_objects.node,
    "PriorityClass": cluster_objects.priority_class,
    "PodDisruptionBudget": cluster_objects.pod_disruption_budget,
    "PodGroup": cluster_objects.pod_group,
    "CompositePodGroup": cluster_objects.composite_pod_group,
    "Service": cluster_objects.service,
    "ReplicationController": cluster_objects.replication_controller,
    "ReplicaSet": cluster_objects.replica_set,
    "StatefulSet": cluster_objects.stateful_set,
    "DeviceClass": devices.device_class,
    "ResourceSlice": devices.resource_slice,
    "DeviceTaintRule": devices.device_taint_rule,
    "ResourceClaim": devices.resource_claim,
    "StorageClass": volumes.storage_class,
    "CSINode": volumes.csi_node,
    "CSIDriver": volumes.csi_driver,
    "CSIStorageCapacity": volumes.csi_storage_capacity,
    "PersistentVolume": volumes.persistent_volume,
    "PersistentVolumeClaim": volumes.persistent_volume_claim,
    "VolumeAttachment": volumes.volume_attachment,
    "Pod": pods.pod,
}
"""What makes an object of each kind, in the order in which they are created: what others refer to
first."""


def valid_object(kind: str, number: int, seed: int) -> Json:
    """Return an object without apiVersion and namespace, named by kind and number.

    Equal seeds give equal objects.
    """
    rng = random.Random(f"{kind} {number} {seed}")
    obj = MAKERS[kind](rng, number)
    obj["metadata"] = metadata(rng) | obj.get("metadata", {}) | {"name": name_of(kind, number)}
    return obj
