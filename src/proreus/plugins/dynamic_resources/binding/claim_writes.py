"""Writes of claims: allocation, reservation, and removing both.

Every write is a merge patch of the fields that it changes, with the uid and resourceVersion that it
was made for: fields that drivers write, or that are of a newer API, are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from proreus.base.errors import ApiError, Conflict, NotFound, ProreusError
from proreus.framework.handle import Handle
from proreus.objects.codec import decoder_for, to_plain
from proreus.objects.meta import JsonObject, key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import (
    CLAIM_FINALIZER,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    RESOURCE_CLAIMS,
    AllocationResult,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from proreus.plugins.dynamic_resources.devices.allocated import same_devices

_TRIES = 5
_BACKOFF_SECONDS = 0.01


class ClaimWriteError(ProreusError):
    """A claim could not be allocated or reserved."""


class ClaimWriter:
    """Writes claims through a handle; methods return claims as the apiserver returned them."""

    def __init__(self, handle: Handle, binding_conditions: bool) -> None:
        self._handle = handle
        self._binding_conditions = binding_conditions

    async def create_extended(self, pod: Pod, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
        """Create the claim for a pod's extended resources; raises ``ClaimWriteError``."""
        meta = pod.metadata
        body = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {
                "namespace": meta.namespace,
                "generateName": f"{meta.name}-extended-resources-",
                "annotations": {EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": meta.name,
                        "uid": meta.uid,
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {"devices": {"requests": msgspec.to_builtins(requests)}},
        }
        try:
            created = await self._handle.api.create(RESOURCE_CLAIMS, body)
        except ApiError as error:
            self._handle.metrics.count_claim_creation("failure")
            raise ClaimWriteError(f"create claim for extended resources: {error}") from error
        self._handle.metrics.count_claim_creation("success")
        return _typed(created)

    async def reserve(
        self,
        claim: ResourceClaim,
        consumer: ResourceClaimConsumerReference,
        allocation: AllocationResult | None,
    ) -> ResourceClaim:
        """Reserve a claim for a consumer, and write its allocation unless that is None.

        Raises ``ClaimWriteError``.
        """
        key = key_of(claim)

        def check(current: ResourceClaim) -> None:
            # For each version that is about to be patched: between Reserve and this write, users
            # and other schedulers may have changed the claim.
            if current.metadata.deletion_timestamp is not None:
                raise ClaimWriteError(f"claim {key} got deleted in the meantime")
            known = current.status.allocation
            # The same devices are no conflict: another pod of the group, or an earlier attempt
            # whose response was lost, has written this allocation.
            if allocation is not None and known is not None and not same_devices(known, allocation):
                raise ClaimWriteError(f"claim {key} got allocated elsewhere in the meantime")
            if allocation is None and current.status.allocation is None:
                raise ClaimWriteError(f"claim {key} got deallocated elsewhere in the meantime")

        async def attempt(current: ResourceClaim) -> ResourceClaim:
            check(current)
            # Before the allocation: without the finalizer, a claim deleted in between would take
            # its allocation along while a pod is using the devices.
            if allocation is not None and CLAIM_FINALIZER not in current.metadata.finalizers:
                current = await self._add_finalizer(current)
                check(current)
            consumers = current.status.reserved_for
            reserved = any(one.uid == consumer.uid for one in consumers)
            allocated = current.status.allocation is not None
            if reserved and allocated:
                return current  # by another pod of the same group
            if not reserved:
                consumers = (*consumers, consumer)
            status: JsonObject = {"reservedFor": msgspec.to_builtins(consumers)}
            # Allocation and reservation in one write, as in bindClaim: an allocated claim without a
            # reservation could be deallocated by another pod's PostFilter.
            if allocation is not None and not allocated:
                status["allocation"] = to_plain(self._stamped(allocation))
            # A claim allocated while the gate was off has no timestamp for the timeout yet.
            elif self._binding_conditions and current.status.allocation is not None:
                stamped = self._stamped(current.status.allocation)
                if stamped is not current.status.allocation:
                    written = msgspec.to_builtins(stamped.allocation_timestamp)
                    status["allocation"] = {"allocationTimestamp": written}
            what = "add allocation and reservation" if allocation is not None else "add reservation"
            return await self._patch(current, {"status": status}, f"{what} to claim", "status")

        return await self._retry_on_conflict(claim, attempt)

    async def _add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        what, meta = "add finalizer to claim", claim.metadata
        if not claim.spec.devices.config:
            patch = {"metadata": {"finalizers": [*meta.finalizers, CLAIM_FINALIZER]}}
            return await self._patch(claim, patch, what)
        # The apiserver compares opaque parameters byte by byte. A patch in JSON formats them anew,
        # which it refuses as a change of the immutable spec.
        try:
            await self._handle.api.add_finalizer(
                RESOURCE_CLAIMS, meta.namespace, meta.name, meta.resource_version, CLAIM_FINALIZER
            )
        except Conflict:
            raise
        except ApiError as error:
            raise ClaimWriteError(f"{what}: {error}") from error
        return await self._live(claim)

    def _stamped(self, allocation: AllocationResult) -> AllocationResult:
        if not self._binding_conditions or allocation.allocation_timestamp is not None:
            return allocation
        now = datetime.fromtimestamp(int(self._handle.clock.now()), UTC)
        return msgspec.structs.replace(allocation, allocation_timestamp=now)

    async def drop_reservation(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        """Remove a consumer from ``reservedFor``, by uid; raises ``ClaimWriteError``."""

        async def attempt(current: ResourceClaim) -> ResourceClaim:
            left = [one for one in current.status.reserved_for if one.uid != uid]
            # Somebody else has removed it already, such as the resource claim controller.
            if len(left) == len(current.status.reserved_for):
                return current
            status = {"reservedFor": msgspec.to_builtins(left) or None}
            return await self._patch(current, {"status": status}, "remove reservation", "status")

        return await self._retry_on_conflict(claim, attempt)

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Remove the allocation of a claim that no pod uses.

        Raises ``ClaimWriteError``, and ``Conflict`` if the claim has changed.
        """
        # ``devices`` is what drivers report of the allocated devices, so it goes along. No retry:
        # after a conflict, somebody may be using the claim.
        status = {"reservedFor": None, "allocation": None, "devices": None}
        return await self._patch(claim, {"status": status}, "deallocate claim", "status")

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that this scheduler created; raises ``ClaimWriteError``."""
        meta = claim.metadata
        try:
            # Its finalizer is ours, too; nobody else would remove it before the pod is gone.
            if CLAIM_FINALIZER in meta.finalizers:
                left = [name for name in meta.finalizers if name != CLAIM_FINALIZER]
                await self._handle.api.patch(
                    RESOURCE_CLAIMS, meta.namespace, meta.name, {"metadata": {"finalizers": left}}
                )
            await self._handle.api.delete(RESOURCE_CLAIMS, meta.namespace, meta.name)
        except NotFound:
            return
        except ApiError as error:
            raise ClaimWriteError(f"delete claim {key_of(claim)}: {error}") from error

    # ---- requests ------------------------------------------------------------------------------

    async def _retry_on_conflict(
        self, claim: ResourceClaim, attempt: Callable[[ResourceClaim], Awaitable[ResourceClaim]]
    ) -> ResourceClaim:
        """Run ``attempt`` with a claim, and again with the live one after a conflict.

        Raises ``ClaimWriteError`` after five conflicts, or if the claim is gone.
        """
        # Conflicts are common where drivers write to the status of the same claim. Ending the
        # attempt instead would give the devices back and search for them again.
        conflicts = 0
        while True:
            try:
                return await attempt(claim)
            except Conflict as error:
                conflicts += 1
                if conflicts == _TRIES:
                    raise ClaimWriteError(str(error)) from error
            await asyncio.sleep(_BACKOFF_SECONDS * 2 ** (conflicts - 1))
            claim = await self._live(claim)

    async def _live(self, claim: ResourceClaim) -> ResourceClaim:
        meta = claim.metadata
        try:
            live = await self._handle.api.get(RESOURCE_CLAIMS, meta.namespace, meta.name)
        except ApiError as error:
            raise ClaimWriteError(f"get updated claim {key_of(claim)}: {error}") from error
        # Another claim of the same name: the one that the devices were found for was deleted.
        if live.metadata.uid != meta.uid:
            raise ClaimWriteError(f"claim {key_of(claim)} got deleted in the meantime")
        return live

    async def _patch(
        self, claim: ResourceClaim, patch: JsonObject, what: str, subresource: str = ""
    ) -> ResourceClaim:
        meta = claim.metadata
        precondition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **precondition}}
        try:
            response = await self._handle.api.patch(
                RESOURCE_CLAIMS, meta.namespace, meta.name, body, subresource
            )
        except Conflict:
            raise
        except ApiError as error:
            raise ClaimWriteError(f"{what}: {error}") from error
        return _typed(response)


def _typed(response: dict[str, Any]) -> ResourceClaim:
    return decoder_for(ResourceClaim).convert(response)
