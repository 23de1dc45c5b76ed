"""What is to be allocated, made ready for the search, and shared by pods that ask for the same.

A plan is made of claims' specs alone, without names of claims, pods and nodes: pods made from one
template share one plan, and with it everything that was ever worked out for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from proreus.errors import ProreusError
from proreus.objects.devices import DeviceClass
from proreus.objects.meta import key_of
from proreus.objects.quantity import parse_quantity
from proreus.objects.resource_claims import ALL, EXACT_COUNT, DeviceConstraint, ResourceClaim
from proreus.objects.taints import Toleration, tolerates
from proreus.plugins.dynamic_resources.capacity import consumed_capacities
from proreus.plugins.dynamic_resources.cel import CelError
from proreus.plugins.dynamic_resources.claims import AnyRequest, alternatives
from proreus.plugins.dynamic_resources.constraints import (
    Constraint,
    DistinctAttribute,
    MatchAttribute,
)
from proreus.plugins.dynamic_resources.devices import DeviceKind
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.pools import PoolView

_HARD = frozenset({"NoSchedule", "NoExecute"})


class AllocationError(ProreusError):
    """Something that makes the whole scheduling attempt fail.

    ``text`` may have the places ``{claim}`` and, for a pool or device of the node in question,
    ``{pool}`` and ``{device}``; ``claim``, ``pool`` and ``device`` are positions.
    """

    def __init__(self, text: str, claim: int = 0, pool: int = 0, device: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.claim = claim
        self.pool = pool
        self.device = device

    def message(self, claims: Sequence[ResourceClaim], views: Sequence[PoolView]) -> str:
        """Return the text for given claims and the pools of a given node."""
        message = {"claim": key_of(claims[self.claim])}
        if views:
            view = views[self.pool]
            message["pool"] = "/".join(view.key)
            if view.devices:
                message["device"] = f"{message['pool']}/{view.devices[self.device].name}"
        return self.text.format_map(message)


def _quoted(text: str) -> str:
    """Guard a text against being taken for a template."""
    return text.replace("{", "{{").replace("}", "}}")


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
        """``request`` or ``request/subrequest``, as results have it."""
        self.subrequest = name[len(request) + 1 :]
        self.own_name = _quoted(self.subrequest or request)
        """As errors have it, in their ``AllocationError``."""
        self.wanted = wanted
        self.cls = cls
        self.all_devices = wanted.allocation_mode == ALL
        self.count = wanted.count
        self.admin_access = bool(getattr(wanted, "admin_access", None))
        self.tolerations: tuple[Toleration, ...] = wanted.tolerations
        self._features = features
        capacity = wanted.capacity.requests if wanted.capacity is not None else {}
        self._requested = {name: parse_quantity(amount) for name, amount in capacity.items()}
        self._selectable: dict[int, bool | AllocationError] = {}
        self._amounts: dict[int, Mapping[str, int] | None] = {}
        self._tolerated: dict[int, bool] = {}

    def selects(self, kind: DeviceKind) -> bool:
        """Tell whether class and request select a device; raises ``AllocationError``."""
        result = self._selectable.get(kind.number)
        if result is None:
            try:
                result = self._select(kind)
            except AllocationError as allocation_error:
                result = allocation_error
            self._selectable[kind.number] = result
        if isinstance(result, AllocationError):
            raise result.with_traceback(None)
        return result

    def _select(self, kind: DeviceKind) -> bool:
        if kind.needs_binding_conditions and not self._features.binding_conditions:
            return False
        cls = _quoted(self.cls.metadata.name)
        for selectors, source in (
            (self.cls.spec.selectors, f"class {cls}"),
            (self.wanted.selectors, "claim {claim}"),
        ):
            for place, selector in enumerate(selectors):
                if selector.cel is None:
                    raise AllocationError(
                        f"{source}: selector #{place}: CEL expression empty "
                        "(unsupported selector type?)",
                        self.claim,
                    )
                try:
                    if not kind.matches(selector.cel.expression):
                        return False
                except CelError as error:
                    message = _quoted(str(error))
                    raise AllocationError(
                        f"{source}: selector #{place}: {message}", self.claim
                    ) from None
        return True

    def amounts(self, kind: DeviceKind) -> Mapping[str, int] | None:
        """Return what a device's capacity would be consumed by; None where it cannot be."""
        if kind.number not in self._amounts:
            self._amounts[kind.number] = consumed_capacities(kind, self._requested)
        return self._amounts[kind.number]

    def tolerates(self, kind: DeviceKind) -> bool:
        """Tell whether no taint of a device keeps the request away."""
        if not kind.taints:
            return True
        result = self._tolerated.get(kind.number)
        if result is None:
            result = self._tolerated[kind.number] = all(
                taint.effect not in _HARD
                or any(tolerates(toleration, taint) for toleration in self.tolerations)  # type: ignore[arg-type]
                for taint in kind.taints
            )
        return result


@dataclass(slots=True)
class PreparedClaim:
    """A claim: for each request what may be tried, and the constraints over all of them."""

    requests: tuple[tuple[Alternative, ...], ...]
    prioritized: tuple[bool, ...]
    constraints: tuple[DeviceConstraint, ...]

    def new_constraints(self) -> list[Constraint]:
        """Return the constraints as they are before the first device is placed."""
        return [
            MatchAttribute(c.match_attribute, c.requests)
            if c.match_attribute is not None
            else DistinctAttribute(c.distinct_attribute or "", c.requests)
            for c in self.constraints
        ]


@dataclass(slots=True)
class PreparedClaims:
    """All claims of a pod that need an allocation, in its order; or why there can be none."""

    claims: tuple[PreparedClaim, ...] = ()
    allocation_error: AllocationError | None = None


def claims_key(claims: Sequence[ResourceClaim]) -> bytes:
    """Return what claims ask for as a key: equal for claims that can share a plan."""
    return msgspec.json.encode([claim.spec for claim in claims], order="deterministic")


def prepare_claims(
    claims: Sequence[ResourceClaim],
    class_named: Callable[[str], DeviceClass | None],
    features: Features,
) -> PreparedClaims:
    """Check claims and make them ready; a fault is part of the plan."""
    try:
        return PreparedClaims(
            tuple(
                _prepare_claim(place, claim, class_named, features)
                for place, claim in enumerate(claims)
            )
        )
    except AllocationError as allocation_error:
        return PreparedClaims(allocation_error=allocation_error)


def _prepare_claim(
    place: int,
    claim: ResourceClaim,
    class_named: Callable[[str], DeviceClass | None],
    features: Features,
) -> PreparedClaim:
    requests, prioritized = [], []
    for request in claim.spec.devices.requests:
        name = _quoted(request.name)
        if request.first_available and not features.prioritized_list:
            raise AllocationError(
                f"claim {{claim}}, request {name}: has subrequests, but the "
                "DRAPrioritizedList feature is disabled",
                place,
            )
        tried = []
        for full_name, wanted in alternatives(
            request.name, request.exactly, request.first_available
        ):
            cls = class_named(wanted.device_class_name)
            if cls is None:
                raise AllocationError(
                    f"could not retrieve device class {_quoted(wanted.device_class_name)}", place
                )
            one = Alternative(place, request.name, full_name, wanted, cls, features)
            _check(one, features)
            tried.append(one)
        requests.append(tuple(tried))
        prioritized.append(request.exactly is None)
    for constraint in claim.spec.devices.constraints:
        distinct = constraint.distinct_attribute is not None and not features.stable_allocator
        if constraint.match_attribute is None and not distinct:
            raise AllocationError("claim {claim}: unsupported constraint type", place)
    return PreparedClaim(tuple(requests), tuple(prioritized), claim.spec.devices.constraints)


def _check(one: Alternative, features: Features) -> None:
    name = one.own_name
    if one.wanted.capacity is not None and not features.consumable_capacity:
        kind = "subrequest" if one.subrequest else "request"
        raise AllocationError(
            f"claim {{claim}}, {kind} {name}: has capacity requests, but the "
            "DRAConsumableCapacity feature is disabled",
            one.claim,
        )
    if one.admin_access and not features.admin_access:
        raise AllocationError(
            f"claim {{claim}}, request {name}: admin access is requested, but the feature is "
            "disabled",
            one.claim,
        )
    if one.wanted.allocation_mode not in (ALL, EXACT_COUNT):
        mode = _quoted(one.wanted.allocation_mode)
        raise AllocationError(
            f"claim {{claim}}, request {name}: unsupported count mode {mode}", one.claim
        )
