"""Exact Kubernetes quantities.

A quantity is an integer number of nano-units, the finest unit of the API. Sums are exact; the
conversion to int64 rounds up once, as ``resource.Quantity`` does.
"""

import re
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from functools import lru_cache

from proreus.base.bounded_cache import cleared_with_age
from proreus.base.int64 import MAX_INT64

NANO = 10**9
_NANO_PER_MILLI = 10**6

_FORM = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))"
)
_SUFFIX = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
} | {f"{letter}i": Decimal(1024 ** (n + 1)) for n, letter in enumerate("KMGTPE")}


_LARGE = Context(prec=40, rounding=ROUND_CEILING, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
"""Rounds up if there are too many digits, and takes exponents of any size: the result may be
infinite.
"""
_MOST = Decimal(MAX_INT64)
MOST = MAX_INT64 * NANO
"""The result of ``parse_quantity`` for an amount that is too large for an int64 of whole units."""
_MOST_SHOWN = 100


@cleared_with_age
@lru_cache(maxsize=65536)
def parse_quantity(text: str | int | float) -> int:
    """Return a quantity in nano-units; raises ``ValueError`` for an invalid text."""
    form = _FORM.fullmatch(str(text).strip())
    if form is None:
        shown = repr(text if len(str(text)) <= _MOST_SHOWN else f"{str(text)[:_MOST_SHOWN]}...")
        raise ValueError(
            f"quantity {shown} is not a number with an optional suffix such as m, k, Mi or Gi"
        )
    sign, digits, exponent, suffix = form.groups()
    number = _LARGE.create_decimal(digits + (exponent or ""))
    value = _LARGE.multiply(number, _SUFFIX[suffix or ""])
    if value > _MOST:
        value = _MOST
    nano = int(_LARGE.multiply(value, Decimal(NANO)).to_integral_value(ROUND_CEILING))
    return -nano if sign == "-" else nano


def whole_value(nano: int) -> int:
    """Convert nano-units to whole units, rounded up, within int64."""
    return max(-MAX_INT64 - 1, min(MAX_INT64, -(-nano // NANO)))


def milli_value(nano: int) -> int:
    """Convert nano-units to milli-units, rounded up, within int64."""
    return max(-MAX_INT64 - 1, min(MAX_INT64, -(-nano // _NANO_PER_MILLI)))


def value_of(resource: str, nano: int) -> int:
    """Convert to the unit in which a resource is counted: milli-units for cpu, else whole units."""
    return milli_value(nano) if resource == "cpu" else whole_value(nano)


@cleared_with_age
@lru_cache(maxsize=65536)
def parse_amount(resource: str, text: str | int | float) -> int:
    """Parse the quantity of a resource to the int64 in which it is counted (see ``value_of``)."""
    return value_of(resource, parse_quantity(text))


def amounts_of(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Parse a resource list, each quantity as by ``parse_amount``; raises ``ValueError``."""
    return {name: parse_amount(name, quantity) for name, quantity in quantities.items()}
