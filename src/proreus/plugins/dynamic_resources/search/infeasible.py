"""Claims that counting shows to be infeasible, without a search.

A depth-first search for more devices than there are tries every combination of those that there are
before it gives up: billions for a dozen requests. So the most devices that the requests can have at
the same time are counted first, each device once: the maximum flow from requests to kinds of
devices. For a ``matchAttribute`` the requests that it names are counted alone, value by value.

Example: 12 requests for one GPU each, ``matchAttribute: numa`` over all of them, and 8 GPUs on each
of two NUMA nodes. At most 8 GPUs share a value, 12 are needed: refused after 16 look-ups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from proreus.plugins.dynamic_resources.devices.kinds import UNSUPPORTED, DeviceKind
from proreus.plugins.dynamic_resources.devices.pools import PoolView
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError
from proreus.plugins.dynamic_resources.search.alternative import Alternative
from proreus.plugins.dynamic_resources.search.constraints import MatchAttribute
from proreus.plugins.dynamic_resources.search.prepared_claims import PreparedClaim, PreparedClaims

Request = Sequence[Alternative]


def too_few_matching_devices(
    prepared: PreparedClaims,
    views: Sequence[PoolView],
    taken: Sequence[Collection[int]],
    check: Callable[[], None],
) -> bool:
    """Return whether a claim needs more devices that match than there are; False if unsure.

    ``check`` is called before selectors are evaluated, and may raise.

    True only where the search would end without a solution. Never True where it could end in an
    error (a selector that fails, a request for all devices) or give one device twice.
    """
    # One device is enough for most claims, which end here, before any device is looked at.
    requests = [request for claim in prepared.claims for request in claim.requests]
    if sum(map(_needed, requests)) <= 1 or _is_unsure(prepared, views, check):
        return False
    available = _available(views, taken)
    if not _fit(requests, available):
        return True
    return any(_cannot_match(claim, available) for claim in prepared.claims)


def _needed(request: Request) -> int:
    """Return the least number of devices that a request needs for itself alone."""
    if any(one.admin_access for one in request):
        return 0
    return min((one.count for one in request), default=0)


def _cannot_match(claim: PreparedClaim, available: Mapping[DeviceKind, int]) -> bool:
    for written in claim.constraints:
        # Only matchAttribute: up to 1.36 distinctAttribute compared with one device a request only,
        # so it accepted more than counting distinct values would allow.
        if written.match_attribute is None:
            continue
        constraint = MatchAttribute(written.match_attribute, written.requests)
        # An alternative outside the constraint may be taken instead, so such a request need not
        # have devices that match.
        concerned = [
            request
            for request in claim.requests
            if all(constraint.applies(one.request, one.subrequest) for one in request)
        ]
        if sum(map(_needed, concerned)) <= 1:
            continue
        # A device without the attribute violates the constraint whatever the others have.
        by_value: dict[object, dict[DeviceKind, int]] = defaultdict(dict)
        for kind, count in available.items():
            for value in kind.attribute_values(constraint.attribute, lists=True):
                by_value[value][kind] = count
        if not any(_fit(concerned, kinds) for kinds in by_value.values()):
            return True
    return False


def _is_unsure(
    prepared: PreparedClaims, views: Sequence[PoolView], check: Callable[[], None]
) -> bool:
    """Return whether the search may end in an error, or may give a device twice."""
    alternatives = [
        one for claim in prepared.claims for request in claim.requests for one in request
    ]
    # A constraint that refuses one of "all" devices is an error, not a missing solution.
    # An amount of capacity that cannot be represented is an error as well, and an attribute that
    # cannot be derived; those that can, each request may derive in another way.
    if any(
        one.all_devices or one.wanted.capacity is not None or one.derived for one in alternatives
    ):
        return True
    attributes = {
        written.match_attribute or written.distinct_attribute or ""
        for claim in prepared.claims
        for written in claim.constraints
    }
    try:
        for kind in {device.kind: None for view in views for device in view.devices}:
            # Several shares of one device match each other, so devices are not what counts.
            if kind.shared:
                return True
            # A constraint that looks at such a device is an error.
            if any(_is_unsupported(kind, name) for name in attributes):
                return True
            # Evaluated on every kind, also those that the search might not reach: whether it meets
            # a selector that fails depends on its path, and only the search knows that.
            for one in alternatives:
                one.selects(kind, check)
    except AllocationError:
        return True
    return False


def _is_unsupported(kind: DeviceKind, attribute: str) -> bool:
    return UNSUPPORTED in kind.attribute_values(attribute, kind.features.compares_lists)


def _available(views: Sequence[PoolView], taken: Sequence[Collection[int]]) -> Counter[DeviceKind]:
    """Count the devices that are not taken, by kind.

    An upper bound: taints, counters, capacity, node selection and incomplete pools are ignored.
    """
    return Counter(
        device.kind
        for pool, view in enumerate(views)
        for place, device in enumerate(view.devices)
        if place not in taken[pool]
    )


def _fit(requests: Sequence[Request], available: Mapping[DeviceKind, int]) -> bool:
    """Return whether all requests can have their devices at once, each device given once."""
    holders: dict[DeviceKind, list[Request]] = {kind: [] for kind in available}

    def place(request: Request, tried: set[DeviceKind]) -> bool:
        """Give a request one more device, moving another one to another kind if need be."""
        # An augmenting path of Ford and Fulkerson; kinds are few, however many devices there are.
        kinds = [kind for kind in available if kind not in tried and _selects(request, kind)]
        tried.update(kinds)
        for kind in kinds:
            if len(holders[kind]) < available[kind]:
                holders[kind].append(request)
                return True
        for kind in kinds:
            for number, other in enumerate(holders[kind]):
                if place(other, tried):
                    holders[kind][number] = request
                    return True
        return False

    return all(place(request, set()) for request in requests for _ in range(_needed(request)))


def _selects(request: Request, kind: DeviceKind) -> bool:
    return any(one.selects(kind) for one in request)
