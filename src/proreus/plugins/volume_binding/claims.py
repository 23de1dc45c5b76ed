"""The claims of a pod, sorted by what the scheduler has to do for them."""

from __future__ import annotations

from msgspec import Struct

from proreus.base.errors import ProreusError
from proreus.objects.pod import Pod
from proreus.objects.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim
from proreus.objects.volume_claims import (
    claim_name_of,
    class_of_claim,
    is_ephemeral,
    is_fully_bound,
    ownership_error,
)
from proreus.plugins.volume_binding.storage import Storage

_LOST = "Lost"


class ClaimsUnusable(ProreusError):
    """The pod fits no node while its claims are as they are: an unresolvable status."""


class StorageError(ProreusError):
    """An object of storage is invalid or missing: an Error status."""


class PodVolumeClaims(Struct, frozen=True):
    """Claims by their state.

    ``bound``: have their volume. ``delayed``: get one on the node that the scheduler selects.
    ``immediate``: get one from the volume controller, whatever the scheduler selects.
    """

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()


def has_claims(pod: Pod) -> bool:
    """Return whether any volume of a pod refers to a claim."""
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None
        for volume in pod.spec.volumes
    )


def check_claims(pod: Pod, storage: Storage) -> None:
    """Raise ``ClaimsUnusable`` for the first claim that is missing, lost, deleted or not owned."""
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        name = claim_name_of(pod, volume)
        if name is None:
            continue
        # As the apiserver has it: an assumed copy may be older than a deletion.
        claim = storage.watched_claims.get(f"{namespace}/{name}")
        if claim is None:
            if is_ephemeral(volume):
                raise ClaimsUnusable(
                    "waiting for ephemeral volume controller to create the "
                    f'persistentvolumeclaim "{name}"'
                )
            raise ClaimsUnusable(f'persistentvolumeclaim "{name}" not found')
        if claim.status.phase == _LOST:
            raise ClaimsUnusable(
                f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
                f'"{claim.spec.volume_name}"'
            )
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimsUnusable(f'persistentvolumeclaim "{name}" is being deleted')
        if is_ephemeral(volume):
            problem = ownership_error(pod, claim)
            if problem is not None:
                raise ClaimsUnusable(problem)


def get_pod_volume_claims(pod: Pod, storage: Storage) -> PodVolumeClaims:
    """Sort the claims of a pod, after ``check_claims``. Raises ``StorageError``."""
    bound, delayed, immediate = [], [], []
    for volume in pod.spec.volumes:
        name = claim_name_of(pod, volume)
        if name is None:
            continue
        claim = storage.claims.get(f"{pod.metadata.namespace}/{name}")
        assert claim is not None
        if is_fully_bound(claim):
            bound.append(claim)
        # With a volume name the claim is prebound: the volume controller completes the binding.
        elif _waits_for_consumer(claim, storage) and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            immediate.append(claim)
    return PodVolumeClaims(tuple(bound), tuple(delayed), tuple(immediate))


def _waits_for_consumer(claim: PersistentVolumeClaim, storage: Storage) -> bool:
    name = class_of_claim(claim)
    storage_class = storage.classes.get(name) if name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        raise StorageError(f'VolumeBindingMode not set for StorageClass "{name}"')
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
