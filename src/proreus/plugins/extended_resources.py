"""Which extended resources devices may stand for, and through which DeviceClass (KEP-5004).

NodeResourcesFit leaves such resources to DynamicResources on nodes that have none of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.framework.handle import Handle
from proreus.objects.devices import DEVICE_CLASS_RESOURCE_PREFIX, DEVICE_CLASSES, DeviceClass
from proreus.objects.requests import is_extended_resource


def may_be_dra_backed(resource: str) -> bool:
    """Tell whether a resource has the form of one that devices may stand for."""
    return is_extended_resource(resource) or resource.startswith(DEVICE_CLASS_RESOURCE_PREFIX)


class ExtendedResourceClasses:
    """Which DeviceClass stands for which extended resource.

    A class offers its ``extendedResourceName`` and always ``deviceclass.resource.kubernetes.io/``
    with its own name. Of several classes with the same name the newest wins, then the one whose
    name comes first. ``version`` moves with every change.
    """

    def __init__(self) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._by_resource: dict[str, DeviceClass] = {}
        self.version = 0

    @classmethod
    def watching(cls, handle: Handle) -> ExtendedResourceClasses:
        """Return an index that follows the classes that a handle watches."""
        classes = cls()
        handle.on_change(DEVICE_CLASSES, classes.put)
        return classes

    def put(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """Take note of a change of a class."""
        if old is not None:
            self._classes.pop(old.metadata.name, None)
        if new is not None:
            self._classes[new.metadata.name] = new
        self._by_resource = {}
        for cls in sorted(self._classes.values(), key=_newest_last):
            if cls.spec.extended_resource_name:
                self._by_resource[cls.spec.extended_resource_name] = cls
        for name, cls in self._classes.items():
            self._by_resource[DEVICE_CLASS_RESOURCE_PREFIX + name] = cls
        self.version += 1

    def get(self, resource: str) -> DeviceClass | None:
        """Return the class that stands for a resource."""
        return self._by_resource.get(resource)

    def dra_backed(self, amounts: Mapping[str, int]) -> tuple[str, ...]:
        """Return the resources, of which more than 0 is asked, that devices stand for."""
        if not self._by_resource:
            return ()
        return tuple(
            name for name, amount in amounts.items() if amount > 0 and name in self._by_resource
        )


def _newest_last(cls: DeviceClass) -> tuple[float, tuple[int, ...]]:
    created = cls.metadata.creation_timestamp
    # Names descend, so that the one that comes first is the last to be put.
    descending = (*(-ord(letter) for letter in cls.metadata.name), 1)
    return (created.timestamp() if created is not None else float("-inf"), descending)
