"""Reserve, PreBind and Unreserve: allocations in flight, then written, or given up.

reserve ──► in flight ──► bind: written, assumed ──► no longer in flight
                └────────────── unreserve: removed, and what was written is undone
"""

from __future__ import annotations

from msgspec import structs

from proreus.base.errors import ApiError
from proreus.base.kubernetes_version import Change
from proreus.framework.assume_cache import resource_version_of
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.pod_group import POD_GROUP_SCHEDULING_CYCLE
from proreus.framework.pod_info import ASSUMED_AS, PodInfo
from proreus.framework.status import Status
from proreus.objects.meta import key_of
from proreus.objects.resource_claims import AllocationResult, ResourceClaim
from proreus.plugins.dynamic_resources.binding.claim_binder import ClaimBinder, needs_conditions
from proreus.plugins.dynamic_resources.binding.claim_writes import ClaimWriteError
from proreus.plugins.dynamic_resources.claims import is_extended_resource_claim, is_reserved_for
from proreus.plugins.dynamic_resources.devices.allocated import InFlightAllocation
from proreus.plugins.dynamic_resources.devices.node_allocatable import Statuses, as_assumed
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.filtering.claim_filter import ClaimFilter
from proreus.plugins.dynamic_resources.hints import CLAIM_RESTORED
from proreus.plugins.dynamic_resources.search.allocator import Solution
from proreus.plugins.dynamic_resources.search.results import allocations
from proreus.plugins.dynamic_resources.state_data import ClaimsToAllocate, StateData

Allocations = list[tuple[ResourceClaim, AllocationResult]]

_NOT_FOUND = Status.error("claim allocation not found for node")


class ClaimReservation:
    """Puts the allocations of pods in flight, and writes them."""

    def __init__(self, handle: Handle, manager: DRAManager, binder: ClaimBinder) -> None:
        self._handle = handle
        self._manager = manager
        self._binder = binder
        gates = handle.feature_gates
        self._names_extended = gates.includes(Change.OVERHEAD_BY_CONTAINER)
        self._restores_written = not gates.includes(Change.WRITTEN_CLAIMS_STAY_ASSUMED)

    # ---- Reserve -------------------------------------------------------------------------------

    def reserve(
        self,
        state: CycleState,
        data: StateData,
        claim_filter: ClaimFilter,
        pod: PodInfo,
        node_name: str,
    ) -> Status | None:
        """Put the allocations for a node in flight: from now on no other pod gets the devices."""
        # The result is that of Filter, from the cache, unless a device has been taken since.
        data.chosen, result = claim_filter.allocate_at(node_name)
        shared = self._shared_in_group(data)
        if shared is None:
            return _NOT_FOUND
        found: Allocations = []
        if data.chosen.claims:
            if not isinstance(result, Solution) or data.chosen.allocation_cache is None:
                return _NOT_FOUND
            found = self._allocations(data.chosen, result, node_name)
        data.reserved = (*shared, *found)
        # Before the devices are taken, which changes what the node has.
        if self._manager.features.node_allocatable:
            effective_request = claim_filter.effective_request_at(node_name)
            data.statuses = () if effective_request is None else effective_request.statuses
            state.write(ASSUMED_AS, as_assumed(pod, data.statuses) if data.statuses else None)
        in_group_cycle = state.get(POD_GROUP_SCHEDULING_CYCLE) is not None
        for claim, allocation in data.reserved:
            self._manager.allocated.add_in_flight(claim, allocation, in_group_cycle)
        return None

    def _shared_in_group(self, data: StateData) -> Allocations | None:
        """Return the allocations of other pods of the group in flight; None if one is given up."""
        shared = [data.claims[place] for place in sorted(data.shared_in_group)]
        if any(self._manager.allocation_of(claim) is None for claim in shared):
            return None
        in_flight = self._manager.allocated.in_flight
        return [
            (claim, in_flight[claim.metadata.uid].allocation)
            for claim in shared
            if claim.metadata.uid in in_flight
        ]

    def _allocations(
        self, to_allocate: ClaimsToAllocate, result: Solution, node_name: str
    ) -> Allocations:
        """Return the claims to allocate, each with the allocation that the search found."""
        assert to_allocate.allocation_cache is not None
        found = allocations(
            to_allocate.allocation_cache.prepared,
            result,
            to_allocate.claims,
            self._manager.availability_index.views_of(node_name),
            node_name,
            self._manager.features,
            self._handle.rng,
        )
        return list(zip(to_allocate.claims, found, strict=True))

    # ---- PreBind -------------------------------------------------------------------------------

    async def bind(self, data: StateData, pod: PodInfo, node_name: str) -> Status | None:
        """Write allocations and reservations, then wait until the devices are ready."""
        allocated = self._manager.allocated
        status = await self._bind_claims(data, pod, node_name)
        if status is None and allocated.in_flight_until_pre_bind_ends:
            for claim, _ in data.reserved:
                allocated.remove_in_flight(claim.metadata.uid)
            # The claim that was created for the pod stays in flight: the watch may not have
            # delivered it yet, and nothing else would count its devices.
            if data.created is not None:
                allocated.keep_until_deleted(data.created.metadata.uid)
            data.reserved = ()
        return status

    async def _bind_claims(self, data: StateData, pod: PodInfo, node_name: str) -> Status | None:
        found = {claim.metadata.uid: allocation for claim, allocation in data.reserved}
        try:
            claims = [
                await self._binder.bind_claim(data, pod.pod, claim, found.get(claim.metadata.uid))
                for claim in data.claims
            ]
            extended = next((c for c, _ in data.reserved if is_extended_resource_claim(c)), None)
            if extended is not None:
                claims.append(await self._binder.bind_extended(data, pod, extended))
            # Marked before the write, which may take effect although its response is lost.
            if data.statuses:
                if extended is not None and self._names_extended:
                    data.statuses = _naming(data.statuses, extended, claims[-1])
                data.statuses_written = True
                await self._binder.write_statuses(pod.pod, data.statuses)
        except (ClaimWriteError, ApiError) as error:
            return Status.error(str(error))
        if self._manager.features.binding_conditions and any(map(needs_conditions, claims)):
            return await self._binder.wait_until_ready(pod, claims, node_name)
        return None

    # ---- Unreserve -----------------------------------------------------------------------------

    def unreserve(self, data: StateData, pod: PodInfo) -> None:
        """Release the devices, and undo in the background what was written."""
        self._give_up_in_flight(data)
        # Claims that were reserved before this attempt are released as well: reserved for a pod
        # that does not run, they could not be deallocated for anybody.
        written = {claim.metadata.uid: claim for claim in (*data.claims, *data.written)}
        if data.created is not None:
            written.pop(data.created.metadata.uid, None)
        held = [c for c in written.values() if is_reserved_for(c, pod.uid)]
        # Unreserve is part of the cycle and cannot await the apiserver. The pod backs off.
        if held or data.created is not None:
            self._handle.spawn(self._binder.unreserve(held, data.created, pod.uid))
        data.written = []
        data.created = None
        if data.statuses_written:
            data.statuses_written = False
            self._handle.spawn(self._binder.clear_statuses(pod.pod))

    def _give_up_in_flight(self, data: StateData) -> None:
        given_up = [
            flying
            for uid in self._in_flight_of(data)
            if (flying := self._manager.allocated.remove_in_flight(uid)) is not None
        ]
        data.reserved = ()
        # Written claims stay assumed: the apiserver has them, and the watch may be far behind.
        # With the watched version back, the devices would be free for the next pod.
        if any(one.was_never_written or self._is_restored(one) for one in given_up):
            self._handle.announce(CLAIM_RESTORED)

    def _in_flight_of(self, data: StateData) -> list[str]:
        """Return the uids of the claims whose allocations may be in flight for the pod."""
        uids = dict.fromkeys(claim.metadata.uid for claim, _ in data.reserved)
        if self._manager.allocated.in_flight_until_pre_bind_ends:
            # kube-scheduler does not ask whether the pod was counted among those that wait: one
            # that came to share a claim after it was written is not, and still ends the wait.
            uids |= dict.fromkeys(claim.metadata.uid for claim in data.claims)
        if data.created is not None:
            uids[data.created.metadata.uid] = None
        return list(uids)

    def _is_restored(self, flying: InFlightAllocation) -> bool:
        """Return whether kube-scheduler would restore the claim, as no one else has changed it."""
        if not self._restores_written:
            return False
        latest = self._manager.claims.get(key_of(flying.claim))
        return latest is not None and resource_version_of(latest) <= flying.written_version


def _naming(statuses: Statuses, in_memory: ResourceClaim, created: ResourceClaim) -> Statuses:
    """Return statuses with the name of the claim that was created for extended resources."""
    names = {in_memory.metadata.name: created.metadata.name}
    return tuple(
        structs.replace(
            one, resource_claim_name=names.get(one.resource_claim_name, one.resource_claim_name)
        )
        for one in statuses
    )
