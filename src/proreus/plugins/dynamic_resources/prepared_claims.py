"""Claims prepared for the search: checked once, shared by all pods whose claims have equal specs.

``PreparedClaims`` come from specs alone, without names of claims, pods and nodes.

Example: pods web-0 and web-1 of one template have the claims web-0-gpu and web-1-gpu, each with
``firstAvailable: [big, small]`` under the name gpu. Their ``claims_key`` is the same, so both use
one ``PreparedClaims``, whose only request has the alternatives ``gpu/big`` and ``gpu/small``. What
web-0 learned about devices and nodes (which match, what a search found) holds for web-1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from proreus.errors import ProreusError
from proreus.objects.devices import DeviceClass
from proreus.objects.meta import key_of
from proreus.objects.resource_claims import ALL, EXACT_COUNT, DeviceConstraint, ResourceClaim
from proreus.objects.taints import Toleration, tolerates
from proreus.plugins.dynamic_resources.capacity import CapacityError, consumed_capacities
from proreus.plugins.dynamic_resources.cel import CelError
from proreus.plugins.dynamic_resources.claims import AnyRequest, alternatives
from proreus.plugins.dynamic_resources.constraints import (
    Constraint,
    DistinctAttribute,
    DistinctAttributeLists,
    DistinctAttributeOf136,
    MatchAttribute,
    MatchAttributeLists,
)
from proreus.plugins.dynamic_resources.devices import RUNTIME_ERROR, DeviceKind
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.pools import PoolView

_HARD = frozenset({"NoSchedule", "NoExecute"})


class AllocationError(ProreusError):
    """An error of the allocator, which makes the whole scheduling attempt fail.

    ``text`` is a template with the fields ``{claim}`` and, for a pool or device of the node in
    question, ``{pool}``, ``{device}`` and ``{checked_device}``, which is the plain name where a
    request is for all devices; ``claim``, ``pool`` and ``device`` are positions.
    """

    def __init__(self, text: str, claim: int = 0, pool: int = 0, device: int = 0) -> None:
        super().__init__(text)
        # A result is shared by pods and nodes with other names, so names are filled in by
        # ``message``, for the pod and node at hand.
        self.text = text
        self.claim = claim
        self.pool = pool
        self.device = device
        self.plain_name = False

    def at(self, pool: int, device: int, *, plain_name: bool = False) -> AllocationError:
        """Return the error for a device: one that was found for its kind names no device yet."""
        found = AllocationError(self.text, self.claim, pool, device)
        found.plain_name = plain_name
        return found

    def message(self, claims: Sequence[ResourceClaim], views: Sequence[PoolView]) -> str:
        """Return the text for given claims and the pools of a given node."""
        message = {"claim": key_of(claims[self.claim])}
        if views:
            view = views[self.pool]
            message["pool"] = "/".join(view.key)
            if view.devices:
                name = view.devices[self.device].name
                message["device"] = f"{message['pool']}/{name}"
                message["checked_device"] = name if self.plain_name else message["device"]
        return self.text.format_map(message)


_ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)


def _no_check() -> None:
    pass


def quoted(text: str) -> str:
    """Escape a text for use in the template of an ``AllocationError``."""
    return text.replace("{", "{{").replace("}", "}}")


def _cel_message(error: CelError, features: Features) -> str:
    """Return what the template says of a selector that failed, from 1.37 on with the device."""
    text = quoted(str(error))
    if not features.allocator_of_1_37 or not text.startswith(RUNTIME_ERROR):
        return f": {text}"
    advice = _ADVICE if "no such key:" in text else ""
    return f" on device {{device}}: {text}{advice}"


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
        self._tolerated: dict[int, bool] = {}

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

    def amounts(self, kind: DeviceKind) -> Mapping[str, int] | None:
        """Return what the request consumes of a device's capacities, in nano-units by name.

        None: the device lacks one that is requested, or its policy does not allow the amount.
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
        # Most devices have no taints, and need no entry in the cache.
        if not kind.taints:
            return True
        # Effects other than these two are ignored, as in taintPreventsAllocation: None is
        # informational, and unknown ones are of a newer API.
        result = self._tolerated.get(kind.number)
        if result is None:
            result = self._tolerated[kind.number] = all(
                taint.effect not in _HARD
                or any(tolerates(toleration, taint) for toleration in self.tolerations)  # type: ignore[arg-type]
                for taint in kind.taints
            )
        return result


class PreparedClaim(Struct):
    """A claim: the alternatives of each request, and the constraints over all of them.

    ``prioritized``: by request, whether it has a list of alternatives (``firstAvailable``);
    ``scored``: whether the choice among them counts in Score, as it does without ``exactly``.
    """

    requests: tuple[tuple[Alternative, ...], ...]
    prioritized: tuple[bool, ...]
    scored: tuple[bool, ...]
    constraints: tuple[DeviceConstraint, ...]

    def new_constraints(self, features: Features) -> list[Constraint]:
        """Return the constraints as they are before the first device is placed."""
        # Constraints remember devices, so each search needs its own.
        return [_new_constraint(constraint, features) for constraint in self.constraints]


def _new_constraint(written: DeviceConstraint, features: Features) -> Constraint:
    lists = features.list_attributes and features.allocator_of_1_37
    if written.match_attribute is not None:
        match = MatchAttributeLists if lists else MatchAttribute
        return match(written.match_attribute, written.requests)
    attribute = written.distinct_attribute or ""
    if lists:
        return DistinctAttributeLists(attribute, written.requests)
    distinct = DistinctAttribute if features.allocator_of_1_37 else DistinctAttributeOf136
    return distinct(attribute, written.requests)


class PreparedClaims(Struct):
    """All claims of a pod that need an allocation, in its order, or the error in one of them."""

    claims: tuple[PreparedClaim, ...] = ()
    allocation_error: AllocationError | None = None


def claims_key(claims: Sequence[ResourceClaim]) -> bytes:
    """Return a key that is equal for claims with equal specs, whatever their names."""
    # Deterministic: two equal specs may have their maps in different orders.
    return msgspec.json.encode([claim.spec for claim in claims], order="deterministic")


def prepare_claims(
    claims: Sequence[ResourceClaim],
    class_named: Callable[[str], DeviceClass | None],
    features: Features,
) -> PreparedClaims:
    """Check claims and prepare them; an error is part of the result."""
    # Kept like a result: the next pod of the template would run into the same error.
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
    requests, prioritized, scored = [], [], []
    for request in claim.spec.devices.requests:
        name = quoted(request.name)
        if request.first_available and not features.prioritized_list:
            raise AllocationError(
                f"claim {{claim}}, request {name}: has subrequests, but the "
                "DRAPrioritizedList feature is disabled",
                place,
            )
        options = []
        # Of a request with both, which an API server refuses, the allocator takes the alternatives.
        exactly = None if request.first_available else request.exactly
        for full_name, wanted in alternatives(request.name, exactly, request.first_available):
            cls = class_named(wanted.device_class_name)
            if cls is None:
                raise AllocationError(
                    f"could not retrieve device class {quoted(wanted.device_class_name)}", place
                )
            one = Alternative(place, request.name, full_name, wanted, cls, features)
            _check(one, features)
            options.append(one)
        requests.append(tuple(options))
        prioritized.append(bool(request.first_available))
        scored.append(request.exactly is None)
    for constraint in claim.spec.devices.constraints:
        # The stable allocator knows matchAttribute only. An unknown constraint must be an error:
        # without it the claim would get devices that do not go together.
        distinct = constraint.distinct_attribute is not None and not features.stable_allocator
        if constraint.match_attribute is None and not distinct:
            raise AllocationError("claim {claim}: unsupported constraint type", place)
    return PreparedClaim(
        tuple(requests), tuple(prioritized), tuple(scored), claim.spec.devices.constraints
    )


def _check(one: Alternative, features: Features) -> None:
    """Raise ``AllocationError`` for a request that cannot be met with the gates as they are."""
    # The API drops fields of disabled gates, but a claim may be older than the gate's setting.
    # Whoever wrote it relies on these fields, so they are not ignored.
    name = one.own_name
    refuses = features.allocator_of_1_37 and not features.derived_attributes
    if one.wanted.derived_attributes and refuses:
        raise AllocationError(
            f"claim {{claim}}, request {name}: cannot handle request with derived attributes, the "
            "feature is disabled",
            one.claim,
        )
    for place, selector in enumerate(one.wanted.selectors):
        # Refused on every node, those without devices included.
        if selector.cel is None:
            raise AllocationError(
                f"claim {{claim}}, request {name}, selector #{place}: CEL expression empty "
                "(unsupported selector type?)",
                one.claim,
            )
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
        mode = quoted(one.wanted.allocation_mode)
        raise AllocationError(
            f"claim {{claim}}, request {name}: unsupported count mode {mode}", one.claim
        )
