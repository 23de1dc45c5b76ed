"""Devices that consume cpu, memory or huge pages of their node (KEP-5517).

What a claim's devices consume is added to what the pod requests: here, while nodes are filtered,
and on the node, once the pod's status says it. Gate DRANodeAllocatableResources; with how much
a device counts is in ``node_allocatable_resources``, of 1.36 in ``node_allocatable_mappings``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
from msgspec import Struct

from proreus.base.errors import ProreusError
from proreus.framework.pod_info import PodInfo
from proreus.objects.devices import QuantityText
from proreus.objects.pod import NodeAllocatableResourceClaimStatus, Pod
from proreus.objects.quantity import parse_quantity
from proreus.objects.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from proreus.plugins.dynamic_resources.claims import claim_name
from proreus.plugins.dynamic_resources.devices.capacity import Amount, quantity_text
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind, by_capacity

Statuses = tuple[NodeAllocatableResourceClaimStatus, ...]


class MappingError(ProreusError):
    """A device's part of its node cannot be computed; this ends the attempt."""


class ClaimDevice(Struct, frozen=True):
    """A device that a claim has, or would get.

    ``consumed``: amounts by capacity, of a device that allows multiple allocations.
    """

    name: str
    kind: DeviceKind
    consumed: Mapping[str, Amount] | None

    @classmethod
    def of(cls, result: DeviceRequestAllocationResult, kind: DeviceKind) -> Self:
        """Return a device as an allocation has it."""
        consumed = by_capacity(result.consumed_capacity, result.driver, kind.features)
        amounts = {name: (parse_quantity(text), text) for name, text in consumed.items()}
        return cls(result.device, kind, amounts or None)


ClaimDevices = tuple[ResourceClaim, Sequence[ClaimDevice]]


class EffectiveRequest(Struct, frozen=True):
    """The amounts that a pod requests with its devices; ``statuses``: their part, by claim."""

    amounts: Mapping[str, int]
    statuses: Statuses


class Sums:
    """Sums of quantities by name, in the format of the first that is not 0, as Quantity.Add's."""

    def __init__(self) -> None:
        self._sums: dict[str, Amount] = {}

    def add(self, name: str, amount: Amount) -> None:
        """Add an amount."""
        known, like = self._sums.get(name, amount)
        if name in self._sums:
            self._sums[name] = known + amount[0], like if known else amount[1]
        else:
            self._sums[name] = amount

    def texts(self) -> dict[str, QuantityText]:
        """Return the sums as texts, sorted by name."""
        return {name: quantity_text(*self._sums[name]) for name in sorted(self._sums)}


def with_statuses(pod: Pod, statuses: Statuses) -> Pod:
    """Return a pod whose status says what its devices consume of the node."""
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=statuses)
    return msgspec.structs.replace(pod, status=status)


def as_assumed(pod: PodInfo, statuses: Statuses) -> PodInfo:
    """Return the pod to assume on its node: with its devices counted in ``requested``."""
    return PodInfo(with_statuses(pod.pod, statuses), pod.resources_options._replace(devices=True))


def containers_of(pod: Pod, claim: ResourceClaim) -> tuple[str, ...]:
    """Return the names of the containers that use a claim of the pod, once for each use."""
    name = claim.metadata.name
    entries = {entry.name for entry in pod.spec.resource_claims if claim_name(pod, entry) == name}
    return tuple(
        container.name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for used in container.resources.claims
        if used.name in entries
    )
