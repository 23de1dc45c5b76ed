"""Which devices are taken, and by whom: claims as they are known, and allocations in flight.

An allocation is in flight from Reserve until the claim is known to have it (or Unreserve). The sums
are kept claim by claim, so that a cycle never walks over all claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proreus.objects.quantity import parse_quantity
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.pools import PoolKey, PoolView


@dataclass(slots=True)
class DeviceUse:
    """How a device is used: by so many alone, by these shares, this much of its capacity."""

    exclusive: int = 0
    shares: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)

    def empty(self) -> bool:
        """Tell whether nobody has the device."""
        return not (self.exclusive or self.shares)


@dataclass(slots=True)
class InFlightAllocation:
    """An allocation that is being written, and how many pods wait for it.

    ``tried``: it was made in a trial of a whole PodGroup, at whose end it is taken back.
    """

    claim: ResourceClaim
    allocation: AllocationResult
    tried: bool = False
    waiting_pods: int = 1


Uses = Mapping[str, DeviceUse]
"""Use of a pool's devices, by name; devices that are free are absent."""

Consumed = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PoolState:
    """What is taken of a pool as a node sees it; equal states allow the same allocations.

    ``taken``: places of devices that somebody has alone. ``consumed``: place and capacity of
    shared ones. ``available``: what is left of counters.
    """

    taken: frozenset[int] = frozenset()
    consumed: tuple[tuple[int, Consumed], ...] = ()
    available: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()


FREE = PoolState()


class AllocatedDevices:
    """Use of devices by pool.

    Invariant: ``_held[uid]`` is what the claim's allocation (else its allocation in flight) counts
    for in ``uses``.
    """

    def __init__(self, features: Features, changed: Callable[[PoolKey], None]) -> None:
        self._features = features
        self._changed = changed
        self._written: dict[str, AllocationResult] = {}
        self._counted: dict[str, AllocationResult] = {}
        self.uses: dict[PoolKey, dict[str, DeviceUse]] = {}
        self.in_flight: dict[str, InFlightAllocation] = {}

    def update_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Take note of a change of a claim."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._written.pop(old.metadata.uid, None)
            self.in_flight.pop(old.metadata.uid, None)
            self._recount(old.metadata.uid)
        if new is None:
            return
        uid = new.metadata.uid
        if new.status.allocation is not None:
            self._written[uid] = new.status.allocation
            self.in_flight.pop(uid, None)
        else:
            self._written.pop(uid, None)
        self._recount(uid)

    def add_in_flight(
        self, claim: ResourceClaim, allocation: AllocationResult, tried: bool = False
    ) -> None:
        """Note an allocation as in flight, or one more pod that waits for it."""
        uid = claim.metadata.uid
        known = self.in_flight.get(uid)
        if known is not None:
            known.waiting_pods += 1
            return
        self.in_flight[uid] = InFlightAllocation(claim, allocation, tried)
        self._recount(uid)

    def remove_in_flight(self, uid: str) -> bool:
        """Note that a pod no longer waits; tell whether it was the last."""
        known = self.in_flight.get(uid)
        if known is None:
            return False
        known.waiting_pods -= 1
        if known.waiting_pods > 0:
            return False
        del self.in_flight[uid]
        self._recount(uid)
        return True

    def _recount(self, uid: str) -> None:
        flying = self.in_flight.get(uid)
        wanted = self._written.get(uid) or (flying.allocation if flying else None)
        held = self._counted.get(uid)
        if wanted is held or (wanted is not None and held is not None and _same(wanted, held)):
            return
        if held is not None:
            del self._counted[uid]
            for result in held.devices.results:
                self._count(result, -1)
        if wanted is not None:
            self._counted[uid] = wanted
            for result in wanted.devices.results:
                self._count(result, 1)

    def _count(self, result: DeviceRequestAllocationResult, step: int) -> None:
        if result.admin_access:
            return
        key = result.driver, result.pool
        pool = self.uses.setdefault(key, {})
        use = pool.setdefault(result.device, DeviceUse())
        if self._features.consumable_capacity and result.share_id is not None:
            shares = use.shares.get(result.share_id, 0) + step
            use.shares[result.share_id] = shares
            if not shares:
                del use.shares[result.share_id]
            for name, amount in result.consumed_capacity.items():
                consumed = use.consumed.get(name, 0) + step * parse_quantity(amount)
                use.consumed[name] = consumed
                if not consumed:
                    del use.consumed[name]
        else:
            use.exclusive += step
        if use.empty():
            del pool[result.device]
        self._changed(key)

    def state_of(self, view: PoolView) -> PoolState:
        """Return what is taken of a pool, by the places that devices have in a view of it."""
        uses = self.uses.get(view.key)
        if not uses and not view.counters:
            return FREE
        uses = uses or {}
        taken, consumed = [], []
        for name, use in uses.items():
            place = view.index.get(name)
            if place is None:
                continue
            if use.exclusive:
                taken.append(place)
            if use.shares:
                consumed.append((place, tuple(sorted(use.consumed.items()))))
        return PoolState(frozenset(taken), tuple(sorted(consumed)), _available(view, uses))


def _same(one: AllocationResult, other: AllocationResult) -> bool:
    return one.devices.results == other.devices.results


def _available(view: PoolView, uses: Uses) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    """Return what the devices in use leave of each counter."""
    if not view.counters:
        return ()
    left = {name: dict(amounts) for name, amounts in view.counters.items()}
    for device in uses:
        for name, amounts in view.consumers.get(device, {}).items():
            for counter, amount in amounts.items():
                if counter in left.get(name, ()):
                    left[name][counter] -= amount
    return tuple((name, tuple(amounts.items())) for name, amounts in left.items())
