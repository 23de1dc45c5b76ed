"""The attributes that a request derives of devices, for constraints (gate DRADerivedAttributes).

A constraint looks its attribute up among those that the request derives, by name, and only then
among those that the device has. Selectors see the device's own only.
"""

from __future__ import annotations

from collections.abc import Callable

from proreus.objects.devices import DeviceAttribute
from proreus.plugins.dynamic_resources.cel.attributes import compile_derived_attribute
from proreus.plugins.dynamic_resources.cel.expressions import CelError
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind, Value, value_of, values_of
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError, quoted
from proreus.plugins.dynamic_resources.search.alternative import Alternative


class DerivedAttributes:
    """A device as the constraints see it for one request that derives attributes.

    ``check`` is called before each expression that is evaluated, and may raise.
    """

    __slots__ = ("_check", "_kind", "_request")

    def __init__(self, request: Alternative, kind: DeviceKind, check: Callable[[], None]) -> None:
        self._request = request
        self._kind = kind
        self._check = check

    def attribute(self, name: str) -> Value | None:
        """Return type and value of an attribute; None: not there. Raises ``AllocationError``."""
        derived = self._derived(name)
        return self._kind.attribute(name) if derived is None else value_of(derived)

    def attribute_values(self, name: str) -> frozenset[Value]:
        """Return all values of an attribute; empty: none. Raises ``AllocationError``."""
        derived = self._derived(name)
        return self._kind.attribute_values(name) if derived is None else values_of(derived)

    def _derived(self, name: str) -> DeviceAttribute | None:
        expression = self._request.derived.get(name)
        if expression is None:
            return None
        self._check()
        error = compile_derived_attribute(expression).error
        if error:
            raise AllocationError(
                f"compile derived attribute {quoted(name)} failed: {quoted(error)}",
                self._request.claim,
            )
        try:
            return self._kind.derive(expression)
        except CelError as cel_error:
            raise AllocationError(
                f"evaluate derived attribute {quoted(name)} on device {{device}} failed: "
                f"{quoted(str(cel_error))}",
                self._request.claim,
            ) from None
