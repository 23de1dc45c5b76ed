"""The DeviceClass that provides an extended resource through devices (KEP-5004).

On nodes without such a resource of their own NodeResourcesFit leaves it to DynamicResources.

Worked example: a class ``gpu`` with ``extendedResourceName: example.com/gpu`` provides
``example.com/gpu`` and ``deviceclass.resource.kubernetes.io/gpu``.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.framework.handle import Handle
from proreus.objects.devices import DEVICE_CLASS_RESOURCE_PREFIX, DEVICE_CLASSES, DeviceClass
from proreus.objects.resource_names import is_extended_resource


def may_be_dra_backed(resource: str) -> bool:
    """Return whether devices may provide a resource, by its name."""
    return is_extended_resource(resource) or resource.startswith(DEVICE_CLASS_RESOURCE_PREFIX)


class ExtendedResourceClasses:
    """The DeviceClass of each extended resource.

    A class provides its ``extendedResourceName``, and ``deviceclass.resource.kubernetes.io/`` with
    its own name in any case. Of several classes with one ``extendedResourceName`` the newest wins,
    then the one whose name comes first. ``version`` increases with every change.
    """

    # Invariant: _by_resource has the last of each entry of _offers, by _newest_last, and each class
    # by its own name; no entry of _offers is empty.

    def __init__(self) -> None:
        self._offers: dict[str, dict[str, DeviceClass]] = {}
        """Classes by their ``extendedResourceName`` and name."""
        self._by_resource: dict[str, DeviceClass] = {}
        self.version = 0

    @classmethod
    def watching(cls, handle: Handle) -> ExtendedResourceClasses:
        """Return an index that follows a handle's DeviceClasses."""
        classes = cls()
        handle.on_change(DEVICE_CLASSES, classes.put)
        return classes

    def put(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """Update the index after a change of a class."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._by_resource[DEVICE_CLASS_RESOURCE_PREFIX + new.metadata.name] = new
            resource = new.spec.extended_resource_name
            if resource:
                self._offers.setdefault(resource, {})[new.metadata.name] = new
                self._choose(resource)
        # Results of NodeResourcesFit were computed with the old classes.
        self.version += 1

    def _remove(self, cls: DeviceClass) -> None:
        name, resource = cls.metadata.name, cls.spec.extended_resource_name
        self._by_resource.pop(DEVICE_CLASS_RESOURCE_PREFIX + name, None)
        if resource and resource in self._offers:
            self._offers[resource].pop(name, None)
            self._choose(resource)

    def _choose(self, resource: str) -> None:
        """Choose the class that provides a resource of this ``extendedResourceName``."""
        offers = self._offers[resource]
        if offers:
            self._by_resource[resource] = max(offers.values(), key=_newest_last)
        else:
            del self._offers[resource], self._by_resource[resource]

    def get(self, resource: str) -> DeviceClass | None:
        """Return the class that provides a resource; None without."""
        return self._by_resource.get(resource)

    def dra_backed(self, amounts: Mapping[str, int]) -> tuple[str, ...]:
        """Return the resources with a request above 0 that a DeviceClass provides."""
        provided = self._by_resource.keys() & amounts.keys()
        if not provided:
            return ()
        return tuple(name for name, amount in amounts.items() if amount > 0 and name in provided)


def _newest_last(cls: DeviceClass) -> tuple[float, tuple[int, ...]]:
    created = cls.metadata.creation_timestamp
    # Names descend, so that the one that comes first is put last and wins.
    descending = (*(-ord(letter) for letter in cls.metadata.name), 1)
    return (created.timestamp() if created is not None else float("-inf"), descending)
