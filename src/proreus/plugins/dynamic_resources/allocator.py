"""The search: depth first, the first complete solution wins (KEP-4381, structured parameters).

It works on one situation (pools and what is taken of them) and one plan (what is asked for). What
it finds are positions, not names: it holds on every node of the situation. Two things that look
like mistakes are kube-scheduler 1.36's own and decide who gets which device; they are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from proreus.objects.resource_claims import ALLOCATION_RESULTS_MAX_SIZE
from proreus.plugins.dynamic_resources.allocated import Consumed
from proreus.plugins.dynamic_resources.availability_index import DeviceAvailability
from proreus.plugins.dynamic_resources.capacity import has_capacity
from proreus.plugins.dynamic_resources.consumed_counters import ConsumedCounters
from proreus.plugins.dynamic_resources.devices import DeviceKind
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.hopeless import too_few_alike
from proreus.plugins.dynamic_resources.pools import DeviceOnNode
from proreus.plugins.dynamic_resources.prepared_claims import (
    AllocationError,
    Alternative,
    PreparedClaims,
)
from proreus.plugins.dynamic_resources.scoring import BEST_PRIORITY

_STEPS_PER_DEADLINE_CHECK = 256


class AllocationTimeout(Exception):
    """The search took longer than it may."""


@dataclass(frozen=True, slots=True)
class DeviceAssignment:
    """A device for a request, by positions of pool and device; ``consumed`` if it is shared."""

    alternative: Alternative
    pool: int
    device: int
    consumed: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Solution:
    """Devices for each claim, in the order in which they were placed; ``choices`` by claim and
    request: the alternative that was taken."""

    device_assignments: tuple[tuple[DeviceAssignment, ...], ...]
    choices: tuple[tuple[int, ...], ...]
    score: int


@dataclass(frozen=True, slots=True)
class NoSolution:
    """There is no solution; ``invalid_pools`` may be why."""

    invalid_pools: bool


AllocatorResult = Solution | NoSolution | AllocationError


class _Progress(Enum):
    DONE = 1
    FAILED = 2
    TOO_MANY = 3
    """More devices than a claim can be given: other devices for earlier requests do not help."""


_Device = tuple[int, int]
"""Position of a pool, and of a device in it."""


def allocate(
    prepared: PreparedClaims,
    availability: DeviceAvailability,
    features: Features,
    deadline_exceeded: Callable[[], bool],
) -> AllocatorResult:
    """Look for devices; raises ``AllocationTimeout``."""
    if prepared.allocation_error is not None:
        return prepared.allocation_error
    try:
        return _Search(prepared, availability, features, deadline_exceeded).run()
    except AllocationError as allocation_error:
        return allocation_error


class _Search:
    """One search, and what it has placed so far."""

    def __init__(
        self,
        prepared: PreparedClaims,
        availability: DeviceAvailability,
        features: Features,
        deadline_exceeded: Callable[[], bool],
    ) -> None:
        self._prepared = prepared
        self._views = availability.views
        self._taken = [state.taken for state in availability.states]
        self._consumed_capacity: dict[_Device, Consumed] = {
            (pool, device): consumed
            for pool, state in enumerate(availability.states)
            for device, consumed in state.consumed
        }
        self._features = features
        self._deadline_exceeded = deadline_exceeded
        self._steps = 0
        self._constraints = [claim.new_constraints() for claim in prepared.claims]
        self._all_devices: dict[int, list[_Device]] = {}
        self._allocating_devices: dict[_Device, set[int]] = {}
        self._device_assignments: list[list[DeviceAssignment]] = [[] for _ in prepared.claims]
        self._choices = [[0] * len(claim.requests) for claim in prepared.claims]
        self._allocating_capacity: dict[_Device, dict[str, int]] = {}
        self._counters = ConsumedCounters(availability)

    def run(self) -> AllocatorResult:
        self._collect()
        hopeless = too_few_alike(self._prepared, self._views, self._taken)
        if not hopeless and self._allocate_claim(0) is _Progress.DONE:
            self._check_node_selectors()
            return Solution(
                tuple(map(tuple, self._device_assignments)),
                tuple(map(tuple, self._choices)),
                self._score(),
            )
        return NoSolution(any(view.invalid for view in self._views))

    def _check_node_selectors(self) -> None:
        for device_assignments in self._device_assignments:
            found = [self._views[p.pool].devices[p.device] for p in device_assignments]
            if any(device.local for device in found):
                continue
            for device in found:
                terms = device.selector.node_selector_terms if device.selector is not None else ()
                if len(terms) > 1:
                    raise AllocationError(
                        f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
                    )

    def _score(self) -> int:
        return sum(
            BEST_PRIORITY - choice
            for claim, choices in zip(self._prepared.claims, self._choices, strict=True)
            for prioritized, choice in zip(claim.prioritized, choices, strict=True)
            if prioritized
        )

    # ---- before the search ---------------------------------------------------------------------

    def _collect(self) -> None:
        """Find the devices of requests for all of them, and check how many a claim needs."""
        for place, claim in enumerate(self._prepared.claims):
            least = 0
            for request in claim.requests:
                counts = []
                for one in request:
                    if one.all_devices:
                        self._all_devices[id(one)] = self._all_of(one)
                    counts.append(self._count(one))
                least += min(counts, default=0)
            if least > ALLOCATION_RESULTS_MAX_SIZE:
                raise AllocationError(
                    f"claim {{claim}}: number of requested devices {least} exceeds the claim "
                    f"limit of {ALLOCATION_RESULTS_MAX_SIZE}",
                    place,
                )

    def _all_of(self, one: Alternative) -> list[_Device]:
        found = []
        for pool, view in enumerate(self._views):
            if view.incomplete or view.invalid:
                state = "being updated" if view.incomplete else "invalid"
                raise AllocationError(
                    f"claim {{claim}}, request {one.own_name}: asks for all devices, but resource "
                    f"pool {{pool}} is currently {state}",
                    one.claim,
                    pool,
                )
            for place, device in enumerate(view.devices):
                if (
                    one.selects(device.kind)
                    and device.matches_node
                    and self._has_capacity(one, (pool, place), device.kind)
                ):
                    found.append((pool, place))
        return found

    def _count(self, one: Alternative) -> int:
        return len(self._all_devices[id(one)]) if one.all_devices else one.count

    # ---- the search ----------------------------------------------------------------------------

    def _allocate_claim(self, claim: int) -> _Progress:
        if claim == len(self._prepared.claims):
            return _Progress.DONE
        return self._allocate_request(claim, 0)

    def _allocate_request(self, claim: int, request: int) -> _Progress:
        requests = self._prepared.claims[claim].requests
        if request == len(requests):
            step = self._allocate_claim(claim + 1)
            return _Progress.FAILED if step is _Progress.TOO_MANY else step
        if not self._prepared.claims[claim].prioritized[request]:
            return self._allocate_devices(claim, request, requests[request][0], 0, (0, 0))
        too_many = True
        for choice, one in enumerate(requests[request]):
            self._choices[claim][request] = choice
            step = self._allocate_devices(claim, request, one, 0, (0, 0))
            if step is _Progress.DONE:
                return step
            too_many = too_many and step is _Progress.TOO_MANY
        return _Progress.TOO_MANY if too_many else _Progress.FAILED

    def _allocate_devices(
        self, claim: int, request: int, one: Alternative, number: int, start: _Device
    ) -> _Progress:
        """Place the devices of a request from its ``number``-th on, looking from ``start`` on."""
        self._step()
        count = self._count(one)
        if one.all_devices and not count:
            return _Progress.FAILED
        if number >= count:
            return self._allocate_request(claim, request + 1)
        if len(self._device_assignments[claim]) + count - number > ALLOCATION_RESULTS_MAX_SIZE:
            return _Progress.TOO_MANY
        if one.all_devices:
            device = self._all_devices[id(one)][number]
            if not self._allocate_device(claim, one, device):
                return _Progress.FAILED
            step = self._allocate_devices(claim, request, one, number + 1, start)
            if step is not _Progress.DONE:
                self._deallocate(claim, one, device)
            return step
        return self._scan(claim, request, one, number, start)

    def _scan(
        self, claim: int, request: int, one: Alternative, number: int, start: _Device
    ) -> _Progress:
        first_pool, first_device = start
        for pool in range(first_pool, len(self._views)):
            view = self._views[pool]
            if view.incomplete or view.invalid:
                continue
            devices = view.devices
            for place in range(first_device if pool == first_pool else 0, len(devices)):
                device = pool, place
                if not self._is_allocatable(claim, one, device, devices[place]):
                    continue
                if not self._allocate_device(claim, one, device):
                    continue
                step = self._allocate_devices(claim, request, one, number + 1, (pool, place + 1))
                if step is _Progress.DONE:
                    return step
                self._deallocate(claim, one, device)
                if step is _Progress.TOO_MANY:
                    return step
        return _Progress.FAILED

    def _is_allocatable(
        self, claim: int, one: Alternative, device: _Device, found: DeviceOnNode
    ) -> bool:
        self._step()
        # Selectors first: one that fails on a device is an error whoever can reach the device.
        return (
            not self._in_use(claim, one, device)
            and one.selects(found.kind)
            and found.matches_node
            and self._has_capacity(one, device, found.kind)
        )

    def _step(self) -> None:
        """Look at the clock now and then; raises ``AllocationTimeout``."""
        self._steps += 1
        if self._steps % _STEPS_PER_DEADLINE_CHECK == 0 and self._deadline_exceeded():
            raise AllocationTimeout

    # ---- placing a device ----------------------------------------------------------------------

    def _allocate_device(self, claim: int, one: Alternative, device: _Device) -> bool:
        pool, place = device
        kind = self._views[pool].devices[place].kind
        if self._in_use(claim, one, device) or not self._consume_counters(device, kind):
            return False
        # What was drawn from counters is not given back when one of the next checks refuses the
        # device, so it is missing for the rest of the search. kube-scheduler's behaviour.
        if not one.tolerates(kind) or not self._add_to_constraints(claim, one, device, kind):
            return False
        if not self._has_capacity(one, device, kind):
            self._remove_from_constraints(claim, one)
            return False
        consumed: Mapping[str, int] | None = None
        if kind.shared:
            consumed = one.amounts(kind) or {}
            now = self._allocating_capacity.setdefault(device, {})
            for name, amount in consumed.items():
                now[name] = now.get(name, 0) + amount
        else:
            self._allocating_devices.setdefault(device, set()).add(claim)
        self._device_assignments[claim].append(DeviceAssignment(one, pool, place, consumed))
        return True

    def _deallocate(self, claim: int, one: Alternative, device: _Device) -> None:
        device_assignment = self._device_assignments[claim].pop()
        kind = self._views[device[0]].devices[device[1]].kind
        self._remove_from_constraints(claim, one)
        if device_assignment.consumed is not None:
            # Counters that a shared device drew on are not given back. kube-scheduler's behaviour.
            now = self._allocating_capacity[device]
            for name, amount in device_assignment.consumed.items():
                now[name] -= amount
            if not any(now.values()):
                del self._allocating_capacity[device]
            return
        holders = self._allocating_devices[device]
        holders.discard(claim)
        if not holders:
            del self._allocating_devices[device]
        if kind.consumes:
            self._counters.release(device[0], kind)

    def _in_use(self, claim: int, one: Alternative, device: _Device) -> bool:
        holders = self._allocating_devices.get(device)
        if one.admin_access:
            return holders is not None and claim in holders
        return holders is not None or device[1] in self._taken[device[0]]

    def _has_capacity(self, one: Alternative, device: _Device, kind: DeviceKind) -> bool:
        """Check consumable capacity."""
        if not self._features.consumable_capacity:
            return True
        amounts = one.amounts(kind)
        if amounts is None:
            return False
        if not kind.shared:
            return has_capacity(kind, amounts, {}, {})
        before = dict(self._consumed_capacity.get(device, ()))
        return has_capacity(kind, amounts, before, self._allocating_capacity.get(device, {}))

    def _add_to_constraints(
        self, claim: int, one: Alternative, device: _Device, kind: DeviceKind
    ) -> bool:
        constraints = self._constraints[claim]
        for place, constraint in enumerate(constraints):
            if constraint.add(one.request, one.subrequest, kind):
                continue
            for earlier in constraints[:place]:
                earlier.remove(one.request, one.subrequest)
            if one.all_devices:
                raise AllocationError(
                    f"claim {{claim}}, request {one.own_name}: cannot add device {{device}} "
                    "because a claim constraint would not be satisfied",
                    claim,
                    *device,
                )
            return False
        return True

    def _remove_from_constraints(self, claim: int, one: Alternative) -> None:
        for constraint in self._constraints[claim]:
            constraint.remove(one.request, one.subrequest)

    def _consume_counters(self, device: _Device, kind: DeviceKind) -> bool:
        """Draw on the counters of the device's pool, if there is enough."""
        if not kind.consumes:
            return True
        if not self._features.partitionable_devices:
            return False
        if kind.shared and (
            device in self._consumed_capacity or device in self._allocating_capacity
        ):
            return True
        return self._counters.consume(device[0], kind)
