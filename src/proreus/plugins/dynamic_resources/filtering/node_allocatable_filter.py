"""Filter for pods whose devices consume of their node (gate DRANodeAllocatableResources).

The devices that a search found are the same for all nodes of a ``DeviceAvailability``. Those that
claims had before are looked up node by node, as ``getDeviceFromSlices`` upstream: a node may reach
them or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from proreus.framework.node_affinity import matches_selector
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.objects.devices import Device, ResourceSliceSpec
from proreus.objects.meta import key_of
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from proreus.plugins.dynamic_resources.claims import is_reserved_for_pod
from proreus.plugins.dynamic_resources.devices.availability_index import can_skip_operations
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
from proreus.plugins.dynamic_resources.devices.node_allocatable import (
    ClaimDevice,
    ClaimDevices,
    EffectiveRequest,
    MappingError,
)
from proreus.plugins.dynamic_resources.devices.node_matching import (
    PoolError,
    device_matches_node,
)
from proreus.plugins.dynamic_resources.devices.pools import Pools, PoolView
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.filtering.node_allocatable_resources import (
    NodeAllocatableResources,
    is_mapped,
)
from proreus.plugins.dynamic_resources.search.allocating_devices import DeviceAssignment
from proreus.plugins.dynamic_resources.search.allocator import Solution
from proreus.plugins.dynamic_resources.state_data import ClaimsToAllocate, StateData
from proreus.plugins.insufficient_resources import BASE_RESOURCES, reject_rows


class NodeAllocatableFilter:
    """Rejects nodes that have too little left for one pod with its devices."""

    form = NodeAllocatableResources()

    def __init__(self, manager: DRAManager, state_data: StateData, pod: PodInfo) -> None:
        self._manager = manager
        self._state_data = state_data
        self._pod = pod

    def reject_shared(self, nodes: NodeTable, verdicts: Verdicts) -> None:
        """Reject nodes for an allocated claim that is a part of its node, and another pod's."""
        # The claim's part of the node counts with one pod. Shared by a second one, it would be
        # counted again. An overhead is there for each pod.
        state_data = self._state_data
        workloads = self._manager.features.workload_claims
        for place, selector in state_data.available_on_nodes.items():
            claim = state_data.claims[place]
            another = place in state_data.shared_in_group or (
                bool(claim.status.reserved_for)
                and not is_reserved_for_pod(claim, self._pod.pod, workloads)
            )
            if not another or not self._is_mapped(claim):
                continue
            # Where the claim cannot be used, that is the reason.
            where = np.ones(len(nodes), dtype=np.bool_)
            if selector is not None:
                where &= matches_selector(nodes, selector)
            if place in state_data.skipping:
                where &= np.array([can_skip_operations(info) for info in nodes], dtype=np.bool_)
            text = (
                f"node allocatable resource claim {claim.metadata.name} has a mapped device and "
                "cannot be shared across pods"
            )
            verdicts.reject_with(where, Status.unresolvable(text))

    def _is_mapped(self, claim: ResourceClaim) -> bool:
        allocation = self._allocation_of(claim)
        return allocation is not None and any(
            is_mapped(one.kind.device) for one in self._manager.devices_of(allocation)
        )

    def _allocation_of(self, claim: ResourceClaim) -> AllocationResult | None:
        # As PreFilter saw it: what PostFilter has deallocated since counts in the preemption of the
        # same attempt, which would find nodes that need no victims otherwise.
        return claim.status.allocation or self._manager.allocation_of(claim)

    def reject_insufficient(
        self,
        nodes: NodeTable,
        to_allocate: ClaimsToAllocate,
        number: int | None,
        rows: Rows,
        verdicts: Verdicts,
    ) -> None:
        """Reject rows of one availability whose node has too little left for pod and devices.

        ``number``: of the availability; None if nothing is to be allocated.
        """
        for some, effective_request in self._effective_requests(nodes, to_allocate, number, rows):
            if isinstance(effective_request, Status):
                verdicts.reject_with(some, effective_request)
            elif effective_request is not None:
                _reject_insufficient(nodes, some, effective_request.amounts, verdicts)

    def effective_request_at(
        self, nodes: NodeTable, to_allocate: ClaimsToAllocate, number: int | None, row: int
    ) -> EffectiveRequest | None:
        """Return the request of pod and devices; None if it is no more than the pod's requests."""
        rows = np.array([row])
        found = next(self._effective_requests(nodes, to_allocate, number, rows))[1]
        return found if isinstance(found, EffectiveRequest) else None

    def _effective_requests(
        self, nodes: NodeTable, to_allocate: ClaimsToAllocate, number: int | None, rows: Rows
    ) -> Iterator[tuple[Rows, EffectiveRequest | Status | None]]:
        """Yield rows that get the same devices, and what the pod requests there with them."""
        found = self._found(to_allocate, number)
        for some, before in self._allocated_before(nodes, rows):
            try:
                if isinstance(before, MappingError):
                    raise before
                yield some, self.form.effective_request_of(self._pod, (*found, *before))
            except MappingError as error:
                yield some, Status.error(str(error))

    def _found(self, to_allocate: ClaimsToAllocate, number: int | None) -> Sequence[ClaimDevices]:
        """Return the devices that the search found for the pod's claims, claim by claim."""
        if number is None:
            return ()
        assert to_allocate.allocation_cache is not None
        result = to_allocate.allocation_cache.results[number]
        views = self._manager.availability_index.all[number].views
        assert isinstance(result, Solution)
        return [
            (claim, [_claim_device(one, views) for one in assignments])
            for claim, assignments in zip(
                to_allocate.claims, result.device_assignments, strict=True
            )
        ]

    # ---- claims that were allocated before ----------------------------------------------------

    def _allocated_before(
        self, nodes: NodeTable, rows: Rows
    ) -> Iterator[tuple[Rows, Sequence[ClaimDevices] | MappingError]]:
        """Yield rows with the devices there of claims that were allocated before, or an error."""
        claims: list[tuple[ResourceClaim, list[_Published]]] = []
        for place in self._state_data.available_on_nodes:
            claim = self._state_data.claims[place]
            allocation = self._allocation_of(claim)
            if allocation is not None:
                found = [_Published(self._manager.pools, one) for one in allocation.devices.results]
                if any(self.form.consumes(kind.device) for one in found for *_, kind in one.slices):
                    claims.append((claim, found))
        if not claims:
            yield rows, ()
            return
        # As a rule all rows, or those that reach the devices and the others.
        groups: dict[tuple[DeviceKind | str, ...], list[int]] = {}
        for row in rows.tolist():
            kinds = tuple(one.at(nodes[row]) for _, found in claims for one in found)
            groups.setdefault(kinds, []).append(row)
        for kinds, some in groups.items():
            yield np.array(some, dtype=np.intp), self._devices_at(claims, iter(kinds))

    def _devices_at(
        self,
        claims: Sequence[tuple[ResourceClaim, list[_Published]]],
        kinds: Iterator[DeviceKind | str],
    ) -> Sequence[ClaimDevices] | MappingError:
        found = []
        for claim, published in claims:
            there = [(one.result, next(kinds)) for one in published]
            # A claim none of whose devices consumes anything here does not matter.
            if not any(
                isinstance(k, DeviceKind) and self.form.consumes(k.device) for _, k in there
            ):
                continue
            devices: list[ClaimDevice] = []
            for result, kind in there:
                if isinstance(kind, str):
                    try:
                        self.form.status_of(claim, devices, ())
                    except MappingError as error:  # of an earlier device, which comes first
                        return error
                    where = f"device {result.device}, driver {result.driver}"
                    return MappingError(f"claim {key_of(claim)}, {where}: {kind}")
                devices.append(ClaimDevice.of(result, kind))
            found.append((claim, devices))
        return found


class _Published:
    """A device of an allocation, and the slices of its pool that have it (``slices``)."""

    def __init__(self, pools: Pools, result: DeviceRequestAllocationResult) -> None:
        self.result = result
        self.slices = [
            (spec, device, kind)
            for spec, kinds in pools.published((result.driver, result.pool))
            for device, kind in zip(spec.devices, kinds, strict=True)
            if device.name == result.device
        ]

    def at(self, node: NodeInfo) -> DeviceKind | str:
        """Return the kind of the device on a node, or the reason why it is not there."""
        one = self.result
        for spec, device, kind in self.slices:
            if spec.per_device_node_selection:
                if _reaches(device, node):
                    return kind
                return f"device {one.device} does not match node"
            if _reaches(spec, node):
                return kind
        return f"device {one.device} not found in pool {one.pool} for driver {one.driver}"


def _reaches(selected: ResourceSliceSpec | Device, node: NodeInfo) -> bool:
    try:
        return device_matches_node(selected, node.name, node.labels)
    except PoolError:  # selects nothing here; the search reports it
        return False


def _reject_insufficient(
    nodes: NodeTable, rows: Rows, amounts: Mapping[str, int], verdicts: Verdicts
) -> None:
    """Reject the given rows whose node has too little cpu, memory or huge pages left.

    NodeResourcesFit checks other resources, and the pod without its devices.
    """
    pages = sorted(name for name in amounts if name.startswith("hugepages-"))
    needs = {r: amounts[r] for r in (*BASE_RESOURCES, *pages) if amounts.get(r, 0) > 0}
    short = {r: nodes.allocatable[r] - nodes.requested[r] < amount for r, amount in needs.items()}
    failing = np.zeros(len(nodes), dtype=np.bool_)
    for lacks in short.values():
        failing[rows] |= lacks[rows]
    reject_rows(verdicts, failing, needs, short, nodes.allocatable)


def _claim_device(device_assignment: DeviceAssignment, views: Sequence[PoolView]) -> ClaimDevice:
    device = views[device_assignment.pool].devices[device_assignment.device]
    if device_assignment.consumed is None:
        return ClaimDevice(device.name, device.kind, None)
    return ClaimDevice(
        device.name, device.kind, device_assignment.alternative.consumed(device.kind)
    )
