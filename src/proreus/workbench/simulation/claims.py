"""Stands in for controllers of claims when pods are created and deleted.

Claims of ephemeral volumes and of templates are made for a pod, or made over to the pod that takes
the place of an evicted one; what a deleted pod has reserved is released.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proreus.insight.snapshots.cluster_objects import RESOURCE_CLAIM_TEMPLATES
from proreus.objects.codec import decoder_for
from proreus.objects.meta import ObjectMeta, OwnerReference, controller_of
from proreus.objects.pod import Pod, PodResourceClaim, PodResourceClaimStatus, Volume
from proreus.objects.resource_claims import RESOURCE_CLAIMS, ResourceClaim
from proreus.objects.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
)
from proreus.objects.volume_claims import class_of_claim
from proreus.offline.api import InMemoryApi

_replace = msgspec.structs.replace


class ClaimController:
    """Keeps the claims of an API in memory in step with its pods."""

    def __init__(self, api: InMemoryApi) -> None:
        self._api = api

    def prepare(self, pod: Pod) -> Pod:
        """Create the claims of a pod that is about to be created; return it with their names."""
        for volume in pod.spec.volumes:
            if volume.ephemeral is not None:
                self._prepare_volume(pod, volume)
        statuses = {one.name: one for one in pod.status.resource_claim_statuses}
        for reference in pod.spec.resource_claims:
            if reference.resource_claim_template_name:
                made = self._prepare_claim(pod, reference, statuses.get(reference.name))
                if made is not None:
                    statuses[reference.name] = made
        found = tuple(statuses.values())
        if found == pod.status.resource_claim_statuses:
            return pod
        return _replace(pod, status=_replace(pod.status, resource_claim_statuses=found))

    def release(self, pod: Pod) -> None:
        """Release the claims that a deleted pod has reserved; claims of nobody lose their
        allocations.
        """
        if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
            return
        for claim in list(self._api.store(RESOURCE_CLAIMS).values()):
            users = claim.status.reserved_for
            others = tuple(user for user in users if user.uid != pod.metadata.uid)
            if len(others) < len(users):
                status = _replace(claim.status, reserved_for=others)
                if not others:
                    status = _replace(status, allocation=None, devices=())
                self._api.put(RESOURCE_CLAIMS, _replace(claim, status=status))

    # ---- volumes -------------------------------------------------------------------------------

    def _prepare_volume(self, pod: Pod, volume: Volume) -> None:
        meta = pod.metadata
        name = f"{meta.name}-{volume.name}"
        claim = self._api.store(PERSISTENT_VOLUME_CLAIMS).get(f"{meta.namespace}/{name}")
        if claim is not None:
            owner = controller_of(claim.metadata)
            if owner is not None and owner.uid != meta.uid and owner.name == meta.name:
                self._api.put(PERSISTENT_VOLUME_CLAIMS, self._renewed(claim, pod))
            return
        template: dict[str, Any] = (
            volume.ephemeral.volume_claim_template if volume.ephemeral else None
        ) or {}
        # A snapshot does not have the template.
        if "spec" in template:
            typed = decoder_for(PersistentVolumeClaim).convert({"spec": template["spec"]})
            made = _replace(
                typed,
                metadata=_owned(name, pod),
                status=PersistentVolumeClaimStatus(phase="Pending"),
            )
            self._api.put(PERSISTENT_VOLUME_CLAIMS, made)

    def _renewed(self, claim: PersistentVolumeClaim, pod: Pod) -> PersistentVolumeClaim:
        """Return the claim of the pod's predecessor as one of its own: with a volume to come."""
        storage_class = self._api.store(STORAGE_CLASSES).get(class_of_claim(claim))
        waits = (
            storage_class is not None
            and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        )
        if not waits:  # nothing would bind it again
            return _replace(claim, metadata=_made_over(claim.metadata, pod))
        return _replace(
            claim,
            metadata=_owned(claim.metadata.name, pod),
            spec=_replace(claim.spec, volume_name=""),
            status=PersistentVolumeClaimStatus(phase="Pending"),
        )

    # ---- devices -------------------------------------------------------------------------------

    def _prepare_claim(
        self, pod: Pod, reference: PodResourceClaim, status: PodResourceClaimStatus | None
    ) -> PodResourceClaimStatus | None:
        meta, claims = pod.metadata, self._api.store(RESOURCE_CLAIMS)
        if status is not None and status.resource_claim_name:
            claim = claims.get(f"{meta.namespace}/{status.resource_claim_name}")
            if claim is not None:
                made_over = _replace(claim, metadata=_made_over(claim.metadata, pod))
                if made_over != claim:
                    self._api.put(RESOURCE_CLAIMS, made_over)
            return status
        key = f"{meta.namespace}/{reference.resource_claim_template_name}"
        template = self._api.store(RESOURCE_CLAIM_TEMPLATES).get(key)
        if template is None:
            return None
        name = f"{meta.name}-{reference.name}"
        made = ResourceClaim(metadata=_owned(name, pod), spec=template.spec.spec)
        self._api.put(RESOURCE_CLAIMS, made)
        return PodResourceClaimStatus(name=reference.name, resource_claim_name=name)


def _owned(name: str, pod: Pod) -> ObjectMeta:
    meta = pod.metadata
    return ObjectMeta(
        name=name,
        namespace=meta.namespace,
        uid=f"{meta.uid}/{name}",
        owner_references=(_owner(pod),),
    )


def _owner(pod: Pod) -> OwnerReference:
    meta = pod.metadata
    return OwnerReference(
        api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )


def _made_over(meta: ObjectMeta, pod: Pod) -> ObjectMeta:
    """Return metadata of which the pod is the owner, if the owner was a pod of its name."""
    owner = controller_of(meta)
    if owner is None or owner.kind != "Pod" or owner.name != pod.metadata.name:
        return meta
    return _replace(meta, owner_references=(_owner(pod),))
