"""Where a volume for a claim could be made (dynamic provisioning, storage capacity: KEP-1472)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proreus.objects.meta import key_of
from proreus.objects.quantity import parse_quantity, whole_value
from proreus.objects.selectors import (
    LabelSelectorRequirement,
    ParsedNodeSelector,
    Selector,
    SelectorError,
    parse_label_selector,
    parse_requirement,
)
from proreus.objects.storage import (
    NO_PROVISIONER,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from proreus.objects.volume_claims import class_of_claim, requested_storage
from proreus.plugins.volume_binding.reach import Reach, reach_of_selectors, reaches
from proreus.plugins.volume_binding.storage import Storage

NOWHERE = ParsedNodeSelector(())


@dataclass(frozen=True, slots=True)
class Provisioning:
    """How a volume can be made for a claim.

    ``allowed``: where the class lets it be made. ``roomy``: where there is room; None where nobody
    keeps count. ``capacities``: who says so, with their reach. ``problem``: why it cannot be told.
    """

    claim: PersistentVolumeClaim
    allowed: Reach = None
    roomy: Reach = None
    capacities: tuple[tuple[CSIStorageCapacity, Selector], ...] = ()
    problem: str = ""

    def capacity_at(self, labels: Mapping[str, str]) -> CSIStorageCapacity | None:
        """Return what says that there is room at a node; None also where nobody keeps count."""
        for capacity, selector in self.capacities:
            if selector.matches(labels):
                return capacity
        return None

    def has_room(self, labels: Mapping[str, str]) -> bool:
        """Tell whether there is room at a node."""
        return reaches(labels, self.roomy)


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
    capacities = tuple(_roomy(storage, name, whole_value(asked)))
    roomy = reach_of_selectors([selector for _, selector in capacities])
    return Provisioning(claim, allowed, roomy, capacities)


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


def _roomy(
    storage: Storage, class_name: str, size_bytes: int
) -> list[tuple[CSIStorageCapacity, Selector]]:
    found = []
    for capacity in storage.capacities.values():
        if capacity.storage_class_name == class_name and _is_enough(capacity, size_bytes):
            try:
                found.append((capacity, parse_label_selector(capacity.node_topology)))
            except SelectorError:
                continue
    return found


def _is_enough(capacity: CSIStorageCapacity, size_bytes: int) -> bool:
    limit = limit_of(capacity)
    return limit is not None and limit >= size_bytes and capacity.node_topology is not None


def limit_of(capacity: CSIStorageCapacity) -> int | None:
    """Return the size in bytes of the largest volume that can be made; None: not known."""
    text = capacity.maximum_volume_size
    if text is None:
        text = capacity.capacity
    return None if text is None else whole_value(parse_quantity(text))
