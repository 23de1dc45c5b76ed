"""PreFilter's part for claims: the allocated ones, and the nodes where they can be used."""

from __future__ import annotations

from proreus.framework.pod_info import PodInfo
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import ResourceClaim
from proreus.objects.selectors import ParsedNodeSelector, parse_node_selector
from proreus.plugins.dynamic_resources.binding.claim_binder import ClaimBinder, Readiness
from proreus.plugins.dynamic_resources.binding.pod_group_claims import PodGroupClaims
from proreus.plugins.dynamic_resources.claims import (
    ClaimError,
    allocated_score,
    check_requests,
    claims_of,
    with_allocation,
)
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.filtering.extended_resources import new_extended_claim
from proreus.plugins.dynamic_resources.state_data import StateData
from proreus.plugins.extended_resources import may_be_dra_backed


class PreFilter:
    """Collects the ``StateData`` of a pod in PreFilter."""

    def __init__(self, manager: DRAManager, binder: ClaimBinder, groups: PodGroupClaims) -> None:
        self._manager = manager
        self._binder = binder
        self._groups = groups

    def claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """Return a pod's own claims; raises ``ClaimError`` if one does not exist."""
        return claims_of(pod, self._manager.claims.get, self._manager.features.workload_claims)

    def dra_backed(self, pod: PodInfo) -> tuple[str, ...]:
        """Return the extended resources of a pod that devices may provide, sorted by name."""
        if not self._manager.features.extended_resources:
            return ()
        found = self._manager.extended.dra_backed(pod.requests.amounts)
        return tuple(sorted(filter(may_be_dra_backed, found))) if found else ()

    def inspect(self, pod: PodInfo, *, in_group_cycle: bool) -> StateData | None:
        """Return the state of a pod for Filter; None for a pod without claims.

        ``in_group_cycle``: the pod is scheduled with its whole group, and adopts an allocation that
        another pod of the group has in flight. Raises ``ClaimError``, which rejects the pod, and
        ``ValueError``, an Error.
        """
        claims = self.claims_of(pod.pod) if pod.pod.spec.resource_claims else ()
        dra_backed = self.dra_backed(pod)
        in_group = pod.pod.spec.scheduling_group is not None
        group_consumers = self._groups.consumers(pod.pod) if in_group else {}
        if not claims and not dra_backed:
            return None
        data = StateData(claims=claims, dra_backed=dra_backed, group_consumers=group_consumers)
        if dra_backed:
            data.extended = self._extended_claim_of(pod.pod)
        for place, claim in enumerate(claims):
            if (allocated := self._allocated(claim, data, place, in_group_cycle)) is not None:
                self._inspect_allocated(allocated, data, place)
        if _needs_allocation(data) and (fault := self._manager.allocated.fault()):
            raise ValueError(f"gather allocation state: {fault}")
        return data

    def _extended_claim_of(self, pod: Pod) -> ResourceClaim:
        """Return the claim that an earlier attempt left behind, or one in memory."""
        key = self._manager.extended_claims.get(pod.metadata.uid)
        left = None if key is None else self._manager.claims.get(key)
        return new_extended_claim(pod) if left is None else left

    def _allocated(
        self, claim: ResourceClaim, data: StateData, place: int, in_group_cycle: bool
    ) -> ResourceClaim | None:
        """Return a claim with its allocation; None if it needs one."""
        if claim.status.allocation is not None:
            return claim
        in_flight = self._manager.allocated.in_flight.get(claim.metadata.uid)
        if in_flight is None:
            prioritized_list = self._manager.features.prioritized_list
            check_requests(claim, self._manager.classes.__contains__, prioritized_list)
            return None
        # Another pod is about to allocate the claim. To schedule this one as if it had, PreBind of
        # both would have to come in the right order, and survive a failure of the other: the pod
        # waits for the claim's update instead (claimTracker upstream).
        if not (in_group_cycle and in_flight.in_group_cycle):
            raise ClaimError(f"resource claim {key_of(claim)} is in the process of being allocated")
        data.shared_in_group |= {place}
        return with_allocation(claim, in_flight.allocation)

    def _inspect_allocated(self, claim: ResourceClaim, data: StateData, place: int) -> None:
        """Record where an allocated claim can be used."""
        features = self._manager.features
        data.available_on_nodes[place] = _available_on_nodes(claim)
        if features.allocator_of_1_37 and _skips_operations(claim):
            data.skipping |= {place}
        # A claim whose devices failed is not available on any node, so that PostFilter deallocates
        # it and other devices get their chance (KEP-5007).
        if features.binding_conditions:
            ready, _ = self._binder.readiness_of(claim)
            if ready in (Readiness.FAILED, Readiness.TIMED_OUT):
                data.not_ready |= {place}
        if features.prioritized_list:
            data.score += allocated_score(claim)


def _needs_allocation(data: StateData) -> bool:
    """Return whether one of the claims has no allocation that is written."""
    extended = data.extended is not None and data.extended.status.allocation is None
    return extended or any(claim.status.allocation is None for claim in data.claims)


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
