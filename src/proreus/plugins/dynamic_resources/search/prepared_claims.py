"""Claims prepared for the search: checked once, shared by all pods whose claims have equal specs.

``PreparedClaims`` come from specs alone, without names of claims, pods and nodes.

Example: pods web-0 and web-1 of one template have the claims web-0-gpu and web-1-gpu, each with
``firstAvailable: [big, small]`` under the name gpu. Their ``claims_key`` is the same, so both use
one ``PreparedClaims``, whose only request has the alternatives ``gpu/big`` and ``gpu/small``. What
web-0 learned about devices and nodes (which match, what a search found) holds for web-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from proreus.objects.devices import DeviceClass
from proreus.objects.resource_claims import ALL, EXACT_COUNT, DeviceConstraint, ResourceClaim
from proreus.plugins.dynamic_resources.claims import alternatives
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError, quoted
from proreus.plugins.dynamic_resources.search.alternative import Alternative
from proreus.plugins.dynamic_resources.search.constraints import (
    Constraint,
    DistinctAttribute,
    DistinctAttributeOf136,
    MatchAttribute,
)


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
    lists = features.compares_lists
    if written.match_attribute is not None:
        return MatchAttribute(written.match_attribute, written.requests, lists=lists)
    attribute = written.distinct_attribute or ""
    if features.allocator_of_1_37:
        return DistinctAttribute(attribute, written.requests, lists=lists)
    return DistinctAttributeOf136(attribute, written.requests)


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
        # The minimal allocator knows matchAttribute only. An unknown constraint must be an error:
        # without it the claim would get devices that do not go together.
        distinct = constraint.distinct_attribute is not None and not features.minimal_allocator
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
