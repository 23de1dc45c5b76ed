"""How much of a device's capacity a request consumes (KEP-5075).

A request may ask for an amount; the device's policy rounds it up, or has a default. Amounts are
nano-units.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.objects.devices import CapacityRequestPolicy
from proreus.objects.quantity import NANO, parse_quantity, whole_value
from proreus.plugins.dynamic_resources.devices import Capacity, DeviceKind

Amounts = Mapping[str, int]

_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("k", "M", "G", "T", "P", "E")


def consumed_capacities(kind: DeviceKind, requested: Amounts) -> dict[str, int] | None:
    """Return what a device would give of each of its capacities.

    None: the device lacks something that is asked for, or may not give such an amount.
    """
    if any(name not in kind.capacity for name in requested):
        return None
    amounts = {}
    for name, capacity in kind.capacity.items():
        amount = consumed_amount(capacity, requested.get(name))
        if not _allowed(capacity.policy, amount):
            return None
        amounts[name] = amount
    return amounts


def consumed_amount(capacity: Capacity, requested: int | None) -> int:
    """Return what is consumed of one capacity when so much is asked for (None: nothing named)."""
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
        # Steps are counted in whole units, as in kube-scheduler.
        step = whole_value(parse_quantity(policy.valid_range.step))
        if step == 0:
            return requested
        beyond = whole_value(requested) - whole_value(low)
        return (whole_value(low) + -(-beyond // step) * step) * NANO
    for value in sorted(map(parse_quantity, policy.valid_values)):
        if value >= requested:
            return value
    return requested


def _allowed(policy: CapacityRequestPolicy | None, amount: int) -> bool:
    """Tell whether a policy lets a device give an amount."""
    if policy is None:
        return True
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
    """Tell whether amounts can be had beside what is consumed already, and ``more`` of it."""
    return all(
        consumed.get(name, 0) + more.get(name, 0) + amount <= kind.capacity[name].value
        for name, amount in amounts.items()
    )


def quantity_text(nano: int, like: str | int | float) -> str:
    """Spell a quantity, binary or decimal like another one, without losing anything."""
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
