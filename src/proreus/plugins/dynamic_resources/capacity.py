"""How much of a device's capacity a request consumes (KEP-5075). Amounts are nano-units.

Example: policy ``validRange`` min 4Gi, step 2Gi, max 40Gi, default 8Gi. A request without an amount
consumes 8Gi, one for 1Gi consumes 4Gi, 5Gi becomes 6Gi, and 41Gi, which would be 42Gi, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.objects.devices import CapacityRequestPolicy
from proreus.objects.quantity import NANO, parse_quantity, whole_value
from proreus.plugins.dynamic_resources.devices import Capacity, DeviceKind

Amounts = Mapping[str, int]

_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("k", "M", "G", "T", "P", "E")


_MAX_INT64 = 2**63 - 1
_NOT_REPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"


class CapacityError(Exception):
    """An amount that cannot be computed: kube-scheduler gives the attempt up."""


def consumed_capacities(
    kind: DeviceKind, requested: Amounts, *, must_be_representable: bool = True
) -> dict[str, int] | None:
    """Return how much would be consumed of each capacity of a device.

    None: the device lacks one of those that are requested, or its policy forbids an amount.
    ``must_be_representable``: raise ``CapacityError`` for amounts beyond Go's int64, and negative
    ones; up to 1.36 the device was passed over (``Change.ALLOCATOR_OF_1_37``).
    """
    # Of a capacity that is not requested, the default is consumed, or all of it: a share that names
    # no amount would otherwise be free, and any number of them would fit.
    if any(name not in kind.capacity for name in requested):
        return None
    amounts = {
        name: consumed_amount(capacity, requested.get(name))
        for name, capacity in kind.capacity.items()
    }
    # All of them before any policy: which of two faults counts must not depend on their order.
    if must_be_representable:
        for name, capacity in kind.capacity.items():
            _check_amount(name, capacity, requested.get(name), amounts[name])
    if not all(_allowed(kind.capacity[name].policy, amounts[name]) for name in amounts):
        return None
    return amounts


def _check_amount(name: str, capacity: Capacity, requested: int | None, amount: int) -> None:
    """Raise ``CapacityError`` for an amount that cannot be represented, or is negative."""
    bounds = None if capacity.policy is None else capacity.policy.valid_range
    rounded = bounds is not None and bounds.step is not None
    least = parse_quantity(bounds.min) if bounds is not None and bounds.min is not None else None
    # Steps are counted in int64; amounts below the minimum are the minimum, without counting.
    if requested is not None and rounded and least is not None and requested >= least:
        text = quantity_text(requested, "")
        if requested > _MAX_INT64 * NANO:
            fault = f"{_NOT_REPRESENTABLE}: request {text} exceeds MaxInt64"
            raise CapacityError(f'capacity "{name}": {fault}')
        if amount > _MAX_INT64 * NANO:
            fault = f"{_NOT_REPRESENTABLE}: rounding request {text} up to the next step"
            raise CapacityError(f'capacity "{name}": {fault} passes MaxInt64')
    if amount < 0:
        raise CapacityError(f'capacity "{name}": capacity value is negative')


def consumed_amount(capacity: Capacity, requested: int | None) -> int:
    """Return how much of one capacity is consumed for a requested amount; None: not requested.

    May be more than the policy allows. ``calculateConsumedCapacity`` upstream.
    """
    policy = capacity.policy
    if requested is None:
        if policy is not None and policy.default is not None:
            return parse_quantity(policy.default)
        return capacity.value
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        low = parse_quantity(policy.valid_range.min)
        if requested < low:
            return low
        if policy.valid_range.step is None:
            return requested
        # Steps are counted in whole units (Quantity.Value() upstream, which rounds up), so that
        # fractions of a unit consume the whole.
        step = whole_value(parse_quantity(policy.valid_range.step))
        if step == 0:
            return requested
        beyond = whole_value(requested) - whole_value(low)
        # Rounded up: the request must get what it needs.
        return (whole_value(low) + -(-beyond // step) * step) * NANO
    for value in sorted(map(parse_quantity, policy.valid_values)):
        if value >= requested:
            return value
    return requested


def _allowed(policy: CapacityRequestPolicy | None, amount: int) -> bool:
    """Return whether a policy allows that an amount is consumed."""
    if policy is None:
        return True
    # The default need not be in the range or among the values.
    if policy.default is not None and amount == parse_quantity(policy.default):
        return True
    bounds = policy.valid_range
    if bounds is not None:
        if bounds.max is not None and amount > parse_quantity(bounds.max):
            return False
        if bounds.step is not None and bounds.min is not None:
            step = whole_value(parse_quantity(bounds.step))
            beyond = whole_value(amount) - whole_value(parse_quantity(bounds.min))
            return not step or beyond % step == 0
        return True
    if policy.valid_values:
        return any(amount == parse_quantity(value) for value in policy.valid_values)
    return True


def has_capacity(kind: DeviceKind, amounts: Amounts, consumed: Amounts, more: Amounts) -> bool:
    """Return whether amounts fit next to what is ``consumed`` and ``more``, by name of capacity."""
    return all(
        consumed.get(name, 0) + more.get(name, 0) + amount <= kind.capacity[name].value
        for name, amount in amounts.items()
    )


def quantity_text(nano: int, like: str | int | float) -> str:
    """Format a quantity exactly, with binary or decimal suffixes as in another one."""
    # As Quantity.String() upstream: it keeps the format of the text that it was parsed from, and
    # users compare the consumed capacity in a claim's status with that in the ResourceSlice.
    if nano % NANO:
        for suffix, size in (("m", 10**6), ("u", 10**3)):
            if nano % size == 0:
                return f"{nano // size}{suffix}"
        return f"{nano}n"
    value = nano // NANO
    suffixes, base = (_BINARY, 1024) if str(like).endswith("i") else (_DECIMAL, 1000)
    suffix = ""
    for larger in suffixes:
        if not value or value % base:
            break
        value, suffix = value // base, larger
    return f"{value}{suffix}"
