"""Claims of which counting tells that no search will satisfy them.

A depth-first search that wants more devices with one value of an attribute than there are tries
every arrangement of them before it gives up: billions for a dozen requests.
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


def too_few_alike(
    prepared: PreparedClaims, views: Sequence[PoolView], taken: Sequence[Collection[int]]
) -> bool:
    """Return whether a claim wants more devices that match than there are; False if unsure.

    Never True where the search would end otherwise than without a solution: selectors that fail,
    and requests for all devices, may make it an error; a shared device can be given twice.
    """
    return any(_wants_too_many(claim, prepared, views, taken) for claim in prepared.claims)


def _wants_too_many(
    claim: PreparedClaim,
    prepared: PreparedClaims,
    views: Sequence[PoolView],
    taken: Sequence[Collection[int]],
) -> bool:
    for constraint in claim.new_constraints():
        if not isinstance(constraint, MatchAttribute):
            continue
        wanted, asking = 0, []
        for request in claim.requests:
            concerned = [one for one in request if constraint.applies(one.request, one.subrequest)]
            asking += concerned
            if len(concerned) == len(request):
                wanted += min((one.count for one in concerned), default=0)
        if wanted > 1 and not _unsure(prepared, views):
            alike = _alike(constraint.attribute, asking, views, taken)
            if max(alike.values(), default=0) < wanted:
                return True
    return False


def _unsure(prepared: PreparedClaims, views: Sequence[PoolView]) -> bool:
    """Return whether the search may end in an error, or may give a device twice."""
    alternatives = [
        one for claim in prepared.claims for request in claim.requests for one in request
    ]
    if any(one.all_devices for one in alternatives):
        return True
    try:
        for view in views:
            for device in view.devices:
                if device.kind.shared:
                    return True
                for one in alternatives:
                    one.selects(device.kind)
    except AllocationError:
        return True
    return False


def _alike(
    attribute: str,
    asking: Sequence[Alternative],
    views: Sequence[PoolView],
    taken: Sequence[Collection[int]],
) -> Counter[object]:
    """Count the devices that may be given to any of the requests by value of an attribute."""
    also_taken = any(one.admin_access for one in asking)
    counts: Counter[object] = Counter()
    for pool, view in enumerate(views):
        for place, device in enumerate(view.devices):
            value = device.kind.attribute(attribute)
            if value is None or (place in taken[pool] and not also_taken):
                continue
            if any(one.selects(device.kind) for one in asking):
                counts[value] += 1
    return counts
