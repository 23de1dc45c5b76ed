"""CSIStorageCapacity objects, parsed: how much storage can be provisioned where (KEP-1472)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from proreus.base.kubernetes_version import Change
from proreus.framework.handle import Handle
from proreus.objects.meta import key_of
from proreus.objects.quantity import parse_quantity, whole_value
from proreus.objects.selectors import (
    ParsedNodeSelector,
    SelectorError,
    parse_label_selector,
)
from proreus.objects.storage import CSI_STORAGE_CAPACITIES, CSIStorageCapacity
from proreus.plugins.volume_binding.accessible_nodes import nodes_of_selectors


class StorageCapacity(Struct, frozen=True):
    """The capacity for volumes of one class in one topology segment.

    ``limit``: the largest volume that can be provisioned, in nano-bytes; until 1.37, which rounds
    up, in bytes (``Change.EXACT_VOLUME_SIZES``). ``capacity``: the total in bytes.
    """

    accessible_nodes: ParsedNodeSelector
    limit: int
    capacity: int


class StorageCapacities:
    """All capacities by storage class."""

    def __init__(self, handle: Handle) -> None:
        self._by_class: dict[str, dict[str, StorageCapacity]] = {}
        self._exact = handle.feature_gates.includes(Change.EXACT_VOLUME_SIZES)
        handle.on_change(CSI_STORAGE_CAPACITIES, self._changed)

    def of(self, class_name: str) -> Iterable[StorageCapacity]:
        """Return the capacities for volumes of a class."""
        return self._by_class.get(class_name, {}).values()

    def _changed(self, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> None:
        if old is not None:
            name = old.storage_class_name
            capacities = self._by_class.get(name, {})
            capacities.pop(key_of(old), None)
            if not capacities:
                self._by_class.pop(name, None)
        storage_capacity = None if new is None else self._parsed(new)
        if new is not None and storage_capacity is not None:
            self._by_class.setdefault(new.storage_class_name, {})[key_of(new)] = storage_capacity

    def size_of(self, nano: int) -> int:
        """Return a size in the unit of ``limit``, from nano-bytes."""
        return nano if self._exact else whole_value(nano)

    def limit_of(self, capacity: CSIStorageCapacity) -> int | None:
        """Return the size of the largest volume that can be provisioned; None if unknown."""
        # The total may be split over several disks, so that a driver's limit for one volume goes
        # first.
        text = capacity.maximum_volume_size
        if text is None:
            text = capacity.capacity
        return None if text is None else self.size_of(parse_quantity(text))

    def _parsed(self, capacity: CSIStorageCapacity) -> StorageCapacity | None:
        """Parse an object; None if it has no size, or no valid node topology."""
        limit = self.limit_of(capacity)
        if limit is None or capacity.node_topology is None:
            return None
        try:
            nodes = nodes_of_selectors([parse_label_selector(capacity.node_topology)])
        except SelectorError:
            return None
        total = whole_value(parse_quantity(capacity.capacity or 0))
        return StorageCapacity(nodes, limit, total)
