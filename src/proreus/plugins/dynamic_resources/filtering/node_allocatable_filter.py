"""Filter for pods whose devices consume of their node (gate DRANodeAllocatableResources).

The devices that a search found are the same for all nodes of a ``DeviceAvailability``. Those that
claims had before are looked up node by node, as ``getDeviceFromSlices`` upstream: a node may reach
them or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, IntArray, Rows, Verdicts
from proreus.objects.devices import Device, ResourceSliceSpec
from proreus.objects.meta import key_of
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from proreus.plugins.dynamic_resources.claims import is_reserved_for_pod
from proreus.plugins.dynamic_resources.devices.availability_index import can_skip_operations
from proreus.plugins.dynamic_resources.devices.capacity import consumed_as_written
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
from proreus.plugins.dynamic_resources.devices.node_allocatable import (
    ClaimDevice,
    ClaimDevices,
    EffectiveRequest,
    MappingError,
    NodeAllocatableForm,
    reject_insufficient,
)
from proreus.plugins.dynamic_resources.devices.node_matching import (
    PoolError,
    matching_nodes,
    parsed_selector,
)
from proreus.plugins.dynamic_resources.devices.pools import PoolView
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.filtering.node_allocatable_resources import (
    NodeAllocatableResources,
    is_mapped,
)
from proreus.plugins.dynamic_resources.search.allocating_devices import DeviceAssignment
from proreus.plugins.dynamic_resources.search.allocator import Solution
from proreus.plugins.dynamic_resources.state_data import ClaimsToAllocate, StateData

_NOT_FOUND, _OUT_OF_REACH = -1, -2


class NodeAllocatableFilter:
    """Rejects nodes that have too little left for one pod with its devices."""

    form: NodeAllocatableForm = NodeAllocatableResources()

    def __init__(self, manager: DRAManager, state_data: StateData, pod: PodInfo) -> None:
        self._manager = manager
        self._state_data = state_data
        self._pod = pod

    def reject_shared(self, nodes: NodeTable, verdicts: Verdicts) -> None:
        """Reject nodes for an allocated claim that is a part of its node, and another pod's."""
        # What the claim is of the node counts with one pod. Shared by a second one, it would be
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
                where &= matching_nodes(selector, nodes)
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
                reject_insufficient(nodes, some, effective_request, verdicts)

    def effective_request_at(
        self, nodes: NodeTable, to_allocate: ClaimsToAllocate, number: int | None, row: int
    ) -> EffectiveRequest | None:
        """Return what pod and devices request of a node; None: no more than the pod's requests."""
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
            (claim, [_claim_device(one, views, self._manager.features) for one in assignments])
            for claim, assignments in zip(
                to_allocate.claims, result.device_assignments, strict=True
            )
        ]

    # ---- claims that were allocated before ----------------------------------------------------

    def _allocated_before(
        self, nodes: NodeTable, rows: Rows
    ) -> Iterator[tuple[Rows, Sequence[ClaimDevices] | MappingError]]:
        """Yield rows with the devices there of claims that were allocated before, or an error."""
        claims: list[tuple[ResourceClaim, list[_Place]]] = []
        for place in self._state_data.available_on_nodes:
            claim = self._state_data.claims[place]
            allocation = self._allocation_of(claim)
            if allocation is not None:
                places = [self._place(one, nodes, rows) for one in allocation.devices.results]
                if any(self.form.consumes(kind.device) for one in places for kind in one.kinds):
                    claims.append((claim, places))
        columns = [one.column for _, places in claims for one in places]
        if not columns:
            yield rows, ()
            return
        # As a rule all rows, or those that reach the devices and the others.
        combined, group = np.unique(np.stack(columns), axis=1, return_inverse=True)
        for number, values in enumerate(combined.T.tolist()):
            yield rows[group.ravel() == number], self._devices_at(claims, iter(values))

    def _devices_at(
        self, claims: Sequence[tuple[ResourceClaim, list[_Place]]], values: Iterator[int]
    ) -> Sequence[ClaimDevices] | MappingError:
        found = []
        for claim, places in claims:
            there = [(one, next(values)) for one in places]
            kinds = [one.kinds[value] for one, value in there if value >= 0]
            # A claim none of whose devices consumes anything here does not matter.
            if not any(self.form.consumes(kind.device) for kind in kinds):
                continue
            devices: list[ClaimDevice] = []
            for one, value in there:
                if value < 0:
                    try:
                        self.form.status_of(claim, devices, ())
                    except MappingError as error:  # of an earlier device, which comes first
                        return error
                    return MappingError(one.error(claim, value))
                devices.append(one.device(value))
            found.append((claim, devices))
        return found

    def _place(self, result: DeviceRequestAllocationResult, nodes: NodeTable, rows: Rows) -> _Place:
        found = _Place(result, np.full(len(rows), _NOT_FOUND, dtype=np.int64), [])
        for spec, kinds in self._manager.pools.published((result.driver, result.pool)):
            for device, kind in zip(spec.devices, kinds, strict=True):
                if device.name == result.device:
                    new = (found.column == _NOT_FOUND) & _slice_reaches(spec, nodes)[rows]
                    found.column[new] = len(found.kinds)
                    found.kinds.append(kind)
                    if spec.per_device_node_selection:
                        found.column[new & ~_reaches(device, nodes)[rows]] = _OUT_OF_REACH
                    break
        return found


class _Place:
    """Where a device of an allocation is.

    ``column``: by row, a position in ``kinds``, or why it is not there.
    """

    def __init__(
        self, result: DeviceRequestAllocationResult, column: IntArray, kinds: list[DeviceKind]
    ) -> None:
        self.result = result
        self.column = column
        self.kinds = kinds

    def device(self, value: int) -> ClaimDevice:
        """Return the device where the column has a value."""
        return ClaimDevice.of(self.result, self.kinds[value])

    def error(self, claim: ResourceClaim, value: int) -> str:
        """Return kube-scheduler's text for a device that is not there."""
        one = self.result
        why = f"device {one.device} does not match node"
        if value == _NOT_FOUND:
            why = f"device {one.device} not found in pool {one.pool} for driver {one.driver}"
        return f"claim {key_of(claim)}, device {one.device}, driver {one.driver}: {why}"


def _slice_reaches(spec: ResourceSliceSpec, nodes: NodeTable) -> BoolArray:
    """Return the mask of nodes that reach a slice (``filterSlicesForNode``)."""
    reached = _reaches(spec, nodes)
    return reached | True if spec.per_device_node_selection else reached


def _reaches(selected: ResourceSliceSpec | Device, nodes: NodeTable) -> BoolArray:
    """Return the mask of nodes that a slice or a device selects."""
    if selected.all_nodes:
        return np.ones(len(nodes), dtype=np.bool_)
    mask = np.zeros(len(nodes), dtype=np.bool_)
    row = nodes.rows.get(selected.node_name) if selected.node_name else None
    if row is not None:
        mask[row] = True
    if selected.node_selector is not None:
        try:
            selector = parsed_selector(msgspec.json.encode(selected.node_selector))
        except PoolError:  # selects nothing here; the search reports it
            return mask
        mask |= matching_nodes(selector, nodes)
    return mask


def _claim_device(
    device_assignment: DeviceAssignment, views: Sequence[PoolView], features: Features
) -> ClaimDevice:
    device = views[device_assignment.pool].devices[device_assignment.device]
    if device_assignment.consumed is None:
        return ClaimDevice(device.name, device.kind, None)
    requested = device_assignment.alternative.requested
    return ClaimDevice(
        device.name,
        device.kind,
        {
            name: consumed_as_written(device.kind.capacity[name], requested.get(name), features)
            for name in device_assignment.consumed
        },
    )
