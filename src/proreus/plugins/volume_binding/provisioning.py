"""Where a volume for a claim could be made (dynamic provisioning, storage capacity: KEP-1472)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proreus.objects.meta import key_of
from proreus.objects.quantity import whole_value
from proreus.objects.selectors import (
    LabelSelectorRequirement,
    ParsedNodeSelector,
    Selector,
    SelectorError,
    parse_requirement,
)
from proreus.objects.storage import (
    NO_PROVISIONER,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from proreus.objects.volume_claims import class_of_claim, requested_storage
from proreus.plugins.volume_binding.reach import Reach, reach_of_selectors, reaches
from proreus.plugins.volume_binding.rooms import Room
from proreus.plugins.volume_binding.storage import Storage

NOWHERE = ParsedNodeSelector(())


@dataclass(frozen=True, slots=True)
class Provisioning:
    """How a volume can be made for a claim.

    ``allowed``: where the class lets it be made. ``rooms``: where there is enough room; None where
    nobody keeps count. ``problem``: why it cannot be told.
    """

    claim: PersistentVolumeClaim
    allowed: Reach = None
    rooms: tuple[Room, ...] | None = None
    problem: str = ""

    def room_at(self, labels: Mapping[str, str]) -> Room | None:
        """Return where at a node there is room."""
        for room in self.rooms or ():
            if reaches(labels, room.reach):
                return room
        return None


def provisioning_for(claim: PersistentVolumeClaim, storage: Storage) -> Provisioning:
    """Return how a volume could be made for a claim."""
    name = class_of_claim(claim)
    if not name:
        return Provisioning(claim, problem=f'no class for claim "{key_of(claim)}"')
    storage_class = storage.classes.get(name)
    if storage_class is None:
        return Provisioning(claim, problem=f'failed to find storage class "{name}"')
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return Provisioning(claim, NOWHERE)
    allowed = _allowed(storage_class)
    asked = requested_storage(claim)
    driver = storage.csi_drivers.get(storage_class.provisioner)
    if asked is None or driver is None or not driver.spec.storage_capacity:
        return Provisioning(claim, allowed)
    size_bytes = whole_value(asked)
    rooms = tuple(room for room in storage.rooms.of(name) if room.limit >= size_bytes)
    return Provisioning(claim, allowed, rooms)


def _allowed(storage_class: StorageClass) -> Reach:
    terms = storage_class.allowed_topologies
    if not terms:
        return None
    parsed = (_selector_of(term) for term in terms)
    return reach_of_selectors([selector for selector in parsed if selector is not None])


def _selector_of(term: TopologySelectorTerm) -> Selector | None:
    """Parse a term; None for one that is empty or does not parse, and so is met by nobody."""
    try:
        requirements = tuple(
            parse_requirement(
                LabelSelectorRequirement(key=asked.key, operator="In", values=asked.values)
            )
            for asked in term.match_label_expressions
        )
    except SelectorError:
        return None
    return Selector(requirements) if requirements else None
