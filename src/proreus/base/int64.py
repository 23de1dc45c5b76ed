"""Go's int64 for Python's integers, which have no limit."""

from __future__ import annotations

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)


def wrap(number: int) -> int:
    """Return the low 64 bits of a number, as after an overflow."""
    return (number + 2**63) % 2**64 - 2**63


def divide(number: int, by: int) -> int:
    """Return the quotient rounded towards zero, for a divisor above 0."""
    return number // by if number >= 0 else -(-number // by)
