"""What happens to claims once a node is chosen: writes, the wait for devices, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from proreus.errors import ApiError
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import AllocationResult, ResourceClaim
from proreus.plugins.dynamic_resources.binding_conditions import Readiness, readiness
from proreus.plugins.dynamic_resources.claim_writes import ClaimWriteError, ClaimWriter
from proreus.plugins.dynamic_resources.claims import is_reserved_for_pod, pod_reference
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.node_allocatable import Statuses
from proreus.plugins.dynamic_resources.state_data import StateData

_POLL_INTERVAL_SECONDS = 5.0
_STATUSES = "nodeAllocatableResourceClaimStatuses"


class ClaimBinder:
    """Writes a pod's claims and keeps the manager in step with what was written.

    ``timeout_seconds``: how long devices may take to be ready; None: as long as they like.
    """

    def __init__(self, handle: Handle, manager: DRAManager, timeout_seconds: float | None) -> None:
        self._handle = handle
        self._manager = manager
        self._timeout_seconds = timeout_seconds
        self.writer = ClaimWriter(handle, manager.features.binding_conditions)

    def assume(self, claim: ResourceClaim) -> None:
        """Take a claim as the apiserver returned it for what it is now."""
        self._manager.claims.assume(claim)

    async def bind_claim(
        self,
        state_data: StateData,
        pod: Pod,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
    ) -> ResourceClaim:
        """Write one claim, unless the pod has it already; return it as it is then."""
        uid, key = claim.metadata.uid, key_of(claim)
        workloads = self._manager.features.workload_claims
        if allocation is None and is_reserved_for_pod(claim, pod, workloads):
            return claim
        consumer = state_data.group_consumers.get(claim.metadata.name, pod_reference(pod))
        latest = self._manager.claims.get(key)
        current = claim if latest is None or latest.metadata.uid != uid else latest
        written = await self.writer.reserve(current, consumer, allocation)
        state_data.written.append(written)
        known = self._manager.claims.assume(written)
        if allocation is not None and (known or key in self._manager.claims):
            self._manager.allocated.remove_in_flight(uid)
        return written

    async def bind_extended(
        self, state_data: StateData, pod: PodInfo, claim: ResourceClaim
    ) -> ResourceClaim:
        """Create the claim for extended resources and allocate it."""
        allocated = self._manager.allocated
        allocation = allocated.in_flight[claim.metadata.uid].allocation
        to_allocate = state_data.chosen
        assert to_allocate is not None
        created = await self.writer.create_extended(pod.pod, to_allocate.requests)
        # From now on the devices belong to the claim that exists; it stays in flight until the
        # watch delivers it.
        allocated.add_in_flight(created, allocation)
        allocated.remove_in_flight(claim.metadata.uid)
        state_data.reserved = tuple(r for r in state_data.reserved if r[0] is not claim)
        state_data.created = created
        written = await self.bind_claim(state_data, pod.pod, created, allocation)
        state_data.created = written
        status = {
            "extendedResourceClaimStatus": {
                "requestMappings": msgspec.to_builtins(to_allocate.mappings),
                "resourceClaimName": written.metadata.name,
            }
        }
        await self._handle.api.patch_pod_status(pod.pod, {"status": status})
        return written

    async def unreserve(
        self, held: Sequence[ResourceClaim], created: ResourceClaim | None, uid: str
    ) -> None:
        """Take a pod off claims, and delete the one that was made for it."""
        for claim in held:
            try:
                await self.writer.drop_reservation(claim, uid)
            except (ClaimWriteError, ApiError):
                continue  # the resource claim controller takes off pods that are gone
        if created is not None:
            try:
                await self.writer.delete(created)
            except ClaimWriteError:
                return  # it has the pod as owner and goes with it; the next attempt finds it

    async def write_statuses(self, pod: Pod, statuses: Statuses) -> None:
        """Say in a pod's status what its devices take of the node."""
        said = {_STATUSES: msgspec.to_builtins(statuses)}
        await self._handle.api.patch_pod_status(pod, {"status": said})

    async def clear_statuses(self, pod: Pod) -> None:
        """Say it no longer."""
        try:
            await self._handle.api.patch_pod_status(pod, {"status": {_STATUSES: None}})
        except ApiError:
            return  # the next attempt says what is so then

    # ---- devices that must be made ready -------------------------------------------------------

    def readiness_of(self, claim: ResourceClaim) -> tuple[Readiness, str]:
        """Tell how far a claim's devices are, and what went wrong if anything did."""
        timeout_seconds = self._timeout_seconds
        return readiness(
            claim,
            self._handle.clock.now(),
            float("inf") if timeout_seconds is None else timeout_seconds,
        )

    async def wait_until_ready(
        self, pod: PodInfo, claims: Sequence[ResourceClaim], node_name: str
    ) -> Status | None:
        """Wait until the drivers have made all devices ready; an error if one fails to be."""
        self._handle.event_recorder.event(
            pod.pod,
            "Normal",
            "BindingConditionsPending",
            "Scheduling",
            f"waiting for binding conditions for device on node {node_name}",
            self._handle.profile_name,
        )
        waiting = list(claims)
        while True:
            left = []
            for claim in waiting:
                current = self._manager.claims.get(key_of(claim))
                if current is None or current.metadata.uid != claim.metadata.uid:
                    return Status.error(f"claim {key_of(claim)} got deleted in the meantime")
                state, message = self.readiness_of(current)
                if state in (Readiness.FAILED, Readiness.TIMED_OUT):
                    return Status.error(message)
                if state is Readiness.WAITING:
                    left.append(claim)
            if not left:
                return None
            waiting = left
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
