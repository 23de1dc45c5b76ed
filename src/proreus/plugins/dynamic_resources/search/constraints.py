"""Constraints over the devices of a claim: ``matchAttribute`` and ``distinctAttribute``.

A constraint sees devices placed and removed in the order of the search, last placed first removed.

Example, devices d1 (numa 0), d2 and d3 (numa 1): ``MatchAttribute("numa")`` adds d1, refuses d2,
and adds d2 after d1 was removed; then d3. ``DistinctAttribute("numa")`` adds d1 and d2, refuses d3.
"""

from __future__ import annotations

from typing import Protocol

from proreus.plugins.dynamic_resources.devices.kinds import NOT_COMPARABLE, Value


class Attributes(Protocol):
    """The attributes of a device: a ``DeviceKind``, or what a request derives of one."""

    def attribute(self, name: str) -> Value | None:
        """Return type and value of an attribute; None: not there."""
        ...

    def attribute_values(self, name: str) -> frozenset[Value]:
        """Return type and value of all values of an attribute; empty: none."""
        ...


class Constraint(Protocol):
    """Remembers what it needs of the devices placed so far."""

    def add(self, request: str, subrequest: str, device: Attributes) -> bool:
        """Place a device; return whether that is allowed. A refused device is not placed."""
        ...

    def remove(self, request: str, subrequest: str) -> None:
        """Remove the device that was placed last."""
        ...


class _OverRequests:
    """Applies to the named requests; to all if none is named."""

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        self.attribute = attribute
        self._requests = frozenset(requests)

    def applies(self, request: str, subrequest: str) -> bool:
        """Return whether the devices of a request, or of one of its subrequests, are concerned."""
        names = self._requests
        # The name of a request stands for all its subrequests; ``request/subrequest`` for one.
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

    def add(self, request: str, subrequest: str, device: Attributes) -> bool:
        """Place a device; the first sets the value for all."""
        if not self.applies(request, subrequest):
            return True
        value = device.attribute(self.attribute)
        if value is None:
            return False
        # A list is accepted as the first value, but nothing matches it, not even itself.
        if self._count and (value != self._value or value == NOT_COMPARABLE):
            return False
        self._value = value
        self._count += 1
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Remove the device that was placed last."""
        # All placed devices have one value, so it is enough to know how many there are: at 0 the
        # next device sets the value anew.
        if self.applies(request, subrequest):
            self._count -= 1


class DistinctAttribute(_OverRequests):
    """Devices differ in the attribute (KEP-5075)."""

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._values: list[Value] = []

    def add(self, request: str, subrequest: str, device: Attributes) -> bool:
        """Place a device, if none that was placed has its value."""
        if not self.applies(request, subrequest):
            return True
        value = device.attribute(self.attribute)
        if value is None or value in self._values:
            return False
        self._values.append(value)
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Remove the device that was placed last."""
        if self.applies(request, subrequest):
            self._values.pop()


class DistinctAttributeOf136(_OverRequests):
    """``DistinctAttribute`` as kube-scheduler 1.36 has it (``Change.ALLOCATOR_OF_1_37``).

    One value is remembered for each request: of three devices of one
    request with the values A, B and A, the third is accepted.
    """

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._values: dict[str, Value] = {}

    def add(self, request: str, subrequest: str, device: Attributes) -> bool:
        """Place a device, if no remembered one has its value."""
        if not self.applies(request, subrequest):
            return True
        value = device.attribute(self.attribute)
        if value is None or value in self._values.values():
            return False
        # A list is accepted as the first value; later it is distinct from none.
        if self._values and value == NOT_COMPARABLE:
            return False
        # distinctAttributeConstraint of 1.36 keys values by request, so a later device of a request
        # replaces the value of the one before. A stricter check would reject what it accepts.
        self._values[request] = value
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Remove the device that was placed last."""
        # The value that this one replaced is not restored, as upstream: after a rollback the next
        # device is compared with other requests only.
        if self.applies(request, subrequest):
            self._values.pop(request, None)


class MatchAttributeLists(_OverRequests):
    """``MatchAttribute`` with gate DRAListTypeAttributes: all devices have a value in common.

    Only with ``Change.ALLOCATOR_OF_1_37``: 1.36 does not tell its allocator about the gate.
    """

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._common: list[frozenset[Value]] = []
        """The values that the first one, two … devices have in common."""

    def add(self, request: str, subrequest: str, device: Attributes) -> bool:
        """Place a device, if it has a value that all others have."""
        if not self.applies(request, subrequest):
            return True
        common = device.attribute_values(self.attribute)
        if self._common:
            common &= self._common[-1]
        if not common:
            return False
        self._common.append(common)
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Remove the device that was placed last."""
        if self.applies(request, subrequest):
            self._common.pop()


class DistinctAttributeLists(_OverRequests):
    """``DistinctAttribute`` with gate DRAListTypeAttributes: no two devices share a value."""

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._values: list[frozenset[Value]] = []

    def add(self, request: str, subrequest: str, device: Attributes) -> bool:
        """Place a device, if none that was placed has one of its values."""
        if not self.applies(request, subrequest):
            return True
        values = device.attribute_values(self.attribute)
        if not values or not all(map(values.isdisjoint, self._values)):
            return False
        self._values.append(values)
        return True

    def remove(self, request: str, subrequest: str) -> None:
        """Remove the device that was placed last."""
        if self.applies(request, subrequest):
            self._values.pop()
