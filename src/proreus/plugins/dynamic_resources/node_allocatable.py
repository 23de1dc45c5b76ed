"""Devices that consume cpu, memory or huge pages of their node (KEP-5517).

What a claim's devices consume is added to what the pod requests: here, while nodes are filtered,
and on the node, once the pod's status says it. Gate DRANodeAllocatableResources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from proreus.errors import ProreusError
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.objects.devices import QuantityText
from proreus.objects.meta import key_of
from proreus.objects.pod import NodeAllocatableResourceClaimStatus, Pod
from proreus.objects.quantity import NANO, parse_quantity
from proreus.objects.requests import has_pod_level_requests, pod_requests
from proreus.objects.resource_claims import ResourceClaim
from proreus.plugins.dynamic_resources.capacity import quantity_text
from proreus.plugins.dynamic_resources.claims import claim_name
from proreus.plugins.dynamic_resources.devices import DeviceKind

Statuses = tuple[NodeAllocatableResourceClaimStatus, ...]

_BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")


class MappingError(ProreusError):
    """How much of the node a device consumes cannot be computed; ends the attempt."""


class ClaimDevice(NamedTuple):
    """A device that a claim has, or would get.

    ``consumed``: nano-units by capacity, of a device that allows multiple allocations.
    """

    name: str
    kind: DeviceKind
    consumed: Mapping[str, int] | None


class EffectiveRequest(NamedTuple):
    """What a pod with its devices requests of a node; ``statuses``: the devices' part, by claim."""

    amounts: Mapping[str, int]
    statuses: Statuses


# ---- effective requests ------------------------------------------------------------------------


def effective_request_of(
    pod: PodInfo, allocated_devices: Iterable[tuple[ResourceClaim, Sequence[ClaimDevice]]]
) -> EffectiveRequest | Status | None:
    """Return what a pod requests with its devices; None if none of them consumes of the node.

    A status says why the pod cannot have the devices. Raises ``MappingError``.
    """
    # Most devices have no mappings, and the pod's requests need not be added up again.
    mapped = [
        (claim, devices)
        for claim, devices in allocated_devices
        if any(one.kind.device.node_allocatable_resource_mappings for one in devices)
    ]
    if not mapped:
        return None
    statuses = _statuses(pod.pod, mapped)
    for status in statuses:
        if not status.containers:
            return Status.unresolvable(
                f"claim {status.resource_claim_name}: node-allocatable resource claim not "
                "referenced by any container within the pod"
            )
    amounts = pod_requests(
        with_statuses(pod.pod, statuses), pod_level=pod.resources_options.pod_level, devices=True
    )
    uncovered = _uncovered(pod, statuses, amounts)
    if uncovered is not None:
        return Status.unresolvable(
            f"pod level request for {uncovered} is insufficient to cover the aggregated container "
            "and node-allocatable DRA requests"
        )
    return EffectiveRequest(amounts, statuses)


def with_statuses(pod: Pod, statuses: Statuses) -> Pod:
    """Return a pod whose status says what its devices consume of the node."""
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=statuses)
    return msgspec.structs.replace(pod, status=status)


def as_assumed(pod: PodInfo, statuses: Statuses) -> PodInfo:
    """Return the pod to assume on its node: with its devices counted in ``requested``."""
    return PodInfo(with_statuses(pod.pod, statuses), pod.resources_options._replace(devices=True))


def _uncovered(pod: PodInfo, statuses: Statuses, amounts: Mapping[str, int]) -> str | None:
    """Return a resource whose pod-level request is less than its containers and devices need."""
    # Pod-level requests replace the sum of the parts (KEP-2837), so devices would go uncounted.
    if not pod.resources_options.pod_level or not has_pod_level_requests(pod.pod):
        return None
    parts = pod_requests(with_statuses(pod.pod, statuses), pod_level=False, devices=True)
    return next((r for r in sorted(amounts) if parts.get(r, 0) > amounts[r]), None)


def _statuses(
    pod: Pod, allocated_devices: Sequence[tuple[ResourceClaim, Sequence[ClaimDevice]]]
) -> Statuses:
    """Return what each claim consumes of the node, sorted by name of the claim."""
    found = []
    for claim, devices in allocated_devices:
        resources = _resources(claim, devices)
        if resources is not None:
            name = claim.metadata.name
            containers = tuple(_containers(pod, name))
            found.append(NodeAllocatableResourceClaimStatus(name, containers, resources))
    return tuple(sorted(found, key=lambda status: status.resource_claim_name))


def _resources(
    claim: ResourceClaim, devices: Sequence[ClaimDevice]
) -> dict[str, QuantityText] | None:
    """Return what a claim's devices consume together; None if they consume nothing."""
    sums: dict[str, tuple[int, QuantityText]] = {}
    for device in devices:
        # The first device decides how the sum is formatted, as Quantity.Add upstream.
        for resource, (nano, like) in _taken(claim, device):
            known, like = sums.get(resource, (0, like))
            sums[resource] = known + nano, like
    if not sums:
        return None
    return {resource: quantity_text(nano, like) for resource, (nano, like) in sums.items()}


def _taken(
    claim: ResourceClaim, device: ClaimDevice
) -> Iterator[tuple[str, tuple[int, QuantityText]]]:
    """Yield what one device consumes of each resource: nano-units, and a text of equal format."""
    for resource, mapping in sorted(device.kind.device.node_allocatable_resource_mappings.items()):
        multiplier = mapping.allocation_multiplier
        key = mapping.capacity_key
        if not key:
            text = "0" if multiplier is None else multiplier
            yield resource, (parse_quantity(text), text)
        # Upstream ends the attempt here as well: ``capacityKey`` refers to consumed capacity, which
        # only a device that allows multiple allocations has.
        elif device.consumed is None:
            raise MappingError(
                f"claim {key_of(claim)}, device {device.name}: ConsumedCapacity is nil, but "
                f"Capacity key '{key}' is set in NodeAllocatableResourceMappings for resource "
                f"{resource}"
            )
        elif key in device.consumed:
            nano = device.consumed[key]
            # Rounded up to a nano-unit, so that the node is never short of what devices use.
            if multiplier is not None:
                nano = -(-nano * parse_quantity(multiplier) // NANO)
            yield resource, (nano, device.kind.capacity[key].text)


def _containers(pod: Pod, name: str) -> Iterator[str]:
    """Yield the containers that use a claim of the pod."""
    entries = {entry.name for entry in pod.spec.resource_claims if claim_name(pod, entry) == name}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for used in container.resources.claims:
            if used.name in entries:
                yield container.name


# ---- filter --------------------------------------------------------------------------------------


def reject_insufficient(
    nodes: NodeTable, rows: Rows, effective_request: EffectiveRequest, verdicts: Verdicts
) -> None:
    """Reject those of some rows whose node has too little left for a request."""
    # As NodeResourcesFit, which has checked the pod without its devices: one bit for each lacking
    # resource, so that rows with the same reasons share one status.
    needs = [
        (r, effective_request.amounts[r]) for r in _resources_to_check(effective_request.amounts)
    ]
    short = np.zeros(len(rows), dtype=np.int64)
    never = np.zeros(len(rows), dtype=np.bool_)
    for bit, (resource, amount) in enumerate(needs):
        there = nodes.allocatable[resource][rows]
        lacking = amount > there - nodes.requested[resource][rows]
        short |= lacking.astype(np.int64) << bit
        never |= lacking & (amount > there)
    for bits in np.unique(short[short > 0]).tolist():
        reasons = tuple(f"Insufficient {r}" for bit, (r, _) in enumerate(needs) if bits >> bit & 1)
        # Preemption may help, unless the node is too small without any pods.
        for code, too_small in ((Code.UNSCHEDULABLE, False), (Code.UNRESOLVABLE, True)):
            where = rows[(short == bits) & (never == too_small)]
            if len(where):
                verdicts.reject_with(where, Status(code, reasons))


def _resources_to_check(amounts: Mapping[str, int]) -> list[str]:
    """Return the resources that devices may consume; NodeResourcesFit checks the others."""
    pages = sorted(name for name in amounts if name.startswith("hugepages-"))
    return [r for r in (*_BASE_RESOURCES, *pages) if amounts.get(r, 0) > 0]


def reject_in_use(
    nodes: NodeTable, rows: Rows, pod: PodInfo, claim: ResourceClaim, verdicts: Verdicts
) -> None:
    """Reject the rows on which another pod uses an allocated claim that consumes of the node."""
    # What the claim consumes is counted with one pod. Shared by a second one, it would be counted
    # again, or not at all once the first is gone.
    name = claim.metadata.name
    for row in rows.tolist():
        users = {
            other.uid
            for other in nodes[row].pods.values()
            if other.namespace == pod.namespace
            and any(
                status.resource_claim_name == name
                for status in other.pod.status.node_allocatable_resource_claim_statuses
            )
        }
        message = f"node allocatable resource claim {name}"
        if len(users) > 1:
            verdicts.reject_row(row, Status.unresolvable(f"{message} shared by multiple pods"))
        elif users and pod.uid not in users:
            verdicts.reject_row(
                row, Status.unresolvable(f"{message} is already used by another pod")
            )
