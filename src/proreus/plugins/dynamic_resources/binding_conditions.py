"""Devices that must be made ready before a pod may be bound to them (KEP-5007)."""

from __future__ import annotations

from enum import Enum

from proreus.objects.resource_claims import DeviceRequestAllocationResult, ResourceClaim


class Readiness(Enum):
    """What the drivers say of a claim's devices."""

    READY = "ready"
    WAITING = "waiting"
    TIMED_OUT = "timed out"
    FAILED = "failed"


def needs_conditions(claim: ResourceClaim) -> bool:
    """Tell whether a device of the claim must be made ready."""
    allocation = claim.status.allocation
    return allocation is not None and any(
        result.binding_conditions for result in allocation.devices.results
    )


def readiness(claim: ResourceClaim, now: float, timeout_seconds: float) -> tuple[Readiness, str]:
    """Tell how far the devices are, and in what words it went wrong if it did.

    ``now``: seconds since the epoch; the time runs from the allocation on.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return Readiness.READY, ""
    name = claim.metadata.name
    waiting = False
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        conditions = _conditions(claim, result)
        for failure in result.binding_failure_conditions:
            status, reason, message = conditions.get(failure, ("", "", ""))
            if status == "True":
                words = f'device binding failed: claim={name}, reason={reason}, message="{message}"'
                return Readiness.FAILED, words
        waiting = waiting or any(
            conditions.get(wanted, ("", "", ""))[0] != "True"
            for wanted in result.binding_conditions
        )
    if not waiting:
        return Readiness.READY, ""
    began = allocation.allocation_timestamp
    if began is not None and began.timestamp() + timeout_seconds < now:
        return Readiness.TIMED_OUT, f"device binding timeout: claim={name}"
    return Readiness.WAITING, ""


def _conditions(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> dict[str, tuple[str, str, str]]:
    for device in claim.status.devices:
        same = (device.driver, device.pool, device.device, device.share_id)
        if same == (result.driver, result.pool, result.device, result.share_id):
            return {c.type: (c.status, c.reason, c.message) for c in device.conditions}
    return {}
