"""From selected volumes to bound claims: assumed in memory, then written, then awaited.

A static binding sets the volume's ``claimRef``; a dynamic one sets the claim's annotation with the
selected node, for the provisioner. The volume controller or the provisioner completes the binding,
which shows in the claim. Writes are merge patches of the changed fields, with the UID and the
resourceVersion that they were computed for as preconditions.

Worked example: volume ``v`` for claim ``c``. Assume: ``v`` with ``claimRef: c`` is in the cache, so
that no other pod gets it. Bind: the patch is written, and the result replaces the assumed ``v``.
Wait: until the watch reports ``c`` with ``volumeName: v`` and the annotation that it is bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, field

from proreus.framework.assume_cache import resource_version_of
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import PODS
from proreus.objects.meta import JsonObject, ObjectMeta, key_of
from proreus.objects.storage import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SELECTED_NODE_ANNOTATION,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from proreus.objects.volume_claims import is_fully_bound, is_volume_bound_to_claim
from proreus.plugins.csi_migration import in_tree_plugin_of
from proreus.plugins.volume_binding.accessible_nodes import is_accessible
from proreus.plugins.volume_binding.claims import StorageError
from proreus.plugins.volume_binding.pod_volumes import PodVolumes, bound_volume
from proreus.plugins.volume_binding.storage import Storage

_POLL_INTERVAL_SECONDS = 1.0


class AssumedVolumes(Struct):
    """The volumes and claims that are assumed for a pod on a node.

    ``volumes``: each with its claim. ``claims``: those to provision. Both in their assumed form, or
    as the apiserver returned them once written. ``written``: keys of what was written.
    """

    node_name: str
    volumes: list[tuple[PersistentVolumeClaim, PersistentVolume]] = field(default_factory=list)
    claims: list[PersistentVolumeClaim] = field(default_factory=list)
    written: set[str] = field(default_factory=set)

    def keys(self) -> Iterator[str]:
        """Yield the keys of all claims and volumes."""
        for claim, volume in self.volumes:
            yield key_of(claim)
            yield key_of(volume)
        for claim in self.claims:
            yield key_of(claim)


class VolumeBinder:
    """Assumes and binds volumes for the pods of one profile."""

    def __init__(self, handle: Handle, storage: Storage) -> None:
        self._handle = handle
        self._storage = storage
        self._pods = handle.store(PODS, with_provided=True)

    # ---- assume --------------------------------------------------------------------------------

    def assume_pod_volumes(self, node_name: str, volumes: PodVolumes) -> AssumedVolumes:
        """Assume the volumes of a pod on a node.

        Raises ``StorageError``, and assumes nothing, if a volume or claim has changed since.
        """
        assumed = AssumedVolumes(node_name)
        try:
            for claim, volume in volumes.static_bindings:
                # The volume itself if it is prebound to the claim: there is nothing to assume.
                assumed_volume = _with_claim_ref(volume, claim)
                assumed.volumes.append((claim, assumed_volume))
                if assumed_volume is not volume and not self._storage.volumes.expect(
                    assumed_volume
                ):
                    raise StorageError(f'persistentvolume "{key_of(volume)}" is out of sync')
            for claim, _ in volumes.dynamic_provisions:
                assumed_claim = _with_selected_node(claim, node_name)
                assumed.claims.append(assumed_claim)
                if not self._storage.claims.expect(assumed_claim):
                    raise StorageError(f'persistentvolumeclaim "{key_of(claim)}" is out of sync')
        except StorageError:
            self.revert_assumed_pod_volumes(assumed)
            raise
        return assumed

    def revert_assumed_pod_volumes(self, assumed: AssumedVolumes) -> None:
        """Restore the assumed objects that were not written."""
        # Written objects are the state of the apiserver; the volume controller goes on with it.
        storage = self._storage
        for _, volume in assumed.volumes:
            if key_of(volume) not in assumed.written:
                storage.volumes.restore(key_of(volume))
        for claim in assumed.claims:
            if key_of(claim) not in assumed.written:
                storage.claims.restore(key_of(claim))

    # ---- write ---------------------------------------------------------------------------------

    async def bind_pod_volumes(self, assumed: AssumedVolumes) -> None:
        """Write the assumed objects, volumes first. Raises ``ApiError``."""
        api, storage = self._handle.api, self._storage
        for place, (claim, volume) in enumerate(assumed.volumes):
            patch = _with_preconditions(
                volume.metadata, {"spec": {"claimRef": _reference_of(volume)}}
            )
            if BOUND_BY_CONTROLLER_ANNOTATION in volume.metadata.annotations:
                patch["metadata"]["annotations"] = {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
            result = await api.patch(PERSISTENT_VOLUMES, "", volume.metadata.name, patch)
            written = decoder_for(PersistentVolume).convert(result)
            # With the new resourceVersion: an older watch event must not replace it.
            storage.volumes.assume(written)
            assumed.volumes[place] = (claim, written)
            assumed.written.add(key_of(written))
        for place, claim in enumerate(assumed.claims):
            meta = claim.metadata
            patch = _with_preconditions(meta, {})
            patch["metadata"]["annotations"] = {SELECTED_NODE_ANNOTATION: assumed.node_name}
            result = await api.patch(PERSISTENT_VOLUME_CLAIMS, meta.namespace, meta.name, patch)
            assumed_claim = decoder_for(PersistentVolumeClaim).convert(result)
            storage.claims.assume(assumed_claim)
            assumed.claims[place] = assumed_claim
            assumed.written.add(key_of(assumed_claim))

    # ---- wait ----------------------------------------------------------------------------------

    async def wait_until_bound(self, assumed: AssumedVolumes, pod: PodInfo, seconds: float) -> None:
        """Return when all claims are bound. Raises ``StorageError`` if that fails or times out.

        Checks after each change of one of the objects, and once a second.
        """
        now = self._handle.clock.now
        end = now() + seconds
        while not self._all_bound(assumed, pod):
            left = end - now()
            if left <= 0:
                raise StorageError("context deadline exceeded")
            await self._storage.wait_for_change(assumed.keys(), min(left, _POLL_INTERVAL_SECONDS))

    def _all_bound(self, assumed: AssumedVolumes, pod: PodInfo) -> bool:
        """Return whether all claims are bound. Raises ``StorageError`` if they cannot be now."""
        labels = self._labels_of_node(assumed.node_name)
        if pod.key not in self._pods:
            raise StorageError(f'pod does not exist any more: pod "{pod.name}" not found')
        for claim, volume in assumed.volumes:
            if not self._is_volume_bound(claim, volume, assumed.node_name, labels):
                return False
        return all(
            self._is_claim_bound(claim, assumed.node_name, labels) for claim in assumed.claims
        )

    def _labels_of_node(self, name: str) -> dict[str, str]:
        nodes = self._handle.nodes
        row = nodes.rows.get(name)
        node = None if row is None else nodes[row].node
        if node is None:
            raise StorageError(f'failed to get node "{name}": node "{name}" not found')
        return node.metadata.labels

    def _is_volume_bound(
        self,
        claim: PersistentVolumeClaim,
        assumed_volume: PersistentVolume,
        node_name: str,
        labels: dict[str, str],
    ) -> bool:
        volume = self._storage.watched_volumes.get(key_of(assumed_volume))
        if volume is None:
            name = assumed_volume.metadata.name
            raise StorageError(f'failed to check binding: persistentvolumes "{name}" not found')
        found = self._watched_claim(claim, "failed to check binding")
        # The watch has not reported our own patch yet.
        if resource_version_of(assumed_volume) > resource_version_of(volume):
            return False
        self._check_node_affinity(volume, node_name, labels)
        ref = volume.spec.claim_ref
        if ref is None or not ref.uid:
            raise StorageError(f'ClaimRef got reset for pv "{volume.metadata.name}"')
        return is_fully_bound(found)

    def _is_claim_bound(
        self, assumed_claim: PersistentVolumeClaim, node_name: str, labels: dict[str, str]
    ) -> bool:
        claim = self._watched_claim(assumed_claim, "failed to check provisioning pvc")
        if resource_version_of(assumed_claim) > resource_version_of(claim):
            return False
        meta = claim.metadata
        if meta.annotations.get(SELECTED_NODE_ANNOTATION) != node_name:
            # A provisioner that fails removes the annotation, so that another node is selected.
            # kube-scheduler has a text of its own for a claim that has no annotations at all, not
            # even an empty map of them; such a claim has lost those of the volume controller too.
            raise StorageError(f'provisioning failed for PVC "{meta.name}"')
        if claim.spec.volume_name:
            volume = self._storage.watched_volumes.get(claim.spec.volume_name)
            if volume is None:
                return False
            self._check_node_affinity(volume, node_name, labels)
        return is_fully_bound(claim)

    def _watched_claim(self, claim: PersistentVolumeClaim, what: str) -> PersistentVolumeClaim:
        found = self._storage.watched_claims.get(key_of(claim))
        if found is None:
            raise StorageError(f'{what}: persistentvolumeclaims "{key_of(claim)}" not found')
        return found

    def _check_node_affinity(
        self, volume: PersistentVolume, node_name: str, labels: dict[str, str]
    ) -> None:
        """Raise ``StorageError`` if the node cannot access the volume as it is now."""
        bound = bound_volume(volume)
        accessible_nodes = bound.accessible_nodes
        plugin = in_tree_plugin_of(volume.spec)
        if plugin is not None and self._storage.is_migrated(node_name, plugin.name):
            if bound.problem:
                raise StorageError(f"failed to translate pv to csi: {bound.problem}")
            accessible_nodes = bound.migrated if bound.plugin is not None else accessible_nodes
        if not is_accessible(labels, accessible_nodes):
            raise StorageError(
                f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node_name}": '
                "no matching NodeSelectorTerms"
            )


def _with_claim_ref(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return a volume with a claimRef to a claim; the same object if it has one with the UID."""
    meta, ref = volume.metadata, volume.spec.claim_ref
    known = is_volume_bound_to_claim(volume, claim)
    if known and ref is not None and ref.uid == claim.metadata.uid:
        return volume
    # The annotation lets the volume controller undo the binding. Not for a volume that an
    # administrator has prebound by name.
    if not known:
        annotations = {BOUND_BY_CONTROLLER_ANNOTATION: "yes", **meta.annotations}
        meta = msgspec.structs.replace(meta, annotations=annotations)
    reference = ClaimReference(
        kind=PERSISTENT_VOLUME_CLAIMS.kind,
        api_version=PERSISTENT_VOLUME_CLAIMS.api_version,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
    )
    spec = msgspec.structs.replace(volume.spec, claim_ref=reference)
    return msgspec.structs.replace(volume, metadata=meta, spec=spec)


def _with_selected_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    annotations = {**claim.metadata.annotations, SELECTED_NODE_ANNOTATION: node_name}
    meta = msgspec.structs.replace(claim.metadata, annotations=annotations)
    return msgspec.structs.replace(claim, metadata=meta)


def _with_preconditions(meta: ObjectMeta, patch: JsonObject) -> JsonObject:
    return {**patch, "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}


def _reference_of(volume: PersistentVolume) -> Any:
    return msgspec.to_builtins(volume.spec.claim_ref)
