"""Constraints over the devices of a claim: what they must share, what must set them apart.

A constraint is asked as devices are placed and taken back, in the order of the search.
"""

from __future__ import annotations

from typing import Protocol

from proreus.plugins.dynamic_resources.devices import DeviceKind

Value = tuple[str, object]


class Constraint(Protocol):
    """Keeps what was placed so far."""

    def add(self, request: str, subrequest: str, kind: DeviceKind) -> bool:
        """Place a device; tell whether that is allowed. A refused device is not placed."""
        ...

    def remove(self, request: str, subrequest: str) -> None:
        """Take back the device that was placed last."""
        ...


class _OverRequests:
    """Applies to the named requests; to all if none is named."""

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        self.attribute = attribute
        self._requests = frozenset(requests)

    def applies(self, request: str, subrequest: str) -> bool:
        """Return whether the devices of a request, or of one of its subrequests, are concerned."""
        names = self._requests
        return (
            not names
            or request in names
            or (bool(subrequest) and f"{request}/{subrequest}" in names)
        )


class MatchAttribute(_OverRequests):
    """All devices have the attribute, with the same type and value."""

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._value: Value | None = None
        self._count = 0

    def add(self, request: str, subrequest: str, kind: DeviceKind) -> bool:
        """Place a device; the first sets the value for all."""
        if not self.applies(request, subrequest):
            return True
        value = kind.attribute(self.attribute)
        if value is None or (self._count and value != self._value):
            return False
        self._value = value
        self._count += 1
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Take back the device that was placed last."""
        if self.applies(request, subrequest):
            self._count -= 1


class DistinctAttribute(_OverRequests):
    """Devices differ in the attribute (KEP-5075).

    One value is remembered a request, as in kube-scheduler 1.36: of three devices of one request
    the third is only held against the second.
    """

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._values: dict[str, Value] = {}

    def add(self, request: str, subrequest: str, kind: DeviceKind) -> bool:
        """Place a device, if no remembered one has its value."""
        if not self.applies(request, subrequest):
            return True
        value = kind.attribute(self.attribute)
        if value is None or value in self._values.values():
            return False
        self._values[request] = value
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Take back the device that was placed last."""
        if self.applies(request, subrequest):
            self._values.pop(request, None)
