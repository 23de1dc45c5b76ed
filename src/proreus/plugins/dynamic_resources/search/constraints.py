"""Constraints over the devices of a claim: ``matchAttribute`` and ``distinctAttribute``.

A constraint sees devices placed and removed in the order of the search, last placed first removed.

Example, devices d1 (numa 0), d2 and d3 (numa 1): ``MatchAttribute("numa")`` adds d1, refuses d2,
and adds d2 after d1 was removed; then d3. ``DistinctAttribute("numa")`` adds d1 and d2, refuses d3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from proreus.base.errors import ProreusError
from proreus.plugins.dynamic_resources.devices.kinds import NOT_COMPARABLE, UNSUPPORTED, Value

Values = frozenset[Value]


class UnsupportedValueError(ProreusError):
    """A device has an attribute whose value cannot be compared (``UNSUPPORTED``)."""


class Attributes(Protocol):
    """The attributes of a device: a ``DeviceKind``, or the attributes a request derives of one."""

    def attribute_values(self, name: str, lists: bool) -> Values:
        """Return type and value of each value of an attribute; see ``kinds.values_of``."""
        ...


class Constraint(ABC):
    """Keeps its view of the devices placed so far for the named requests.

    No names mean all requests. ``lists``: an attribute may be a list (gate DRAListTypeAttributes,
    with ``Change.ALLOCATOR_OF_1_37`` only: 1.36 does not tell its allocator about the gate).
    """

    def __init__(self, attribute: str, requests: tuple[str, ...], *, lists: bool = False) -> None:
        self.attribute = attribute
        self._requests = frozenset(requests)
        self._lists = lists

    def applies(self, request: str, subrequest: str) -> bool:
        """Return whether the constraint applies to a request, or to one of its subrequests."""
        names = self._requests
        # The name of a request stands for all its subrequests; ``request/subrequest`` for one.
        return (
            not names
            or request in names
            or (bool(subrequest) and f"{request}/{subrequest}" in names)
        )

    def add(self, request: str, subrequest: str, device: Attributes) -> bool:
        """Place a device; return whether that is allowed. A refused device is not placed.

        Raises ``UnsupportedValueError``.
        """
        if not self.applies(request, subrequest):
            return True
        values = device.attribute_values(self.attribute, self._lists)
        if UNSUPPORTED in values:
            raise UnsupportedValueError(self.attribute)
        return bool(values) and self._add(request, values)

    def remove(self, request: str, subrequest: str) -> None:
        """Remove the device that was placed last."""
        if self.applies(request, subrequest):
            self._remove(request)

    @abstractmethod
    def _add(self, request: str, values: Values) -> bool: ...

    @abstractmethod
    def _remove(self, request: str) -> None: ...


class MatchAttribute(Constraint):
    """All devices have a value of the attribute in common, with its type."""

    def __init__(self, attribute: str, requests: tuple[str, ...], *, lists: bool = False) -> None:
        super().__init__(attribute, requests, lists=lists)
        self._common: list[Values] = []
        """The values that the first one, two … devices have in common."""

    def _add(self, request: str, values: Values) -> bool:
        # Without ``lists`` a list is accepted first, but nothing matches it, not even itself.
        if self._common:
            values = (values & self._common[-1]) - {NOT_COMPARABLE}
        if not values:
            return False
        self._common.append(values)
        return True

    def _remove(self, request: str) -> None:
        self._common.pop()


class DistinctAttribute(Constraint):
    """No two devices share a value of the attribute (KEP-5075)."""

    def __init__(self, attribute: str, requests: tuple[str, ...], *, lists: bool = False) -> None:
        super().__init__(attribute, requests, lists=lists)
        self._values: list[Values] = []

    def _add(self, request: str, values: Values) -> bool:
        if not all(map(values.isdisjoint, self._values)):
            return False
        self._values.append(values)
        return True

    def _remove(self, request: str) -> None:
        self._values.pop()


class DistinctAttributeOf136(Constraint):
    """``DistinctAttribute`` as kube-scheduler 1.36 has it (``Change.ALLOCATOR_OF_1_37``).

    One value is remembered for each request: of three devices of one
    request with the values A, B and A, the third is accepted.
    """

    def __init__(self, attribute: str, requests: tuple[str, ...]) -> None:
        super().__init__(attribute, requests)
        self._values: dict[str, Values] = {}

    def _add(self, request: str, values: Values) -> bool:
        # A list is accepted as the first value; later it is distinct from none.
        if values in self._values.values() or (self._values and NOT_COMPARABLE in values):
            return False
        # distinctAttributeConstraint of 1.36 keys values by request, so a later device of a request
        # replaces the value of the one before. A stricter check would reject what it accepts.
        self._values[request] = values
        return True

    def _remove(self, request: str) -> None:
        # The value that this one replaced is not restored, as upstream: after a rollback the next
        # device is compared with other requests only.
        self._values.pop(request, None)
