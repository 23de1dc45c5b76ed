"""The allocated devices: by claims as watched or assumed, and by allocations in flight.

An allocation is in flight from Reserve until PreBind has written it, or until Unreserve. Sums are
updated claim by claim, so that a cycle never walks over all claims (``GatherAllocatedState``
upstream).

Example: Reserve of pod A puts the allocation of claim X in flight, gpu-0 of n1; ``uses`` of that
pool has gpu-0 from then on, and no other pod gets it. PreBind writes X, and the claim is assumed:
the same use is counted for the claim, nothing changes. Had PreBind failed, gpu-0 would be free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from proreus.objects.meta import key_of
from proreus.objects.quantity import parse_quantity
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from proreus.plugins.dynamic_resources.devices.capacity import quantity_text
from proreus.plugins.dynamic_resources.devices.kinds import GroupsBySet, by_capacity
from proreus.plugins.dynamic_resources.devices.pools import PoolKey, PoolView
from proreus.plugins.dynamic_resources.features import Features


class DeviceUse(Struct):
    """The use of a device.

    ``exclusive``: the number of claims that have it alone; more than 1 if another scheduler
    allocates, too. ``shares``: by share ID, of a device that allows multiple allocations.
    ``consumed``: nano-units by capacity.
    """

    exclusive: int = 0
    shares: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)

    def empty(self) -> bool:
        """Return whether nobody has the device."""
        return not (self.exclusive or self.shares)


class InFlightAllocation(Struct):
    """An allocation that is being written, and how many pods wait for it.

    ``in_group_cycle``: made in a PodGroup's scheduling cycle, whose dry run ends with Unreserve.
    ``waiting_pods``: 0 for a new claim that the watch may not have delivered yet.
    ``written_version``: the resourceVersion of our last write of the claim, 0 before.
    """

    claim: ResourceClaim
    allocation: AllocationResult
    in_group_cycle: bool = False
    waiting_pods: int = 1
    written_version: int = 0
    claim_deleted: bool = False

    @property
    def was_never_written(self) -> bool:
        """Whether its devices are free for others as soon as it is given up."""
        return not self.written_version and not self.in_group_cycle


Uses = Mapping[str, DeviceUse]
"""Use of a pool's devices, by name; devices that are free are absent."""

Consumed = tuple[tuple[str, int], ...]


class PoolState(Struct, frozen=True):
    """The taken part of a pool as a node sees it; equal states allow the same allocations.

    ``taken``: positions of devices that are allocated exclusively. ``consumed``: position and
    consumed capacity of shared ones. ``available``: by counter set, what is left of its counters.
    ``groups``: by counter set, the compatibility groups that the devices on it have in common.
    """

    taken: frozenset[int] = frozenset()
    consumed: tuple[tuple[int, Consumed], ...] = ()
    available: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    groups: tuple[tuple[str, frozenset[str]], ...] = ()


FREE = PoolState()


class AllocatedDevices:
    """Use of devices by pool.

    Invariant: ``_counted[uid]`` is the allocation that counts in ``uses`` for a claim: the one that
    is written, else the one in flight.
    """

    def __init__(
        self,
        features: Features,
        changed: Callable[[PoolKey], None],
        in_flight_until_pre_bind_ends: bool = True,
    ) -> None:
        """``in_flight_until_pre_bind_ends``: see ``Change.IN_FLIGHT_UNTIL_PRE_BIND_ENDS``."""
        self._features = features
        self.in_flight_until_pre_bind_ends = in_flight_until_pre_bind_ends
        self._changed = changed
        self._written: dict[str, AllocationResult] = {}
        self._counted: dict[str, AllocationResult] = {}
        self.uses: dict[PoolKey, dict[str, DeviceUse]] = {}
        self.in_flight: dict[str, InFlightAllocation] = {}
        self._refuses_negative = features.allocator_of_1_38 and features.consumable_capacity
        self._faults: dict[str, str] = {}
        """By uid of a claim, why what it consumes is not known; kept from 1.38 on."""

    def fault(self) -> str:
        """Return why it is not known what is left of the devices; empty if it is."""
        if not self._faults:
            return ""
        more = len(self._faults) - 1
        rest = f" (and {more} more claims with invalid consumed capacity)" if more else ""
        return min(self._faults.values()) + rest

    def update_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Replace a claim, add (``old`` is None) or remove one."""
        # A claim deleted and created again under its name is another claim: devices of the old one
        # are free.
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._written.pop(old.metadata.uid, None)
            self._faults.pop(old.metadata.uid, None)
            if (flying := self.in_flight.get(old.metadata.uid)) is not None:
                flying.claim_deleted = True
                # A pod that waits for its devices holds them, even if its claim is gone.
                if not (flying.waiting_pods and self.in_flight_until_pre_bind_ends):
                    del self.in_flight[old.metadata.uid]
            self._recount(old.metadata.uid)
        if new is None:
            return
        uid = new.metadata.uid
        self._faults.pop(uid, None)
        if self._refuses_negative and (fault := _negative_amount(new)):
            self._faults[uid] = fault
        # An update without an allocation may be older than our write, so what is in flight stays.
        if new.status.allocation is not None:
            self._written[uid] = new.status.allocation
            if not self.in_flight_until_pre_bind_ends:
                self.in_flight.pop(uid, None)
        else:
            self._written.pop(uid, None)
        self._recount(uid)

    def add_in_flight(
        self, claim: ResourceClaim, allocation: AllocationResult, in_group_cycle: bool = False
    ) -> None:
        """Put an allocation in flight, or count one more pod that waits for it.

        ``SignalClaimPendingAllocation`` upstream.
        """
        uid = claim.metadata.uid
        known = self.in_flight.get(uid)
        if known is not None:
            known.waiting_pods += 1
            return
        self.in_flight[uid] = InFlightAllocation(claim, allocation, in_group_cycle)
        self._recount(uid)

    def remove_in_flight(self, uid: str) -> InFlightAllocation | None:
        """Count one pod less that waits for an allocation; return it if that was the last."""
        # The devices are released with the last one: pods of a group share a claim, and one of them
        # failing must not free what the others are being bound to.
        known = self.in_flight.get(uid)
        if known is None:
            return None
        known.waiting_pods -= 1
        if known.waiting_pods > 0:
            return None
        del self.in_flight[uid]
        self._recount(uid)
        return known

    def keep_until_deleted(self, uid: str) -> None:
        """Count no pods any more that wait for an allocation: it ends with its claim."""
        flying = self.in_flight[uid]
        flying.waiting_pods = 0
        if flying.claim_deleted:
            del self.in_flight[uid]
            self._recount(uid)

    def _recount(self, uid: str) -> None:
        flying = self.in_flight.get(uid)
        wanted = self._written.get(uid) or (flying.allocation if flying else None)
        held = self._counted.get(uid)
        # From in flight to assumed to watched, an allocation stays the same three times over. No
        # change of ``uses`` means that no node's availability is computed again.
        if wanted is held or (
            wanted is not None and held is not None and same_devices(wanted, held)
        ):
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
        # Admin access observes devices and does not take them from anybody (KEP-5018).
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
            amounts = by_capacity(result.consumed_capacity, result.driver, self._features)
            for name, amount in amounts.items():
                consumed = use.consumed.get(name, 0) + step * parse_quantity(amount)
                use.consumed[name] = consumed
                if not consumed:
                    del use.consumed[name]
        else:
            use.exclusive += step
        if use.empty():
            del pool[result.device]
            # Pools come and go with nodes.
            if not pool:
                del self.uses[key]
        self._changed(key)

    def state_of(self, view: PoolView) -> PoolState:
        """Return the taken part of a pool, by the positions of devices in a view of it."""
        uses = self.uses.get(view.key)
        if not uses and not view.counters:
            return FREE
        uses = uses or {}
        taken, consumed = [], []
        for name, use in uses.items():
            # A device of another node, or one that the driver has withdrawn while it is in use.
            place = view.index.get(name)
            if place is None:
                continue
            if use.exclusive:
                taken.append(place)
            if use.shares:
                consumed.append((place, tuple(sorted(use.consumed.items()))))
        groups = _common_groups(view.groups[name] for name in sorted(uses) if name in view.groups)
        return PoolState(frozenset(taken), tuple(sorted(consumed)), _available(view, uses), groups)


def _negative_amount(claim: ResourceClaim) -> str:
    """Return the fault of a claim that consumes a negative amount; empty if none does."""
    results = () if claim.status.allocation is None else claim.status.allocation.devices.results
    for result in results:
        for name, amount in sorted(result.consumed_capacity.items()):
            nano = parse_quantity(amount)
            if nano < 0:
                device = f"{result.driver}/{result.pool}/{result.device}"
                return (
                    f'claim {key_of(claim)}, device {device}: consumed capacity "{name}" must not '
                    f"be negative, got {quantity_text(nano, amount)}"
                )
    return ""


def same_devices(one: AllocationResult, other: AllocationResult) -> bool:
    """Return whether two allocations have the same devices."""
    return one.devices.results == other.devices.results


def _available(view: PoolView, uses: Uses) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    """Return the amount of each counter that the devices in use leave."""
    if not view.counters:
        return ()
    # Devices on other nodes consume the counters of the pool as well, whether they are shared or
    # exclusive: once each (checkAvailableCounters).
    left = {name: dict(amounts) for name, amounts in view.counters.items()}
    for device in uses:
        for name, amounts in view.consumers.get(device, {}).items():
            for counter, amount in amounts.items():
                if counter in left.get(name, ()):
                    left[name][counter] -= amount
    return tuple((name, tuple(amounts.items())) for name, amounts in left.items())


def _common_groups(devices: Iterable[GroupsBySet]) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the groups that allocated devices of a pool have in common, by counter set."""
    found: dict[str, frozenset[str]] = {}
    for sets in devices:
        for name, groups in sets.items():
            known = found.get(name)
            # Devices that do not go together can only be there if their slice was changed.
            found[name] = groups if known is None else known & groups if known and groups else known
    return tuple(sorted(found.items()))
