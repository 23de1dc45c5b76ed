"""The writes of claims after Reserve, the wait for their devices, and the undoing of both.

In PreBind, each claim is written, assumed in the manager, and its allocation is no longer in
flight, in this order (``bindClaim`` upstream). Unreserve (``reservation``) and PostFilter
(``deallocation``) undo it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from math import inf

import msgspec

from proreus.base.errors import ApiError
from proreus.framework.assume_cache import resource_version_of
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.kinds import PODS
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from proreus.plugins.dynamic_resources.binding.claim_writes import ClaimWriteError, ClaimWriter
from proreus.plugins.dynamic_resources.claims import (
    ClaimError,
    is_reserved_for_pod,
    pod_reference,
)
from proreus.plugins.dynamic_resources.devices.node_allocatable import Statuses
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.state_data import StateData

_POLL_INTERVAL_SECONDS = 5.0
_STATUSES = "nodeAllocatableResourceClaimStatuses"


class Readiness(Enum):
    """The progress of drivers in preparing a claim's devices (KEP-5007)."""

    READY = "ready"
    WAITING = "waiting"
    TIMED_OUT = "timed out"
    FAILED = "failed"


class ClaimBinder:
    """Writes a pod's claims, and assumes the written ones in the manager.

    ``timeout_seconds``: the longest wait for devices to become ready; None means no limit.
    """

    def __init__(self, handle: Handle, manager: DRAManager, timeout_seconds: float | None) -> None:
        self._handle = handle
        self._manager = manager
        self._timeout_seconds = inf if timeout_seconds is None else timeout_seconds
        self._clearing: dict[str, asyncio.Event] = {}
        """By uid of the pod, set when its status has been cleared."""
        self.writer = ClaimWriter(handle, manager.features.binding_conditions)

    async def bind_claim(
        self,
        state_data: StateData,
        pod: Pod,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
    ) -> ResourceClaim:
        """Write one claim, unless it is the pod's already; return the claim as it is then.

        ``allocation``: None for a claim that was allocated before. Raises ``ClaimWriteError``.
        """
        uid, key = claim.metadata.uid, key_of(claim)
        workloads = self._manager.features.workload_claims
        if allocation is None and is_reserved_for_pod(claim, pod, workloads):
            return claim
        consumer = state_data.group_consumers.get(claim.metadata.name, pod_reference(pod))
        # The claim is as PreFilter saw it. Starting from the latest version saves a conflict, if
        # another pod that shares the claim has been bound since.
        current = self._manager.latest(claim) or claim
        written = await self.writer.reserve(current, consumer, allocation)
        # Recorded for Unreserve before anything else can fail.
        state_data.written.append(written)
        if (flying := self._manager.allocated.in_flight.get(uid)) is not None:
            flying.written_version = resource_version_of(written)
        # Assumed first, then no longer in flight: the devices are counted throughout. A claim that
        # the watch has not delivered yet (one that was just created) cannot be assumed, so its
        # allocation stays in flight until it arrives.
        known = self._manager.claims.assume(written)
        if (
            allocation is not None
            and (known or key in self._manager.claims)
            and not self._manager.allocated.in_flight_until_pre_bind_ends
        ):
            self._manager.allocated.remove_in_flight(uid)
        return written

    async def bind_extended(
        self, state_data: StateData, pod: PodInfo, claim: ResourceClaim
    ) -> ResourceClaim:
        """Create the claim for extended resources, allocate it, and name it in the pod's status.

        ``claim``: the one in memory. Raises ``ClaimWriteError`` and ``ApiError``.
        """
        allocated = self._manager.allocated
        allocation = allocated.in_flight[claim.metadata.uid].allocation
        to_allocate = state_data.chosen
        assert to_allocate is not None
        created = await self.writer.create_extended(pod.pod, to_allocate.requests)
        # The devices pass to the claim that exists now. Added before the other one is removed, so
        # that they are not free in between.
        allocated.add_in_flight(created, allocation)
        allocated.remove_in_flight(claim.metadata.uid)
        state_data.reserved = tuple(r for r in state_data.reserved if r[0] is not claim)
        # From here on Unreserve deletes it, even if the next write fails.
        state_data.created = created
        written = await self.bind_claim(state_data, pod.pod, created, allocation)
        state_data.created = written
        status = {
            "extendedResourceClaimStatus": {
                "requestMappings": msgspec.to_builtins(to_allocate.mappings),
                "resourceClaimName": written.metadata.name,
            }
        }
        # The kubelet finds the devices of each container here; the pod's spec does not name the
        # claim (KEP-5004).
        await self._handle.api.patch_pod_status(pod.pod, {"status": status})
        return written

    async def unreserve(
        self, held: Sequence[ResourceClaim], created: ResourceClaim | None, uid: str
    ) -> None:
        """Remove a pod from the claims it holds, and delete the claim that was created for it."""
        # Allocations stay: the next attempt of the pod uses them, or its PostFilter deallocates.
        for claim in held:
            try:
                # The latest version as in ``bind_claim``: other pods may have been released since.
                current = self._manager.latest(claim) or claim
                self._manager.claims.assume(await self.writer.drop_reservation(current, uid))
            except (ClaimWriteError, ApiError):
                continue  # the resource claim controller removes pods that are done or deleted
        if created is not None:
            try:
                await self.writer.delete(created)
            except ClaimWriteError:
                return  # it has the pod as owner and goes with it; the next attempt finds it

    # ---- what devices take of the node ---------------------------------------------------------

    async def write_statuses(self, pod: Pod, statuses: Statuses) -> None:
        """Write the node resources of a pod's devices to its status; raises ``ClaimWriteError``."""
        # An earlier attempt may still have its own to clear, and must not clear this one's.
        clearing = self._clearing.get(pod.metadata.uid)
        if clearing is not None:
            await clearing.wait()
        status = {_STATUSES: msgspec.to_builtins(statuses)}
        try:
            await self._handle.api.patch_pod_status(pod, {"status": status})
        except ApiError as error:
            raise ClaimWriteError(
                f"updating pod {key_of(pod)} NodeAllocatableResourceClaimStatuses: {error}"
            ) from error

    async def clear_statuses(self, pod: Pod) -> None:
        """Remove the node resources of a pod's devices from its status."""
        uid = pod.metadata.uid
        cleared = self._clearing[uid] = asyncio.Event()
        try:
            if self._manager.features.node_allocatable_overhead:
                # An empty list, since an apiserver of 1.37 takes a missing field for that of a
                # client that does not know it; and with the uid, so that a pod of the same name
                # that was created since keeps its own.
                patch = {"metadata": {"uid": uid}, "status": {_STATUSES: []}}
                meta = pod.metadata
                await self._handle.api.patch(PODS, meta.namespace, meta.name, patch, "status")
            else:
                await self._handle.api.patch_pod_status(pod, {"status": {_STATUSES: None}})
        except ApiError:
            return  # the next attempt overwrites it
        finally:
            cleared.set()
            if self._clearing.get(uid) is cleared:
                del self._clearing[uid]

    # ---- binding conditions --------------------------------------------------------------------

    def readiness_of(self, claim: ResourceClaim) -> tuple[Readiness, str]:
        """Return the readiness of a claim's devices, and an error message if they failed."""
        allocation = claim.status.allocation
        # Somebody has deallocated it: its devices will not become ready.
        if allocation is None:
            return Readiness.WAITING, ""
        name = claim.metadata.name
        waiting = False
        for result in allocation.devices.results:
            # The allocation copies the conditions of the device: later ones of the driver do not
            # hold up pods that have it.
            if not result.binding_conditions:
                continue
            conditions = _conditions(claim, result)
            # Failures count even if all binding conditions are met.
            for failure in result.binding_failure_conditions:
                status, reason, message = conditions.get(failure, ("", "", ""))
                if status == "True":
                    text = (
                        f'device binding failed: claim={name}, reason={reason}, message="{message}"'
                    )
                    return Readiness.FAILED, text
            waiting = waiting or any(
                conditions.get(wanted, ("", "", ""))[0] != "True"
                for wanted in result.binding_conditions
            )
        if not waiting:
            return Readiness.READY, ""
        # From the timestamp in the API, not from our own start: another attempt, or another
        # scheduler after a failover, does not begin anew.
        began, now = allocation.allocation_timestamp, self._handle.clock.now()
        if began is not None and began.timestamp() + self._timeout_seconds < now:
            return Readiness.TIMED_OUT, f"device binding timeout: claim={name}"
        return Readiness.WAITING, ""

    async def wait_until_ready(
        self, pod: PodInfo, claims: Sequence[ResourceClaim], node_name: str
    ) -> Status | None:
        """Wait until drivers have prepared all devices; an Error if one of them fails.

        Looks every five seconds, as kube-scheduler does: users see the same delays.
        """
        self._handle.event_recorder.event(
            pod.pod,
            "Normal",
            "BindingConditionsPending",
            "Scheduling",
            f"waiting for binding conditions for device on node {node_name}",
            self._handle.profile_name,
        )
        now = self._handle.clock.now
        deadline = now() + self._timeout_seconds
        while True:
            try:
                if self._all_ready(claims):
                    return None
            except ClaimError as error:
                # The pod tries again: its Filter finds the claim not available, and PostFilter
                # deallocates it.
                return Status.error(str(error))
            left = deadline - now()
            await asyncio.sleep(min(left, _POLL_INTERVAL_SECONDS))
            if left <= _POLL_INTERVAL_SECONDS:
                return Status.error("device binding timeout: context deadline exceeded")

    def _all_ready(self, claims: Sequence[ResourceClaim]) -> bool:
        """Return whether the devices of all claims are ready; raises ``ClaimError`` for a failure.

        Claims behind one that is not ready are not looked at.
        """
        for claim in claims:
            # Drivers write conditions to the claim's status, so it is read anew each time.
            current = self._manager.claims.get(key_of(claim))
            if current is None:
                raise ClaimError(f'could not find ResourceClaim "{key_of(claim)}"')
            state, message = self.readiness_of(current)
            if state in (Readiness.FAILED, Readiness.TIMED_OUT):
                raise ClaimError(message)
            if state is Readiness.WAITING:
                return False
        return True


# ---- readiness of devices ----------------------------------------------------------------------


def needs_conditions(claim: ResourceClaim) -> bool:
    """Return whether a device of the claim has binding conditions."""
    allocation = claim.status.allocation
    return allocation is not None and any(
        result.binding_conditions for result in allocation.devices.results
    )


def _conditions(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> dict[str, tuple[str, str, str]]:
    for device in claim.status.devices:
        same = (device.driver, device.pool, device.device, device.share_id)
        if same == (result.driver, result.pool, result.device, result.share_id):
            return {c.type: (c.status, c.reason, c.message) for c in device.conditions}
    return {}
