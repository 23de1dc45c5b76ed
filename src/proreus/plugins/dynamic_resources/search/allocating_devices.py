"""The devices that one search has placed so far, and what they consume.

This is the state of kube-scheduler's ``allocateDevice`` and of the rollback function that it
returns: whatever ``allocate`` records, ``deallocate`` removes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from proreus.objects.devices import DeviceAttribute
from proreus.plugins.dynamic_resources.cel.attributes import compile_derived_attribute
from proreus.plugins.dynamic_resources.cel.expressions import CelError
from proreus.plugins.dynamic_resources.devices.allocated import Consumed
from proreus.plugins.dynamic_resources.devices.availability_index import DeviceAvailability
from proreus.plugins.dynamic_resources.devices.capacity import has_capacity
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind, Value, values_of
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError, quoted
from proreus.plugins.dynamic_resources.search.alternative import Alternative
from proreus.plugins.dynamic_resources.search.constraints import Constraint, UnsupportedValueError
from proreus.plugins.dynamic_resources.search.consumed_counters import ConsumedCounters
from proreus.plugins.dynamic_resources.search.prepared_claims import PreparedClaims

DevicePosition = tuple[int, int]
"""Position of a pool among a node's pools, and of a device in the pool."""


class DeviceAssignment(Struct, frozen=True):
    """A device for a request, by positions of pool and device.

    ``consumed``: nano-units by capacity if the device allows multiple allocations, else None.
    ``counters_consumed``: it consumed shared counters, as the first share of a device does.
    """

    alternative: Alternative
    pool: int
    device: int
    consumed: Mapping[str, int] | None
    counters_consumed: bool = False


class AllocatingDevices:
    """Devices in the process of being allocated; claims are counted by their position.

    ``assignments``: the devices of each claim, in the order in which they were placed. ``check`` is
    called before expressions are evaluated, and may raise.
    """

    def __init__(
        self,
        prepared: PreparedClaims,
        availability: DeviceAvailability,
        features: Features,
        check: Callable[[], None],
    ) -> None:
        self.assignments: list[list[DeviceAssignment]] = [[] for _ in prepared.claims]
        self._features = features
        self._check = check
        self._views = availability.views
        self._taken = [state.taken for state in availability.states]
        self._consumed_capacity: dict[DevicePosition, Consumed] = {
            (pool, device): consumed
            for pool, state in enumerate(availability.states)
            for device, consumed in state.consumed
        }
        self._constraints = [claim.new_constraints(features) for claim in prepared.claims]
        # The claims for which a device is being placed: several only with admin access.
        self._holders: dict[DevicePosition, set[int]] = {}
        self._allocating_capacity: dict[DevicePosition, dict[str, int]] = {}
        self._shares: dict[DevicePosition, int] = {}
        self._may_skip = availability.may_skip
        self._counters = ConsumedCounters(availability, features)

    # ---- checks --------------------------------------------------------------------------------

    def in_use(self, claim: int, one: Alternative, device: DevicePosition) -> bool:
        """Return whether a device is out of the question for a claim because somebody has it."""
        holders = self._holders.get(device)
        # Admin access may take what others have, but not one device twice within a claim: the
        # results of a claim would name it twice (allocatingDeviceForClaim upstream).
        if one.admin_access:
            return holders is not None and claim in holders
        return holders is not None or device[1] in self._taken[device[0]]

    def has_capacity(self, one: Alternative, device: DevicePosition, kind: DeviceKind) -> bool:
        """Return whether a device's capacity suffices (KEP-5075; CmpRequestOverCapacity)."""
        if not self._features.consumable_capacity:
            return True
        amounts = one.amounts(kind)
        if amounts is None:
            return False
        # A device that nobody else can have is checked, too: a request for more than it has, or
        # for an amount that its policy forbids, must not get it.
        if not kind.shared:
            return has_capacity(kind, amounts, {}, {})
        before = dict(self._consumed_capacity.get(device, ()))
        return has_capacity(kind, amounts, before, self._allocating_capacity.get(device, {}))

    def could_have_capacity(
        self, one: Alternative, device: DevicePosition, kind: DeviceKind
    ) -> bool:
        """Return whether a device counts for a request for all devices.

        One that is merely used up does, and makes the request fail; up to 1.36 it did not, and the
        other devices were allocated.
        """
        if not self._features.allocator_of_1_37:
            return self.has_capacity(one, device, kind)
        if not self._features.consumable_capacity:
            return True
        amounts = one.amounts(kind)
        return amounts is not None and has_capacity(kind, amounts, {}, {})

    # ---- placing and removing ------------------------------------------------------------------

    def allocate(self, claim: int, one: Alternative, device: DevicePosition) -> bool:
        """Place a device; return whether that was possible. A refused device is not placed.

        Raises ``AllocationError`` if a constraint refuses a device to a request for all devices, or
        an attribute cannot be derived.
        """
        pool, place = device
        kind = self._views[pool].devices[place].kind
        if self.in_use(claim, one, device) or not self._may_use_counters(kind):
            return False
        # Its driver has withdrawn allowMultipleAllocations; those that have shares keep them.
        alone = not kind.shared and not one.admin_access
        if alone and self._features.allocator_of_1_38 and device in self._consumed_capacity:
            return False
        # Its driver relies on what an older kubelet cannot do.
        if self._views[pool].devices[place].skips and not self._may_skip:
            return False
        # Before anything is placed: a further share is recognised by the ones before it.
        counters_needed = self._needs_counters(device, kind)
        if counters_needed and not self._counters.consume(pool, kind):
            return False
        if not one.tolerates(kind) or not self._add_to_constraints(claim, one, device, kind):
            if counters_needed:
                self._counters.release(pool, kind)
            return False
        # The caller has checked capacity already, for a request for all devices before the search:
        # an earlier request of this search may have consumed it since.
        if not self.has_capacity(one, device, kind):
            self._remove_from_constraints(claim, one)
            if counters_needed:
                self._counters.release(pool, kind)
            return False
        consumed: Mapping[str, int] | None = None
        if kind.shared:
            # Not held: another request, even of the same claim, may take a further share.
            consumed = one.amounts(kind) or {}
            self._shares[device] = self._shares.get(device, 0) + 1
            now = self._allocating_capacity.setdefault(device, {})
            for name, amount in consumed.items():
                now[name] = now.get(name, 0) + amount
        else:
            self._holders.setdefault(device, set()).add(claim)
        self.assignments[claim].append(
            DeviceAssignment(one, pool, place, consumed, counters_needed)
        )
        return True

    def deallocate(self, claim: int, one: Alternative, device: DevicePosition) -> None:
        """Remove the device that was placed last for a claim."""
        assignment = self.assignments[claim].pop()
        kind = self._views[device[0]].devices[device[1]].kind
        self._remove_from_constraints(claim, one)
        if assignment.consumed is not None:
            self._remove_share(device, assignment.consumed)
        else:
            holders = self._holders[device]
            holders.discard(claim)
            # ``in_use`` takes a present entry for a device that is held.
            if not holders:
                del self._holders[device]
        if assignment.counters_consumed:
            self._counters.release(device[0], kind)

    def _remove_share(self, device: DevicePosition, consumed: Mapping[str, int]) -> None:
        self._shares[device] -= 1
        now = self._allocating_capacity[device]
        for name, amount in consumed.items():
            now[name] -= amount
        # An entry of zeros would read as capacity in use, and counters would not be checked.
        if not self._shares[device]:
            del self._allocating_capacity[device]

    def _add_to_constraints(
        self, claim: int, one: Alternative, device: DevicePosition, kind: DeviceKind
    ) -> bool:
        constraints = self._constraints[claim]
        attributes = DerivedAttributes(one, kind, self._check) if one.derived else kind
        for place, constraint in enumerate(constraints):
            try:
                if constraint.add(one.request, one.subrequest, attributes):
                    continue
            except AllocationError as error:  # of a derived attribute; it ends the attempt
                raise error.at(*device) from None
            except UnsupportedValueError:
                raise self._unsupported_value(claim, one, constraint).at(*device) from None
            # The device is not placed, so those that accepted it must not remember it: a
            # matchAttribute would go on insisting on its value. The one that refused it, and those
            # behind, have not added it; removing it there would remove an earlier device.
            for earlier in constraints[:place]:
                earlier.remove(one.request, one.subrequest)
            # No other device can take its place where all are requested. Upstream takes such a
            # claim for a mistake and ends the attempt, instead of trying the next alternative.
            if one.all_devices:
                raise AllocationError(
                    f"claim {{claim}}, request {one.own_name}: cannot add device {{device}} "
                    "because a claim constraint would not be satisfied",
                    claim,
                    *device,
                )
            return False
        return True

    def _unsupported_value(
        self, claim: int, one: Alternative, constraint: Constraint
    ) -> AllocationError:
        # As a newer API may have it: to leave the device out could be to violate the constraint.
        whose = f"claim {{claim}}, request {one.own_name}: "
        attribute = quoted(constraint.attribute)
        return AllocationError(
            f"{whose if self._features.stable_allocator else ''}device {{device}}: unsupported "
            f"attribute value for {attribute}",
            claim,
        )

    def _remove_from_constraints(self, claim: int, one: Alternative) -> None:
        # Constraints do not know devices, only how many they accepted, so each ``add`` needs its
        # ``remove`` with the same request, last placed first removed.
        for constraint in self._constraints[claim]:
            constraint.remove(one.request, one.subrequest)

    def _may_use_counters(self, kind: DeviceKind) -> bool:
        # A partition given without its counters checked could overlap with another one.
        return self._features.partitionable_devices or not kind.consumes

    def _needs_counters(self, device: DevicePosition, kind: DeviceKind) -> bool:
        """Return whether the device has to consume its shared counters now (KEP-4815)."""
        if not kind.consumes:
            return False
        # The first share of a device consumes its counters, further ones are covered by that.
        shared = kind.shared and (
            device in self._consumed_capacity or device in self._allocating_capacity
        )
        return not shared


class DerivedAttributes:
    """A device as constraints see it for a request that derives attributes (DRADerivedAttributes).

    An attribute is looked up among those that the request derives, by name, and only then among
    those that the device has; selectors see the device's own only. ``check`` is called before each
    expression that is evaluated, and may raise.
    """

    __slots__ = ("_check", "_kind", "_request")

    def __init__(self, request: Alternative, kind: DeviceKind, check: Callable[[], None]) -> None:
        self._request = request
        self._kind = kind
        self._check = check

    def attribute_values(self, name: str, lists: bool) -> frozenset[Value]:
        """Return type and value of each value of an attribute; raises ``AllocationError``."""
        expression = self._request.derived.get(name)
        if expression is None:
            return self._kind.attribute_values(name, lists)
        return values_of(
            self._derive(name, expression), lists, self._kind.features.allocator_of_1_38
        )

    def _derive(self, name: str, expression: str) -> DeviceAttribute:
        self._check()
        error = compile_derived_attribute(expression).error
        if error:
            raise AllocationError(
                f"compile derived attribute {quoted(name)} failed: {quoted(error)}",
                self._request.claim,
            )
        try:
            return self._kind.derive(expression)
        except CelError as cel_error:
            raise AllocationError(
                f"evaluate derived attribute {quoted(name)} on device {{device}} failed: "
                f"{quoted(str(cel_error))}",
                self._request.claim,
            ) from None
