"""Stands in for the volume controller and provisioners, which pods wait for in PreBind.

A claim for which a node was chosen gets a volume at once; a volume that was reserved for a claim is
bound to it. Nothing fails, and nothing takes time.
"""

from __future__ import annotations

import msgspec

from proreus.objects.kinds import NODES
from proreus.objects.meta import UnownedObjectMeta, key_of
from proreus.objects.node import LABEL_ZONE
from proreus.objects.selectors import (
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
)
from proreus.objects.storage import (
    BIND_COMPLETED_ANNOTATION,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SELECTED_NODE_ANNOTATION,
    STORAGE_CLASSES,
    ClaimReference,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from proreus.objects.volume_claims import class_of_claim, is_volume_bound_to_claim
from proreus.offline.api import InMemoryApi

_replace = msgspec.structs.replace


class VolumeController:
    """Binds claims and volumes of an API in memory. ``pending``: keys of claims to look at."""

    def __init__(self, api: InMemoryApi) -> None:
        self._api = api
        self.pending: dict[str, None] = {}
        api.on_change(PERSISTENT_VOLUME_CLAIMS, self._claim_changed)
        api.on_change(PERSISTENT_VOLUMES, self._volume_changed)

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        if new is not None and not new.spec.volume_name and _selected_node(new):
            self.pending[key_of(new)] = None

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        reference = None if new is None else new.spec.claim_ref
        if reference is not None:
            key = f"{reference.namespace}/{reference.name}"
            claim = self._api.store(PERSISTENT_VOLUME_CLAIMS).get(key)
            if claim is not None and not claim.spec.volume_name:
                self.pending[key] = None

    def reconcile(self) -> None:
        """Bind the pending claims."""
        waiting, self.pending = self.pending, {}
        for key in waiting:
            claim = self._api.store(PERSISTENT_VOLUME_CLAIMS).get(key)
            if claim is None or claim.spec.volume_name:
                continue
            volume = self._reserved_for(claim) or self._provision(claim)
            if volume is not None:
                self._bind(claim, volume)

    def _reserved_for(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        for volume in self._api.store(PERSISTENT_VOLUMES).values():
            if is_volume_bound_to_claim(volume, claim):
                return volume
        return None

    def _provision(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Create a volume that can be reached from the zone of the chosen node."""
        class_name = class_of_claim(claim)
        storage_class = self._api.store(STORAGE_CLASSES).get(class_name)
        node = self._api.store(NODES).get(_selected_node(claim))
        if storage_class is None or node is None:
            return None
        zone = node.metadata.labels.get(LABEL_ZONE)
        key, value = (LABEL_ZONE, zone) if zone else ("metadata.name", node.metadata.name)
        requirement = LabelSelectorRequirement(key=key, operator="In", values=(value,))
        term = (
            NodeSelectorTerm(match_expressions=(requirement,))
            if zone
            else NodeSelectorTerm(match_fields=(requirement,))
        )
        name = f"pvc-{claim.metadata.uid.replace('/', '-')}"
        meta = claim.metadata
        volume = PersistentVolume(
            metadata=UnownedObjectMeta(name=name),
            spec=PersistentVolumeSpec(
                capacity=dict(claim.spec.resources.requests),
                access_modes=claim.spec.access_modes,
                claim_ref=ClaimReference(
                    kind="PersistentVolumeClaim",
                    namespace=meta.namespace,
                    name=meta.name,
                    uid=meta.uid,
                ),
                storage_class_name=class_name,
                volume_mode=claim.spec.volume_mode,
                node_affinity=VolumeNodeAffinity(
                    required=NodeSelector(node_selector_terms=(term,))
                ),
                csi=CSIPersistentVolumeSource(driver=storage_class.provisioner, volume_handle=name),
            ),
            status=PersistentVolumeStatus(phase="Bound"),
        )
        self._api.put(PERSISTENT_VOLUMES, volume)
        self.pending.pop(key_of(claim), None)
        return volume

    def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        annotations = {**claim.metadata.annotations, BIND_COMPLETED_ANNOTATION: "yes"}
        bound = _replace(
            claim,
            metadata=_replace(claim.metadata, annotations=annotations),
            spec=_replace(claim.spec, volume_name=volume.metadata.name),
            status=_replace(claim.status, phase="Bound"),
        )
        self._api.put(PERSISTENT_VOLUME_CLAIMS, bound)
        if volume.status.phase != "Bound":
            status = _replace(volume.status, phase="Bound")
            self._api.put(PERSISTENT_VOLUMES, _replace(volume, status=status))


def _selected_node(claim: PersistentVolumeClaim) -> str:
    return claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION, "")
