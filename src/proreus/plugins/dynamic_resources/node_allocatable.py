"""Devices that stand for cpu, memory and the like of their node (KEP-5517).

What a claim's devices take of the node is added to what the pod asks for: on the node, once the
pod's status says it (``PodInfo.counting``), and here, while a node is looked for. Gate
DRANodeAllocatableResources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from proreus.errors import ProreusError
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo, PodResourcesOptions
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
    """A device says that it takes of the node what nobody can tell; ends the attempt."""


class ClaimDevice(NamedTuple):
    """A device that a claim has, or would get. ``consumed``: nano-units, of one that is shared."""

    name: str
    kind: DeviceKind
    consumed: Mapping[str, int] | None


class EffectiveRequest(NamedTuple):
    """What a pod takes of a node with its devices; ``statuses`` tell what part of it is theirs."""

    amounts: Mapping[str, int]
    statuses: Statuses


# ---- what a pod takes ----------------------------------------------------------------------------


def effective_request_of(
    pod: PodInfo, allocated_devices: Iterable[tuple[ResourceClaim, Sequence[ClaimDevice]]]
) -> EffectiveRequest | Status | None:
    """Return what a pod takes with devices; None where none of them takes anything of a node.

    A status tells why the pod cannot have them. Raises ``MappingError``.
    """
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
    """Return a pod whose status says what its devices take of the node."""
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=statuses)
    return msgspec.structs.replace(pod, status=status)


def as_assumed(pod: PodInfo, statuses: Statuses) -> PodInfo:
    """Return what stands for a pod on its node."""
    return PodInfo(
        with_statuses(pod.pod, statuses), PodResourcesOptions(pod.resources_options.pod_level, True)
    )


def _uncovered(pod: PodInfo, statuses: Statuses, amounts: Mapping[str, int]) -> str | None:
    """Return a resource of which the pod as a whole asks for less than its parts take."""
    if not pod.resources_options.pod_level or not has_pod_level_requests(pod.pod):
        return None
    parts = pod_requests(with_statuses(pod.pod, statuses), pod_level=False, devices=True)
    return next((r for r in sorted(amounts) if parts.get(r, 0) > amounts[r]), None)


def _statuses(
    pod: Pod, allocated_devices: Sequence[tuple[ResourceClaim, Sequence[ClaimDevice]]]
) -> Statuses:
    """Return what each claim takes of the node, by the claims' names."""
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
    """Return what a claim's devices take together; None if they take nothing that is known."""
    sums: dict[str, tuple[int, QuantityText]] = {}
    for device in devices:
        for resource, (nano, like) in _taken(claim, device):
            known, like = sums.get(resource, (0, like))
            sums[resource] = known + nano, like
    if not sums:
        return None
    return {resource: quantity_text(nano, like) for resource, (nano, like) in sums.items()}


def _taken(
    claim: ResourceClaim, device: ClaimDevice
) -> Iterator[tuple[str, tuple[int, QuantityText]]]:
    """Yield what one device takes of each resource, in nano-units, and how to spell that."""
    for resource, mapping in sorted(device.kind.device.node_allocatable_resource_mappings.items()):
        multiplier = mapping.allocation_multiplier
        key = mapping.capacity_key
        if not key:
            text = "0" if multiplier is None else multiplier
            yield resource, (parse_quantity(text), text)
        elif device.consumed is None:
            raise MappingError(
                f"claim {key_of(claim)}, device {device.name}: ConsumedCapacity is nil, but "
                f"Capacity key '{key}' is set in NodeAllocatableResourceMappings for resource "
                f"{resource}"
            )
        elif key in device.consumed:
            nano = device.consumed[key]
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


# ---- where there is room -------------------------------------------------------------------------


def reject_insufficient(
    nodes: NodeTable, rows: Rows, effective_request: EffectiveRequest, verdicts: Verdicts
) -> None:
    """Reject those of some rows that have not enough left for a demand."""
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
        for code, hopeless in ((Code.UNSCHEDULABLE, False), (Code.UNRESOLVABLE, True)):
            where = rows[(short == bits) & (never == hopeless)]
            if len(where):
                verdicts.reject_with(where, Status(code, reasons))


def _resources_to_check(amounts: Mapping[str, int]) -> list[str]:
    """Return the resources that devices may stand for; NodeResourcesFit sees to the others."""
    pages = sorted(name for name in amounts if name.startswith("hugepages-"))
    return [r for r in (*_BASE_RESOURCES, *pages) if amounts.get(r, 0) > 0]


def reject_in_use(
    nodes: NodeTable, rows: Rows, pod: PodInfo, claim: ResourceClaim, verdicts: Verdicts
) -> None:
    """Reject the rows on which other pods have what an allocated claim takes of the node."""
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
