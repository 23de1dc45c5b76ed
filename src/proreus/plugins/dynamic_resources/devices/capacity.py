"""The amount of a device's capacity that a request consumes (KEP-5075), in nano-units.

Example: policy ``validRange`` min 4Gi, step 2Gi, max 40Gi, default 8Gi. A request without an amount
consumes 8Gi, one for 1Gi consumes 4Gi, 5Gi becomes 6Gi, and 41Gi, which would be 42Gi, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from proreus.base.int64 import MAX_INT64
from proreus.objects.devices import CapacityRange, CapacityRequestPolicy, QuantityText
from proreus.objects.quantity import NANO, parse_quantity, whole_value
from proreus.plugins.dynamic_resources.devices.kinds import Capacity, DeviceKind, by_capacity
from proreus.plugins.dynamic_resources.features import Features

Amounts = Mapping[str, int]
Amount = tuple[int, QuantityText]
"""Nano-units, and a quantity in whose format they are written."""
Requested = Mapping[str, QuantityText]
"""Requested amounts by capacity, as they are written in the claim."""

MILLI = 10**6
"""Nano-units of a milli-unit."""

_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("k", "M", "G", "T", "P", "E")
_EXPONENT = re.compile(r"[eE][+-]?\d+$")
_BINARY_QUANTITY = "1Ki"

_NEGATIVE = "capacity value is negative"
_NOT_REPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"


class CapacityError(Exception):
    """An amount that cannot be computed: kube-scheduler gives the attempt up."""


def consumed_capacities(
    kind: DeviceKind, requested: Requested, features: Features
) -> dict[str, int] | None:
    """Return the amount of each capacity of a device that would be consumed.

    None if the device lacks one that is requested, or its policy forbids an amount. Raises
    ``CapacityError`` for amounts beyond Go's int64, and negative ones; up to 1.36 the device was
    passed over (``Change.ALLOCATOR_OF_1_37``). ``requested``: by name as written in the claim.
    """
    wanted = by_capacity(requested, kind.driver, features)
    # Of a capacity that is not requested, the default is consumed, or all of it: a share that names
    # no amount would otherwise be free, and any number of them would fit.
    if any(name not in kind.capacity for name in wanted):
        return None
    if len(wanted) < len(requested):
        raise CapacityError(_requested_twice(requested, kind.driver))
    amounts = {
        name: consumed_as_written(capacity, wanted.get(name), features)[0]
        for name, capacity in kind.capacity.items()
    }
    # All of them before any policy: which of two faults counts must not depend on their order.
    if features.allocator_of_1_37:
        for name, capacity in kind.capacity.items():
            fault = _fault(capacity, wanted.get(name), amounts[name], features)
            if fault:
                raise CapacityError(f'capacity "{name}": {fault}')
    if not all(_allowed(kind.capacity[name].policy, amounts[name], features) for name in amounts):
        return None
    return amounts


def _requested_twice(requested: Requested, driver: str) -> str:
    names = [name for name in requested if "/" not in name and f"{driver}/{name}" in requested]
    return f'capacity "{names[0]}" requested both as "{names[0]}" and as "{driver}/{names[0]}"'


def _fault(
    capacity: Capacity, requested: QuantityText | None, amount: int, features: Features
) -> str:
    """Return the fault of an amount: not representable, or negative; "" if there is none."""
    # Before it is rounded: a policy could make a valid amount of it.
    if features.allocator_of_1_38 and requested is not None and parse_quantity(requested) < 0:
        return f"{_NEGATIVE}: request {quantity_text(parse_quantity(requested), requested)}"
    bounds = None if capacity.policy is None else capacity.policy.valid_range
    rounded = bounds is not None and bounds.step is not None
    least = parse_quantity(bounds.min) if bounds is not None and bounds.min is not None else None
    # Steps are counted in int64; amounts below the minimum are the minimum, without counting.
    if requested is not None and rounded and least is not None:
        assert bounds is not None
        nano = parse_quantity(requested)
        text = quantity_text(nano, requested)
        milli = _in_milli_units(bounds, features)
        limit = MAX_INT64 * (MILLI if milli else NANO)
        fault = ""
        if nano >= least:
            if milli and (nano % MILLI or nano > limit):
                fault = f"request {text} is not a representable milli value"
            elif nano > limit:
                fault = f"request {text} exceeds MaxInt64"
            elif amount > limit:
                passes = "the milli-value range" if milli else "MaxInt64"
                fault = f"rounding request {text} up to the next step passes {passes}"
        if fault:
            return f"{_NOT_REPRESENTABLE}: {fault}"
    return _NEGATIVE if amount < 0 else ""


def consumed_as_written(
    capacity: Capacity, requested: QuantityText | None, features: Features
) -> Amount:
    """Return the amount of one capacity that is consumed; ``requested`` is None without a request.

    May be more than the policy allows. ``calculateConsumedCapacity`` upstream.
    """
    policy = capacity.policy
    if requested is None:
        default = None if policy is None else policy.default
        source = capacity.text if default is None else default
        return parse_quantity(source), source
    amount = parse_quantity(requested)
    if policy is None:
        return amount, requested
    bounds = policy.valid_range
    if bounds is not None and bounds.min is not None:
        low = parse_quantity(bounds.min)
        if amount < low:
            return low, bounds.min
        if bounds.step is None:
            return amount, requested
        # Up to 1.36 always binary.
        source = bounds.step if features.allocator_of_1_37 else _BINARY_QUANTITY
        if _in_milli_units(bounds, features):
            unit = MILLI
            steps = parse_quantity(bounds.step) // unit
            beyond = (amount - low) // unit
        else:
            # Steps are counted in whole units (Quantity.Value() upstream, which rounds up), so that
            # fractions of a unit consume the whole.
            unit = NANO
            steps = whole_value(parse_quantity(bounds.step))
            low = whole_value(low) * unit
            beyond = whole_value(amount) - low // unit
        if steps == 0:
            return amount, requested
        # Rounded up: the request must get what it needs.
        return low + -(-beyond // steps) * steps * unit, source
    for value, text in sorted((parse_quantity(text), text) for text in policy.valid_values):
        if value >= amount:
            return value, text
    return amount, requested


def _in_milli_units(bounds: CapacityRange, features: Features) -> bool:
    """Return whether steps of a range are counted in milli-units, not whole ones (useMilli)."""
    if not features.fractional_capacity_range:
        return False
    amounts = [
        parse_quantity(text) for text in (bounds.min, bounds.max, bounds.step) if text is not None
    ]
    if any(amount % MILLI or amount > MAX_INT64 * MILLI for amount in amounts):
        return False
    return bounds.step is None or parse_quantity(bounds.step) >= MILLI


def _allowed(policy: CapacityRequestPolicy | None, amount: int, features: Features) -> bool:
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
            step, low = parse_quantity(bounds.step), parse_quantity(bounds.min)
            if _in_milli_units(bounds, features):
                return (amount - low) % step == 0
            step = whole_value(step)
            beyond = whole_value(amount) - whole_value(low)
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


def quantity_text(nano: int, like: QuantityText) -> str:
    """Format a quantity exactly, in the format of another one: binary, decimal or with exponent."""
    # As Quantity.String() upstream: it keeps the format of the text that it was parsed from, and
    # users compare the consumed capacity in a claim's status with that in the ResourceSlice.
    exponents = _EXPONENT.search(str(like)) is not None
    if nano % NANO:
        for suffix, exponent, size in (("m", 3, MILLI), ("u", 6, 1000), ("n", 9, 1)):
            if nano % size == 0:
                return f"{nano // size}e-{exponent}" if exponents else f"{nano // size}{suffix}"
    value = nano // NANO
    # Binary amounts below 1Ki are written as decimal ones.
    binary = str(like).endswith("i") and abs(value) >= 1024
    base = 1024 if binary else 1000
    thousands = 0
    while value and value % base == 0 and thousands < len(_BINARY):
        value, thousands = value // base, thousands + 1
    if not thousands:
        return str(value)
    if exponents:
        return f"{value}e{3 * thousands}"
    return f"{value}{(_BINARY if binary else _DECIMAL)[thousands - 1]}"
