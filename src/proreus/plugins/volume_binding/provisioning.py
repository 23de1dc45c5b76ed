"""The nodes where a volume can be provisioned for a claim (storage capacity: KEP-1472)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

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
from proreus.plugins.volume_binding.accessible_nodes import (
    AccessibleNodes,
    is_accessible,
    nodes_of_selectors,
)
from proreus.plugins.volume_binding.storage import Storage
from proreus.plugins.volume_binding.storage_capacity import StorageCapacity

NOWHERE = ParsedNodeSelector(())


class Provisioning(Struct, frozen=True):
    """The provisioning of a volume for a claim.

    ``allowed``: the nodes that the class allows. ``storage_capacities``: those large enough; None
    if capacity is not tracked. ``problem``: why this cannot be determined, "" if it can.
    """

    claim: PersistentVolumeClaim
    allowed: AccessibleNodes = None
    storage_capacities: tuple[StorageCapacity, ...] | None = None
    problem: str = ""

    def capacity_at(self, labels: Mapping[str, str]) -> StorageCapacity | None:
        """Return a sufficient capacity that a node can access; None without."""
        for storage_capacity in self.storage_capacities or ():
            if is_accessible(labels, storage_capacity.accessible_nodes):
                return storage_capacity
        return None


def provisioning_for(claim: PersistentVolumeClaim, storage: Storage) -> Provisioning:
    """Return the nodes and capacities for provisioning a volume for a claim."""
    name = class_of_claim(claim)
    if not name:
        return Provisioning(claim, problem=f'no class for claim "{key_of(claim)}"')
    storage_class = storage.classes.get(name)
    if storage_class is None:
        return Provisioning(claim, problem=f'failed to find storage class "{name}"')
    # Static volumes only, as for local disks.
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return Provisioning(claim, NOWHERE)
    allowed = _allowed(storage_class)
    # Capacity counts only for drivers that announce it (CSIDriver.spec.storageCapacity): others
    # publish no objects, and none would mean no capacity anywhere.
    requested = requested_storage(claim)
    driver = storage.csi_drivers.get(storage_class.provisioner)
    if requested is None or driver is None or not driver.spec.storage_capacity:
        return Provisioning(claim, allowed)
    size = storage.storage_capacities.size_of(requested)
    storage_capacities = tuple(
        storage_capacity
        for storage_capacity in storage.storage_capacities.of(name)
        if storage_capacity.limit >= size
    )
    return Provisioning(claim, allowed, storage_capacities)


def fit_together(provisionings: Iterable[Provisioning], labels: Mapping[str, str]) -> bool:
    """Return whether a node can access enough capacity for all these claims together.

    The largest claim first, each from the first capacity that has enough left. A capacity whose
    total is not known, because only the largest volume is announced, counts for all.
    """
    tracked = [one for one in provisionings if one.storage_capacities is not None]
    sized = [(whole_value(requested_storage(one.claim) or 0), one) for one in tracked]
    left: dict[int, int] = {}
    for size_bytes, provisioning in sorted(sized, key=lambda item: -item[0]):
        for one in provisioning.storage_capacities or ():
            free = left.get(id(one), one.capacity)
            if (free >= size_bytes or not one.capacity) and is_accessible(
                labels, one.accessible_nodes
            ):
                left[id(one)] = free - size_bytes
                break
        else:
            return False
    return True


def _allowed(storage_class: StorageClass) -> AccessibleNodes:
    terms = storage_class.allowed_topologies
    if not terms:
        return None
    parsed = (_selector_of(term) for term in terms)
    return nodes_of_selectors([selector for selector in parsed if selector is not None])


def _selector_of(term: TopologySelectorTerm) -> Selector | None:
    """Parse a term; None if it is empty or does not parse, and so matches no node."""
    try:
        requirements = tuple(
            parse_requirement(
                LabelSelectorRequirement(
                    key=expression.key, operator="In", values=expression.values
                )
            )
            for expression in term.match_label_expressions
        )
    except SelectorError:
        return None
    return Selector(requirements) if requirements else None
