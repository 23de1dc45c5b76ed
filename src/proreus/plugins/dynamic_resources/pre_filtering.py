"""PreFilter's part for claims: which are allocated, and where those can be used."""

from __future__ import annotations

from proreus.objects.meta import key_of
from proreus.objects.resource_claims import ResourceClaim
from proreus.objects.selectors import ParsedNodeSelector, parse_node_selector
from proreus.plugins.dynamic_resources.binding.claim_binder import ClaimBinder, Readiness
from proreus.plugins.dynamic_resources.claims import (
    ClaimError,
    allocated_score,
    check_requests,
    with_allocation,
)
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.state_data import StateData


def inspect_claims(
    manager: DRAManager, claim_binder: ClaimBinder, state_data: StateData, *, in_group_cycle: bool
) -> None:
    """Check the pod's claims, and record where those that are allocated can be used.

    ``in_group_cycle``: the pod is scheduled with its whole group, and adopts an allocation that
    another pod of the group has in flight. Raises ``ClaimError``, which rejects the pod, and
    ``ValueError``, an Error.
    """
    features = manager.features
    not_ready, skipping, shared = set(), set(), set()
    for place, claim in enumerate(state_data.claims):
        if claim.status.allocation is None:
            in_flight = manager.allocated.in_flight.get(claim.metadata.uid)
            if in_flight is None:
                check_requests(claim, manager.classes.__contains__, features.prioritized_list)
                continue
            # Another pod is about to allocate the claim. To schedule this one as if it had, PreBind
            # of both would have to come in the right order, and survive a failure of the other: the
            # pod waits for the claim's update instead (claimTracker upstream).
            if not (in_group_cycle and in_flight.in_group_cycle):
                raise ClaimError(
                    f"resource claim {key_of(claim)} is in the process of being allocated"
                )
            shared.add(place)
            claim = with_allocation(claim, in_flight.allocation)
        state_data.available_on_nodes[place] = _available_on_nodes(claim)
        if features.allocator_of_1_37 and _skips_operations(claim):
            skipping.add(place)
        # A claim whose devices failed is not available on any node, so that PostFilter deallocates
        # it and other devices get their chance (KEP-5007).
        if features.binding_conditions:
            ready, _ = claim_binder.readiness_of(claim)
            if ready in (Readiness.FAILED, Readiness.TIMED_OUT):
                not_ready.add(place)
        if features.prioritized_list:
            state_data.score += allocated_score(claim)
    state_data.not_ready = frozenset(not_ready)
    state_data.skipping = frozenset(skipping)
    state_data.shared_in_group = frozenset(shared)


def _skips_operations(claim: ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(
        result.skip_node_operations for result in allocation.devices.results
    )


def _available_on_nodes(claim: ResourceClaim) -> ParsedNodeSelector | None:
    """Return the node selector of an allocated claim, None for all nodes."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return None
    parsed = parse_node_selector(allocation.node_selector)
    error = parsed.error()
    if error is not None:
        raise ValueError(f"claim {key_of(claim)}: {error}")
    return parsed
