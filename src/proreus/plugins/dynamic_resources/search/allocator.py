"""The search for devices: depth first, the first complete solution wins (KEP-4381).

This is ``allocateOne`` of kube-scheduler's structured allocator, over positions of pools and
devices instead of names: a result holds for every node that has the same ``DeviceAvailability``.

Example: a request for 2 devices with ``matchAttribute: numa``, on a pool with d1 (numa 0), d2 and
d3 (numa 1). d1 is placed. d2 and d3 both violate the constraint next to it, so d1 is removed and
the scan goes on behind it: d2 is placed, then d3, and the solution is d2 and d3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from proreus.base.errors import BudgetExceeded
from proreus.objects.resource_claims import ALLOCATION_RESULTS_MAX_SIZE
from proreus.plugins.dynamic_resources.claims import BEST_PRIORITY
from proreus.plugins.dynamic_resources.devices.availability_index import DeviceAvailability
from proreus.plugins.dynamic_resources.devices.pools import DeviceOnNode
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.allocating_devices import (
    AllocatingDevices,
    DeviceAssignment,
    DevicePosition,
)
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError, quoted
from proreus.plugins.dynamic_resources.search.alternative import Alternative
from proreus.plugins.dynamic_resources.search.infeasible import too_few_matching_devices
from proreus.plugins.dynamic_resources.search.prepared_claims import PreparedClaims

_STEPS_PER_DEADLINE_CHECK = 256


class AllocationTimeout(Exception):
    """The search for the availability ``number`` took longer than ``filterTimeout`` allows."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Solution(Struct, frozen=True):
    """Devices for each claim, in the order in which they were placed.

    ``choices``: by claim and request, the position of the alternative that was taken.
    ``score``: points for alternatives, 8 for the first of a list, 7 for the second (KEP-4816).
    """

    device_assignments: tuple[tuple[DeviceAssignment, ...], ...]
    choices: tuple[tuple[int, ...], ...]
    score: int


class NoSolution(Struct, frozen=True):
    """There is no solution; ``invalid_pools`` may be why."""

    invalid_pools: bool


AllocatorResult = Solution | NoSolution | AllocationError


class Checkpoint(Struct, frozen=True):
    """The place where a search was suspended: all before it in its order has been tried.

    ``devices``: those that were placed, in their order, and the one that was looked at; empty if
    the search had not begun. ``choices``: as in ``Solution``. ``slices``: how often it was
    suspended.
    """

    devices: tuple[DevicePosition, ...]
    choices: tuple[tuple[int, ...], ...]
    slices: int


class _Progress(Enum):
    DONE = 1
    FAILED = 2
    TOO_MANY = 3
    """More devices than a claim may have: other devices for earlier requests do not help."""


def allocate(
    prepared: PreparedClaims,
    availability: DeviceAvailability,
    features: Features,
    deadline_exceeded: Callable[[], bool],
    checkpoints: dict[int, Checkpoint],
) -> AllocatorResult:
    """Search for devices; raises ``AllocationTimeout`` and ``BudgetExceeded``.

    ``deadline_exceeded`` is called every few hundred steps, and before selectors are evaluated. If
    it raises ``BudgetExceeded``, ``checkpoints`` gets, by the availability's number, where the next
    search with the same arguments goes on.
    """
    if prepared.allocation_error is not None:
        return prepared.allocation_error
    checkpoint = checkpoints.pop(availability.number, None)
    search = _Search(prepared, availability, features, deadline_exceeded, checkpoint)
    try:
        return search.run()
    except AllocationError as allocation_error:
        # An error is a result like the others: it is as true of the next pod with these claims.
        return allocation_error
    except BudgetExceeded:
        checkpoints[availability.number] = search.checkpoint()
        raise


class _Search:
    """One search: which claim, request and device come next."""

    def __init__(
        self,
        prepared: PreparedClaims,
        availability: DeviceAvailability,
        features: Features,
        deadline_exceeded: Callable[[], bool],
        checkpoint: Checkpoint | None,
    ) -> None:
        self._prepared = prepared
        self._availability = availability
        self._views = availability.views
        self._features = features
        self._deadline_exceeded = deadline_exceeded
        self._steps = 0
        self._all_devices: dict[int, list[DevicePosition]] = {}
        self._choices = [[0] * len(claim.requests) for claim in prepared.claims]
        self._allocating = AllocatingDevices(prepared, availability, features, self._check_deadline)
        self._checkpoint = checkpoint
        self._to_replay = deque(checkpoint.devices if checkpoint is not None else ())
        self._looked_at: DevicePosition | None = None

    def checkpoint(self) -> Checkpoint:
        """Return the place where this search has been suspended."""
        before = self._checkpoint or Checkpoint((), (), 0)
        slices = before.slices + 1
        # Not yet where the search before this one was suspended.
        if self._looked_at is None or self._to_replay:
            return replace(before, slices=slices)
        placed = [(one.pool, one.device) for all in self._allocating.assignments for one in all]
        choices = tuple(map(tuple, self._choices))
        return Checkpoint((*placed, self._looked_at), choices, slices)

    def run(self) -> AllocatorResult:
        # Requests are validated before devices are counted: an error ends the whole attempt
        # upstream, and must do so here although the claim could be refused without looking.
        self._collect()
        taken = [state.taken for state in self._availability.states]
        infeasible = not self._to_replay and too_few_matching_devices(
            self._prepared, self._views, taken, self._check_deadline
        )
        if not infeasible and self._allocate_claim(0) is _Progress.DONE:
            self._check_node_selectors()
            return Solution(
                tuple(map(tuple, self._allocating.assignments)),
                tuple(map(tuple, self._choices)),
                self._score(),
            )
        return NoSolution(any(view.invalid for view in self._views))

    def _check_node_selectors(self) -> None:
        """Raise ``AllocationError`` if node selectors of a claim's devices cannot be combined."""
        for device_assignments in self._allocating.assignments:
            found = [self._views[p.pool].devices[p.device] for p in device_assignments]
            # One local device ties the allocation to this node, whatever the others say.
            if any(device.local for device in found):
                continue
            # Selectors are combined by joining the requirements of their terms; terms are
            # alternatives, of which several cannot be joined so (createNodeSelector upstream).
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
            for scored, choice in zip(claim.scored, choices, strict=True)
            if scored
        )

    # ---- before the search ---------------------------------------------------------------------

    def _collect(self) -> None:
        """Find the devices of requests for all of them, and check how many a claim needs.

        Raises ``AllocationError`` (``validateDeviceRequest`` upstream).
        """
        for place, claim in enumerate(self._prepared.claims):
            least = 0
            for request in claim.requests:
                counts = []
                for one in request:
                    if one.all_devices:
                        self._all_devices[id(one)] = self._all_of(one)
                    counts.append(self._count(one))
                # A larger alternative is no error as long as a smaller one may be taken instead.
                more = min(counts, default=0)
                if self._features.allocator_of_1_37 and more + least > ALLOCATION_RESULTS_MAX_SIZE:
                    raise AllocationError(
                        f"claim {{claim}}, request {quoted(request[0].request)}: adding {more} "
                        f"devices exceeds the claim limit of {ALLOCATION_RESULTS_MAX_SIZE}, with "
                        f"{least} already accounted for",
                        place,
                    )
                least += more
            if least > ALLOCATION_RESULTS_MAX_SIZE:
                raise AllocationError(
                    f"claim {{claim}}: number of requested devices {least} exceeds the claim "
                    f"limit of {ALLOCATION_RESULTS_MAX_SIZE}",
                    place,
                )

    def _all_of(self, one: Alternative) -> list[DevicePosition]:
        found = []
        for pool, view in enumerate(self._views):
            # The number of all is unknown while a slice is missing. Giving fewer devices for good
            # would be worse than trying again, so this is an error that ends the attempt; from 1.38
            # on, the attempt goes on with other nodes.
            if view.incomplete or view.invalid:
                state = "being updated" if view.incomplete else "invalid"
                raise AllocationError(
                    f"claim {{claim}}, request {one.own_name}: asks for all devices, but resource "
                    f"pool {{pool}} is currently {state}",
                    one.claim,
                    pool,
                    on_node=self._features.allocator_of_1_38,
                )
            for place, device in enumerate(view.devices):
                # Devices in use count as well: all means all, so the search fails at them.
                try:
                    if (
                        one.selects(device.kind, self._check_deadline)
                        and device.matches_node
                        and self._allocating.could_have_capacity(one, (pool, place), device.kind)
                    ):
                        found.append((pool, place))
                except AllocationError as error:
                    raise error.at(pool, place, plain_name=True) from None
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
            # The limit is a claim's own. Seen from the claim before it, a later claim with too many
            # devices has merely failed: other devices here may let it take a smaller alternative.
            return _Progress.FAILED if step is _Progress.TOO_MANY else step
        if not self._prepared.claims[claim].prioritized[request]:
            return self._allocate_devices(claim, request, requests[request][0], 0, (0, 0))
        first = 0
        if self._to_replay and self._checkpoint is not None:
            first = self._checkpoint.choices[claim][request]
        # Of alternatives that were tried before a suspension it is not known whether they needed
        # too many devices; to say no costs time only.
        too_many = not first
        for choice, one in enumerate(requests[request][first:], first):
            # Everything behind this request is searched anew for each alternative (KEP-4816): the
            # second one is taken only if the first leaves no solution for later requests, too.
            self._choices[claim][request] = choice
            step = self._allocate_devices(claim, request, one, 0, (0, 0))
            if step is _Progress.DONE:
                return step
            too_many = too_many and step is _Progress.TOO_MANY
        # Passed up only if no alternative can do with fewer devices; otherwise the devices of
        # earlier requests matter, and the search goes on with others of them.
        return _Progress.TOO_MANY if too_many else _Progress.FAILED

    def _allocate_devices(
        self, claim: int, request: int, one: Alternative, number: int, start: DevicePosition
    ) -> _Progress:
        """Place the devices of a request from its ``number``-th on, scanning from ``start`` on."""
        self._steps += 1
        count = self._count(one)
        # All of no devices is not enough: a pod for all GPUs does not fit on a node without any.
        if one.all_devices and not count:
            return _Progress.FAILED
        if number >= count:
            # Each request scans from the first device on: only within a request does the order of
            # devices not matter.
            return self._allocate_request(claim, request + 1)
        # Checked before the first device is placed, not when the limit is hit: a search through
        # all combinations of 33 devices would end in the same refusal, much later.
        if len(self._allocating.assignments[claim]) + count - number > ALLOCATION_RESULTS_MAX_SIZE:
            return _Progress.TOO_MANY
        if one.all_devices:
            # There is one way only to give all devices, so a refusal is final for the request.
            device = self._all_devices[id(one)][number]
            if self._to_replay:
                self._to_replay.popleft()
            if not self._allocating.allocate(claim, one, device):
                return _Progress.FAILED
            step = self._allocate_devices(claim, request, one, number + 1, start)
            if step is not _Progress.DONE:
                self._allocating.deallocate(claim, one, device)
            return step
        return self._scan(claim, request, one, number, start)

    def _scan(
        self, claim: int, request: int, one: Alternative, number: int, start: DevicePosition
    ) -> _Progress:
        """Try the devices from ``start`` on for a request, in the order of pools and slices."""
        first_pool, first_device = self._to_replay.popleft() if self._to_replay else start
        for pool in range(first_pool, len(self._views)):
            view = self._views[pool]
            # A pool that is half written, or contradicts itself, is passed over without an error:
            # the next one may have what is needed.
            if view.incomplete or view.invalid:
                continue
            devices = view.devices
            for place in range(first_device if pool == first_pool else 0, len(devices)):
                device = pool, place
                try:
                    if not self._is_allocatable(claim, one, device, devices[place]):
                        continue
                    if not self._allocating.allocate(claim, one, device):
                        continue
                except BudgetExceeded:
                    self._looked_at = device
                    raise
                # The next device of this request lies behind this one: combinations are tried, not
                # permutations, of which two devices in either order would be the same solution.
                step = self._allocate_devices(claim, request, one, number + 1, (pool, place + 1))
                if step is _Progress.DONE:
                    return step
                self._allocating.deallocate(claim, one, device)
                # As errAllocationResultMaxSizeExceeded upstream: no other device helps.
                if step is _Progress.TOO_MANY:
                    return step
        return _Progress.FAILED

    def _is_allocatable(
        self, claim: int, one: Alternative, device: DevicePosition, found: DeviceOnNode
    ) -> bool:
        self._step()
        # The order is allocateOne's and isSelectable's. What is in use comes first since it is
        # cheap, and hides a selector that would fail. Selectors come before the device's own node
        # selection: one that fails on a device is an error even where the device is out of reach.
        allocating = self._allocating
        try:
            return (
                not allocating.in_use(claim, one, device)
                and one.selects(found.kind, self._check_deadline)
                and found.matches_node
                and allocating.has_capacity(one, device, found.kind)
            )
        except AllocationError as error:
            raise error.at(*device) from None

    def _step(self) -> None:
        """Check the deadline every few hundred steps; raises ``AllocationTimeout``."""
        # Not at every step: reading the clock and the attempt's budget costs as much as a check.
        self._steps += 1
        if self._steps % _STEPS_PER_DEADLINE_CHECK == 0:
            self._check_deadline()

    def _check_deadline(self) -> None:
        if self._deadline_exceeded():
            raise AllocationTimeout(self._availability.number)
