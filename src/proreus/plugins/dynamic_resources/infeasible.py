"""Claims that counting shows to be infeasible, without a search.

A depth-first search for more devices with one value of an attribute than there are tries every
combination of them before it gives up: billions for a dozen requests.

Example: 12 requests for one GPU each, ``matchAttribute: numa`` over all of them, and 8 GPUs on each
of two NUMA nodes. At most 8 GPUs share a value, 12 are needed: refused after 16 look-ups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from proreus.plugins.dynamic_resources.constraints import MatchAttribute
from proreus.plugins.dynamic_resources.pools import PoolView
from proreus.plugins.dynamic_resources.prepared_claims import (
    AllocationError,
    Alternative,
    PreparedClaim,
    PreparedClaims,
)


def too_few_matching_devices(
    prepared: PreparedClaims, views: Sequence[PoolView], taken: Sequence[Collection[int]]
) -> bool:
    """Return whether a claim needs more devices that match than there are; False if unsure.

    True only where the search would end without a solution. Never True where it could end in an
    error (a selector that fails, a request for all devices) or give one device twice.
    """
    return any(_needs_too_many(claim, prepared, views, taken) for claim in prepared.claims)


def _needs_too_many(
    claim: PreparedClaim,
    prepared: PreparedClaims,
    views: Sequence[PoolView],
    taken: Sequence[Collection[int]],
) -> bool:
    for written in claim.constraints:
        # Only matchAttribute: up to 1.36 distinctAttribute compared with one device a request only,
        # so it accepted more than counting distinct values would allow.
        if written.match_attribute is None:
            continue
        constraint = MatchAttribute(written.match_attribute, written.requests)
        needed, candidates = 0, []
        for request in claim.requests:
            concerned = [one for one in request if constraint.applies(one.request, one.subrequest)]
            candidates += concerned
            # An alternative outside the constraint may be taken instead, so such a request need
            # not add to the devices that match; otherwise its smallest alternative is sure to.
            if len(concerned) == len(request):
                needed += min((one.count for one in concerned), default=0)
        # One device matches itself, so most claims end here, before any device is looked at.
        if needed > 1 and not _is_unsure(prepared, views):
            matching = _matching(constraint.attribute, candidates, views, taken)
            if max(matching.values(), default=0) < needed:
                return True
    return False


def _is_unsure(prepared: PreparedClaims, views: Sequence[PoolView]) -> bool:
    """Return whether the search may end in an error, or may give a device twice."""
    alternatives = [
        one for claim in prepared.claims for request in claim.requests for one in request
    ]
    # A constraint that refuses one of "all" devices is an error, not a missing solution.
    # An amount of capacity that cannot be represented is an error as well.
    if any(one.all_devices or one.wanted.capacity is not None for one in alternatives):
        return True
    try:
        for view in views:
            for device in view.devices:
                # Several shares of one device match each other, so devices are not what counts.
                if device.kind.shared:
                    return True
                # Evaluated on every device, also those that the search might not reach: whether it
                # meets a selector that fails depends on its path, and only the search knows that.
                for one in alternatives:
                    one.selects(device.kind)
    except AllocationError:
        return True
    return False


def _matching(
    attribute: str,
    candidates: Sequence[Alternative],
    views: Sequence[PoolView],
    taken: Sequence[Collection[int]],
) -> Counter[object]:
    """Count, by value of an attribute, the devices that any of the requests may get.

    An upper bound: taints, counters, capacity, node selection and incomplete pools are ignored.
    """
    also_taken = any(one.admin_access for one in candidates)
    counts: Counter[object] = Counter()
    for pool, view in enumerate(views):
        for place, device in enumerate(view.devices):
            value = device.kind.attribute(attribute)
            # A device without the attribute violates the constraint whatever the others have.
            if value is None or (place in taken[pool] and not also_taken):
                continue
            if any(one.selects(device.kind) for one in candidates):
                counts[value] += 1
    return counts
