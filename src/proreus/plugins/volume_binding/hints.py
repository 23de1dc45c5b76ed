"""Queueing hints: which events may make a pod schedulable that VolumeBinding rejected."""

from __future__ import annotations

from proreus.framework.events import (
    ADD,
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    UPDATE,
    UPDATE_NODE_LABEL,
    ClusterEvent,
)
from proreus.framework.pod_info import PodInfo
from proreus.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from proreus.objects.volume_claims import uses_claim
from proreus.plugins.csi_migration import migrated_plugins
from proreus.plugins.volume_binding.storage_capacity import limit_of


def _class_changed(pod: PodInfo, old: StorageClass | None, new: StorageClass) -> bool:
    return old is None or old.allowed_topologies != new.allowed_topologies


def _claim_changed(pod: PodInfo, old: object, new: PersistentVolumeClaim) -> bool:
    return uses_claim(pod.pod, new)


def _csi_node_changed(pod: PodInfo, old: CSINode | None, new: CSINode) -> bool:
    return old is None or migrated_plugins(old) != migrated_plugins(new)


def _driver_changed(pod: PodInfo, old: CSIDriver | None, new: CSIDriver) -> bool:
    # A driver that no longer tracks capacity may accept inline volumes on any node.
    if old is None or not old.spec.storage_capacity or new.spec.storage_capacity:
        return False
    return any(
        volume.csi is not None and volume.csi.driver == new.metadata.name
        for volume in pod.pod.spec.volumes
    )


def _capacity_changed(
    pod: PodInfo, old: CSIStorageCapacity | None, new: CSIStorageCapacity
) -> bool:
    if old is None:
        return True
    # Less capacity helps no pod.
    before, after = limit_of(old), limit_of(new)
    return after is not None and (before is None or after > before)


EVENTS = (
    ClusterEvent(STORAGE_CLASS, ADD | UPDATE, _class_changed),
    ClusterEvent(PERSISTENT_VOLUME_CLAIM, ADD | UPDATE, _claim_changed),
    ClusterEvent(PERSISTENT_VOLUME, ADD | UPDATE),
    ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL),
    ClusterEvent(CSI_NODE, ADD | UPDATE, _csi_node_changed),
    ClusterEvent(CSI_DRIVER, UPDATE, _driver_changed),
    ClusterEvent(CSI_STORAGE_CAPACITY, ADD | UPDATE, _capacity_changed),
)
"""The events that the plugin registers."""
