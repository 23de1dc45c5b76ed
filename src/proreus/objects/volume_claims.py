"""Relations between pods, claims and volumes: names, classes, bindings, sizes."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.objects.meta import controller_of
from proreus.objects.pod import Pod, Volume
from proreus.objects.quantity import parse_quantity
from proreus.objects.storage import (
    BIND_COMPLETED_ANNOTATION,
    STORAGE_CLASS_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
)

STORAGE = "storage"


def claim_name_of(pod: Pod, volume: Volume) -> str | None:
    """Return the name of the claim of a pod's volume; None for a volume without one.

    The claim of a generic ephemeral volume is created for the pod, with the name
    ``<pod>-<volume>`` (KEP-1698).
    """
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.ephemeral is not None:
        return f"{pod.metadata.name}-{volume.name}"
    return None


def is_ephemeral(volume: Volume) -> bool:
    """Return whether the claim of a volume is created for its pod."""
    # An apiserver refuses a volume with both; the first is the one that counts.
    return volume.ephemeral is not None and volume.persistent_volume_claim is None


def claim_names_of(pod: Pod) -> Iterator[str]:
    """Yield the names of all claims of a pod, ephemeral volumes included."""
    for volume in pod.spec.volumes:
        name = claim_name_of(pod, volume)
        if name is not None:
            yield name


def uses_claim(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether one of the pod's volumes uses this claim."""
    meta = claim.metadata
    if meta.namespace != pod.metadata.namespace or not pod.spec.volumes:
        return False
    return any(name == meta.name for name in claim_names_of(pod))


def ownership_error(pod: Pod, claim: PersistentVolumeClaim) -> str | None:
    """Return why the claim of an ephemeral volume is not owned by the pod; None if it is.

    Without this check, a pod could access the data of another by choosing its name.
    """
    owner = controller_of(claim.metadata)
    if owner is not None and owner.uid == pod.metadata.uid:
        return None
    meta, name = pod.metadata, claim.metadata.name
    return (
        f"PVC {claim.metadata.namespace}/{name} was not created for pod "
        f"{meta.namespace}/{meta.name} (pod is not owner)"
    )


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """Return the name of a claim's class; the beta annotation takes precedence, even if empty."""
    annotated = claim.metadata.annotations.get(STORAGE_CLASS_ANNOTATION)
    return (claim.spec.storage_class_name or "") if annotated is None else annotated


def class_of_volume(volume: PersistentVolume) -> str:
    """Return the name of a volume's class; the beta annotation takes precedence, even if empty."""
    annotated = volume.metadata.annotations.get(STORAGE_CLASS_ANNOTATION)
    return volume.spec.storage_class_name if annotated is None else annotated


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether claim and volume are bound, as confirmed by the volume controller."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED_ANNOTATION in claim.metadata.annotations


def is_volume_bound_to_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume's ``claimRef`` refers to a claim, by name if it has no UID."""
    ref, meta = volume.spec.claim_ref, claim.metadata
    if ref is None or ref.name != meta.name or ref.namespace != meta.namespace:
        return False
    return not ref.uid or ref.uid == meta.uid


def requested_storage(claim: PersistentVolumeClaim) -> int | None:
    """Return the size that a claim requests, in nano-units of a byte; None if absent."""
    requested = claim.spec.resources.requests.get(STORAGE)
    return None if requested is None else parse_quantity(requested)


def capacity_of(volume: PersistentVolume) -> int:
    """Return the size of a volume, in nano-units of a byte."""
    return parse_quantity(volume.spec.capacity.get(STORAGE, 0))
