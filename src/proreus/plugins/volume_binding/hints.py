"""Queueing hints: the events that may help a pod that VolumeBinding rejected."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.framework.events import (
    ADD,
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    DELETE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    UPDATE,
    UPDATE_NODE_LABEL,
    ClusterEvent,
    plugin_event,
)
from proreus.framework.pod_info import PodInfo
from proreus.objects.meta import key_of
from proreus.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from proreus.objects.volume_claims import (
    claim_names_of,
    class_of_claim,
    is_fully_bound,
    uses_claim,
)
from proreus.plugins.csi_migration import migrated_plugins
from proreus.plugins.volume_binding.assumed_volumes import AssumedVolumes
from proreus.plugins.volume_binding.claims import (
    ClaimsUnusable,
    StorageError,
    check_claims,
    get_pod_volume_claims,
)
from proreus.plugins.volume_binding.matching import find_matching_volumes
from proreus.plugins.volume_binding.storage import Storage


def _class_changed(pod: PodInfo, old: StorageClass | None, new: StorageClass) -> bool:
    return old is None or old.allowed_topologies != new.allowed_topologies


def _claim_changed(pod: PodInfo, old: object, new: PersistentVolumeClaim) -> bool:
    return uses_claim(pod.pod, new)


def _csi_node_changed(pod: PodInfo, old: CSINode | None, new: CSINode | None) -> bool:
    if old is None:
        return True
    return migrated_plugins(old) != (frozenset() if new is None else migrated_plugins(new))


def _volume_gone(pod: PodInfo, old: PersistentVolume, new: None) -> bool:
    # While it names a claim of the pod, no other volume is considered.
    claim = old.spec.claim_ref
    return (
        claim is not None
        and claim.namespace == pod.namespace
        and claim.name in claim_names_of(pod.pod)
    )


VOLUMES_RESTORED = plugin_event("VolumesRestored")
"""Announced when a pod gives up what was assumed for it, as the old object."""


def events(storage: Storage) -> tuple[ClusterEvent, ...]:
    """Return the events that the plugin registers."""

    def unbound_claims_of(pod: PodInfo) -> Iterator[PersistentVolumeClaim]:
        for name in claim_names_of(pod.pod):
            claim = storage.claims.get(f"{pod.namespace}/{name}")
            if claim is not None and not is_fully_bound(claim):
                yield claim

    def driver_changed(pod: PodInfo, old: CSIDriver | None, new: CSIDriver | None) -> bool:
        # A driver that no longer announces its capacity may provision on any node.
        if old is None or not old.spec.storage_capacity:
            return False
        if new is not None and new.spec.storage_capacity:
            return False
        name = old.metadata.name
        if any(v.csi is not None and v.csi.driver == name for v in pod.pod.spec.volumes):
            return True
        classes = map(storage.classes.get, map(class_of_claim, unbound_claims_of(pod)))
        return any(one is not None and one.provisioner == name for one in classes)

    def capacity_changed(
        pod: PodInfo, old: CSIStorageCapacity | None, new: CSIStorageCapacity
    ) -> bool:
        if old is None:
            return True
        # Less capacity helps no pod.
        before, after = map(storage.storage_capacities.limit_of, (old, new))
        return after is not None and (before is None or after > before)

    def volumes_restored(pod: PodInfo, old: AssumedVolumes, new: None) -> bool:
        try:
            check_claims(pod.pod, storage)
            claims = get_pod_volume_claims(pod.pod, storage)
        except (ClaimsUnusable, StorageError):
            return False
        given_up = {key_of(claim) for claim in old.claims}
        volumes = {volume.metadata.name for _, volume in old.volumes}
        return not claims.immediate and any(
            key_of(claim) in given_up
            or any(
                v.metadata.name in volumes for v in find_matching_volumes(claim, storage).volumes
            )
            for claim in claims.delayed
        )

    return (
        ClusterEvent(STORAGE_CLASS, ADD | UPDATE, _class_changed),
        ClusterEvent(PERSISTENT_VOLUME_CLAIM, ADD | UPDATE, _claim_changed),
        ClusterEvent(PERSISTENT_VOLUME, ADD | UPDATE),
        ClusterEvent(PERSISTENT_VOLUME, DELETE, _volume_gone),
        ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL),
        ClusterEvent(CSI_NODE, ADD | UPDATE | DELETE, _csi_node_changed),
        ClusterEvent(CSI_DRIVER, UPDATE | DELETE, driver_changed),
        ClusterEvent(CSI_STORAGE_CAPACITY, ADD | UPDATE, capacity_changed),
        plugin_event("VolumesRestored", volumes_restored),
    )
