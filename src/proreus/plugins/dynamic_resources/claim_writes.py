"""What is written about claims: allocation, reservation, and taking both back.

Every write is a merge patch that names only what it changes and the version that it was made for,
so that nothing that a driver wrote in between, and nothing that we do not know, is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from proreus.errors import ApiError, Conflict, NotFound, ProreusError
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

_TRIES = 5
_BACKOFF_SECONDS = 0.01


class ClaimWriteError(ProreusError):
    """A claim could not be allocated or reserved."""


class ClaimWriter:
    """Writes claims through a handle; answers are typed, as the apiserver returned them."""

    def __init__(self, handle: Handle, binding_conditions: bool) -> None:
        self._handle = handle
        self._binding_conditions = binding_conditions

    async def create_extended(self, pod: Pod, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
        """Create the claim for a pod's extended resources."""
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
            raise ClaimWriteError(f"create claim for extended resources: {error}") from error
        return _typed(created)

    async def reserve(
        self,
        claim: ResourceClaim,
        consumer: ResourceClaimConsumerReference,
        allocation: AllocationResult | None,
    ) -> ResourceClaim:
        """Reserve a claim, after giving it an allocation if there is one to give."""
        key = key_of(claim)

        def check(current: ResourceClaim) -> None:
            if current.metadata.deletion_timestamp is not None:
                raise ClaimWriteError(f"claim {key} got deleted in the meantime")
            known = current.status.allocation
            if allocation is not None and known is not None and not _same(known, allocation):
                raise ClaimWriteError(f"claim {key} got allocated elsewhere in the meantime")
            if allocation is None and current.status.allocation is None:
                raise ClaimWriteError(f"claim {key} got deallocated elsewhere in the meantime")

        async def attempt(current: ResourceClaim) -> ResourceClaim:
            check(current)
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
            if allocation is not None and not allocated:
                status["allocation"] = to_plain(self._stamped(allocation))
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
        # A patch would spell opaque parameters anew, which the apiserver takes for a new spec.
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
        """Take a consumer off a claim."""

        async def attempt(current: ResourceClaim) -> ResourceClaim:
            left = [one for one in current.status.reserved_for if one.uid != uid]
            if len(left) == len(current.status.reserved_for):
                return current
            status = {"reservedFor": msgspec.to_builtins(left) or None}
            return await self._patch(current, {"status": status}, "remove reservation", "status")

        return await self._retry_on_conflict(claim, attempt)

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Take back an allocation that no pod uses; raises ``ClaimWriteError``."""
        status = {"reservedFor": None, "allocation": None, "devices": None}
        return await self._patch(claim, {"status": status}, "deallocate claim", "status")

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that we made; its finalizer is ours too and goes first."""
        meta = claim.metadata
        try:
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
        self, claim: ResourceClaim, attempt: Callable[[ResourceClaim], Any]
    ) -> ResourceClaim:
        """Try, and try again with the live object after a conflict."""
        wait = _BACKOFF_SECONDS
        for _ in range(_TRIES - 1):
            try:
                done: ResourceClaim = await attempt(claim)
            except Conflict:
                await asyncio.sleep(wait)
                wait *= 2
                claim = await self._live(claim)
            else:
                return done
        try:
            last: ResourceClaim = await attempt(claim)
        except Conflict as error:
            raise ClaimWriteError(str(error)) from error
        return last

    async def _live(self, claim: ResourceClaim) -> ResourceClaim:
        meta = claim.metadata
        try:
            live = await self._handle.api.get(RESOURCE_CLAIMS, meta.namespace, meta.name)
        except ApiError as error:
            raise ClaimWriteError(f"get updated claim {key_of(claim)}: {error}") from error
        if live.metadata.uid != meta.uid:
            raise ClaimWriteError(f"claim {key_of(claim)} got deleted in the meantime")
        return live

    async def _patch(
        self, claim: ResourceClaim, patch: JsonObject, what: str, subresource: str = ""
    ) -> ResourceClaim:
        meta = claim.metadata
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **guard}}
        try:
            response = await self._handle.api.patch(
                RESOURCE_CLAIMS, meta.namespace, meta.name, body, subresource
            )
        except Conflict:
            raise
        except ApiError as error:
            raise ClaimWriteError(f"{what}: {error}") from error
        return _typed(response)


def _same(one: AllocationResult, other: AllocationResult) -> bool:
    return one.devices.results == other.devices.results


def _typed(response: dict[str, Any]) -> ResourceClaim:
    return decoder_for(ResourceClaim).convert(response)
