"""The existing volumes that match a claim (static provisioning).

Worked example: a claim for 5Gi, and free volumes of its class of 10Gi, 6Gi and 4Gi: the result is
6Gi, 10Gi. A node gets the first of them that it can access.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from proreus.objects.meta import key_of
from proreus.objects.selectors import (
    EVERYTHING,
    Selector,
    SelectorError,
    parse_label_selector,
)
from proreus.objects.storage import PersistentVolume, PersistentVolumeClaim
from proreus.objects.volume_claims import (
    capacity_of,
    class_of_claim,
    class_of_volume,
    is_volume_bound_to_claim,
    requested_storage,
)
from proreus.plugins.volume_binding.accessible_nodes import AccessibleNodes, nodes_of_volume
from proreus.plugins.volume_binding.storage import Storage

_AVAILABLE = "Available"
_FILESYSTEM = "Filesystem"


class MatchingVolumes(Struct, frozen=True):
    """Volumes that match a claim, the smallest first: a node gets the first that it can access.

    ``problem``: why they cannot be determined, "" if they can.
    """

    claim: PersistentVolumeClaim
    volumes: tuple[PersistentVolume, ...] = ()
    accessible_nodes: tuple[AccessibleNodes, ...] = ()
    problem: str = ""


def find_matching_volumes(claim: PersistentVolumeClaim, storage: Storage) -> MatchingVolumes:
    """Return the volumes that match a claim, on any node."""
    try:
        wanted = claim.spec.selector
        selector = EVERYTHING if wanted is None else parse_label_selector(wanted)
    except SelectorError as error:
        text = "error creating internal label selector for claim"
        return MatchingVolumes(claim, problem=f"{text}: {key_of(claim)}: {error}")
    name = class_of_claim(claim)
    # A volume whose claimRef names the claim is reserved for it: no other one is considered.
    for volume in storage.prebound_volumes(claim):
        kept = is_volume_bound_to_claim(volume, claim) and class_of_volume(volume) == name
        if kept and _is_large_enough(volume, claim):
            return MatchingVolumes(claim, (volume,), (nodes_of_volume(volume),))
    fitting = sorted(_fitting(storage.free_volumes(name), claim, selector), key=capacity_of)
    return MatchingVolumes(claim, tuple(fitting), tuple(map(nodes_of_volume, fitting)))


def _fitting(
    volumes: Iterable[PersistentVolume], claim: PersistentVolumeClaim, selector: Selector
) -> Iterable[PersistentVolume]:
    modes = frozenset(claim.spec.access_modes)
    for volume in volumes:
        # A volume of another phase is bound or being reclaimed, or was not processed yet.
        if (
            volume.status.phase == _AVAILABLE
            and modes.issubset(volume.spec.access_modes)
            and selector.matches(volume.metadata.labels)
            and _is_large_enough(volume, claim)
        ):
            yield volume


def _is_large_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume has the size, mode and class, and is not terminating."""
    have, want = volume.spec, claim.spec
    return (
        capacity_of(volume) >= (requested_storage(claim) or 0)
        and (have.volume_mode or _FILESYSTEM) == (want.volume_mode or _FILESYSTEM)
        and (have.volume_attributes_class_name or "") == (want.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )
