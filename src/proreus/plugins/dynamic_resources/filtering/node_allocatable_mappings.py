"""Devices that consume of their node, as kube-scheduler 1.36 counts them.

Replaced by ``node_allocatable_resources`` with ``Change.NODE_ALLOCATABLE_OVERHEAD``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from proreus.framework.node_affinity import matches_selector
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.objects.devices import Device
from proreus.objects.pod import NodeAllocatableResourceClaimStatus, Pod
from proreus.objects.quantity import parse_quantity
from proreus.objects.requests import PodResourcesOptions, has_pod_level_requests, pod_requests
from proreus.objects.resource_claims import ResourceClaim
from proreus.plugins.dynamic_resources.devices.capacity import Amount
from proreus.plugins.dynamic_resources.devices.node_allocatable import (
    ClaimDevice,
    ClaimDevices,
    MappingError,
    Sums,
)
from proreus.plugins.dynamic_resources.filtering.node_allocatable_filter import (
    NodeAllocatableFilter,
)
from proreus.plugins.dynamic_resources.filtering.node_allocatable_resources import (
    NodeAllocatableResources,
    part_of_capacity,
)


class NodeAllocatableResourceMappings(NodeAllocatableResources):
    """``nodeAllocatableResourceMappings`` of devices, summed in ``resources`` of a pod's status."""

    def consumes(self, device: Device) -> bool:
        """Return whether a device consumes of its node."""
        return bool(device.node_allocatable_resource_mappings)

    def status_of(
        self, claim: ResourceClaim, devices: Sequence[ClaimDevice], containers: tuple[str, ...]
    ) -> NodeAllocatableResourceClaimStatus | None:
        """Return the consumption of a claim's devices, None if none; raises ``MappingError``."""
        sums = Sums()
        for device in devices:
            for resource, amount in _taken(claim, device):
                sums.add(resource, amount)
        resources = sums.texts()
        if not resources:
            return None
        return NodeAllocatableResourceClaimStatus(
            resource_claim_name=claim.metadata.name, containers=containers, resources=resources
        )

    def refusal(self, pod: PodInfo, with_devices: Pod, amounts: Mapping[str, int]) -> Status | None:
        """Return the status that rejects a pod with its devices; None if nothing does."""
        for status in with_devices.status.node_allocatable_resource_claim_statuses:
            if not status.containers:
                return Status.unresolvable(
                    f"claim {status.resource_claim_name}: node-allocatable resource claim not "
                    "referenced by any container within the pod"
                )
        # Pod-level requests replace the sum of the parts (KEP-2837), so devices would go uncounted.
        if not pod.resources_options.pod_level or not has_pod_level_requests(pod.pod):
            return None
        parts = pod_requests(with_devices, PodResourcesOptions(pod_level=False, devices=True))
        uncovered = next((r for r in sorted(amounts) if parts.get(r, 0) > amounts[r]), None)
        if uncovered is None:
            return None
        return Status.unresolvable(
            f"pod level request for {uncovered} is insufficient to cover the aggregated container "
            "and node-allocatable DRA requests"
        )


def _taken(claim: ResourceClaim, device: ClaimDevice) -> Iterator[tuple[str, Amount]]:
    """Yield the amount of each resource that one device consumes."""
    for resource, mapping in sorted(device.kind.device.node_allocatable_resource_mappings.items()):
        key, multiplier = mapping.capacity_key, mapping.allocation_multiplier
        if key:
            where = f"NodeAllocatableResourceMappings for resource {resource}"
            amount = part_of_capacity(claim, device, key, multiplier, where)
            if amount is not None:
                yield resource, amount
        else:
            text = "0" if multiplier is None else multiplier
            yield resource, (parse_quantity(text), text)


class NodeAllocatableFilterOf136(NodeAllocatableFilter):
    """Counts only the claims that are allocated in the same cycle."""

    form = NodeAllocatableResourceMappings()

    def reject_shared(self, nodes: NodeTable, verdicts: Verdicts) -> None:
        """Reject nodes on which another pod uses an allocated claim of the pod."""
        state_data = self._state_data
        for place, selector in state_data.available_on_nodes.items():
            # A claim in flight within the group is in no pod's status yet.
            if place not in state_data.shared_in_group:
                mask = matches_selector(nodes, selector) if selector is not None else None
                rows = np.arange(len(nodes)) if mask is None else np.flatnonzero(mask)
                _reject_in_use(nodes, rows, self._pod, state_data.claims[place], verdicts)

    def _allocated_before(
        self, nodes: NodeTable, rows: Rows
    ) -> Iterator[tuple[Rows, Sequence[ClaimDevices] | MappingError]]:
        found = []
        for place in self._state_data.shared_in_group:
            claim = self._state_data.claims[place]
            allocation = self._manager.allocation_of(claim)
            if allocation is not None:
                found.append((claim, list(self._manager.devices_of(allocation))))
        yield rows, found


def _reject_in_use(
    nodes: NodeTable, rows: Rows, pod: PodInfo, claim: ResourceClaim, verdicts: Verdicts
) -> None:
    """Reject the rows on which another pod uses an allocated claim that consumes of the node."""
    # The consumption is counted with one pod. Shared by a second one, it would be counted
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
