"""One way to satisfy a request: its selectors, its tolerations, and the capacity it consumes.

What is found for a kind of device is kept: the search comes to the same devices again and again, on
thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proreus.objects.devices import DeviceClass
from proreus.objects.resource_claims import ALL
from proreus.objects.taints import Toleration, tolerates
from proreus.plugins.dynamic_resources.cel.expressions import CelError
from proreus.plugins.dynamic_resources.claims import AnyRequest
from proreus.plugins.dynamic_resources.devices.capacity import (
    Amount,
    CapacityError,
    consumed_as_written,
    consumed_capacities,
)
from proreus.plugins.dynamic_resources.devices.kinds import RUNTIME_ERROR, DeviceKind, by_capacity
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError, quoted

_HARD = frozenset({"NoSchedule", "NoExecute"})

_ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)


def _no_check() -> None:
    pass


class Alternative:
    """One way to satisfy a request: the request itself, or one of its subrequests."""

    def __init__(
        self,
        claim: int,
        request: str,
        name: str,
        wanted: AnyRequest,
        cls: DeviceClass,
        features: Features,
    ) -> None:
        self.claim = claim
        self.request = request
        self.name = name
        """``request`` or ``request/subrequest``, as in results."""
        self.subrequest = name[len(request) + 1 :]
        self.own_name = quoted(self.subrequest or request)
        """The name in error texts, which is without the request for a subrequest."""
        self.wanted = wanted
        self.cls = cls
        self.all_devices = wanted.allocation_mode == ALL
        self.count = wanted.count
        self.admin_access = bool(getattr(wanted, "admin_access", None))
        self.tolerations: tuple[Toleration, ...] = wanted.tolerations
        self.derived = {
            one.name: one.expression
            for one in (wanted.derived_attributes if features.derived_attributes else ())
        }
        """The expressions of derived attributes, by name."""
        self._features = features
        self.requested = wanted.capacity.requests if wanted.capacity is not None else {}
        """The amounts of capacities that are requested, by name, as written."""
        # By number of a device's kind. The search comes to the same devices again and again, on
        # thousands of nodes; there are few kinds.
        self._selectable: dict[int, bool | AllocationError] = {}
        self._amounts: dict[int, Mapping[str, int] | None] = {}

    def selects(self, kind: DeviceKind, check: Callable[[], None] = _no_check) -> bool:
        """Return whether class and request select a device; raises ``AllocationError``.

        ``check`` is called before each selector that is evaluated, and may raise: a selector may
        take milliseconds to compile and tens of them to evaluate.
        """
        result = self._selectable.get(kind.number)
        if result is None:
            try:
                result = self._select(kind, check)
            except AllocationError as allocation_error:
                result = allocation_error
            self._selectable[kind.number] = result
        # Raised again and again, one exception object would collect the tracebacks of all searches,
        # and keep their frames alive.
        if isinstance(result, AllocationError):
            raise result.with_traceback(None)
        return result

    def _select(self, kind: DeviceKind, check: Callable[[], None]) -> bool:
        # Such a device is not usable before its driver has prepared it, and with the gate off
        # nobody would wait for that (isSelectable).
        if kind.needs_binding_conditions and not self._features.binding_conditions:
            return False
        # Selectors of the class come first, and the first that is false ends it: a later one that
        # fails on this device is no error then. selectorsMatch has the same order.
        cls = quoted(self.cls.metadata.name)
        for selectors, source in (
            (self.cls.spec.selectors, f"class {cls}"),
            (self.wanted.selectors, "claim {claim}"),
        ):
            for place, selector in enumerate(selectors):
                # A type of selector from a newer API. To ignore it would give away devices that it
                # excludes. Those of requests were checked beforehand (_check).
                if selector.cel is None:
                    raise AllocationError(
                        f"{source}: selector #{place}: CEL expression empty "
                        "(unsupported selector type?)",
                        self.claim,
                    )
                check()
                try:
                    if not kind.matches(selector.cel.expression):
                        return False
                except CelError as error:
                    message = _cel_message(error, self._features)
                    raise AllocationError(
                        f"{source}: selector #{place}{message}", self.claim
                    ) from None
        return True

    def consumed(self, kind: DeviceKind) -> dict[str, Amount]:
        """Return the amount that ``amounts`` has for each capacity, and how it is written."""
        requested = by_capacity(self.requested, kind.driver, self._features)
        return {
            name: consumed_as_written(capacity, requested.get(name), self._features)
            for name, capacity in kind.capacity.items()
        }

    def amounts(self, kind: DeviceKind) -> Mapping[str, int] | None:
        """Return the amounts that the request consumes of a device's capacities, in nano-units.

        None if the device lacks one that is requested, or its policy does not allow the amount.
        Raises ``AllocationError`` for an amount that cannot be represented, or is negative.
        """
        if kind.number not in self._amounts:
            try:
                amounts = consumed_capacities(kind, self.requested, self._features)
            except CapacityError as error:
                raise AllocationError(
                    f"claim {{claim}}, request {self.own_name}: checking capacity for device "
                    f"{{checked_device}}: {quoted(str(error))}",
                    self.claim,
                ) from None
            self._amounts[kind.number] = amounts
        return self._amounts[kind.number]

    def tolerates(self, kind: DeviceKind) -> bool:
        """Return whether the request tolerates all taints of a device that prevent allocation."""
        # Effects other than these two are ignored, as in taintPreventsAllocation: None is
        # informational, and unknown ones are of a newer API.
        return all(
            taint.effect not in _HARD
            or any(tolerates(toleration, taint) for toleration in self.tolerations)  # type: ignore[arg-type]
            for taint in kind.taints
        )


def _cel_message(error: CelError, features: Features) -> str:
    """Return the text of a template for a selector that failed, from 1.37 on with the device."""
    text = quoted(str(error))
    if not features.allocator_of_1_37 or not text.startswith(RUNTIME_ERROR):
        return f": {text}"
    advice = _ADVICE if "no such key:" in text else ""
    return f" on device {{device}}: {text}{advice}"
