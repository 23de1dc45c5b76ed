"""Quantities and semantic versions in CEL, and Kubernetes' functions on them.

The evaluator selects overloads by runtime types and has no opaque types. So both are bytes, tagged
with their kind and with one form for each value: equal bytes mean equal values. The checker, which
has opaque types, keeps the two apart from each other and from real bytes; see ``environments``.

Example: ``quantity("1Gi")`` and ``quantity("1024Mi")`` are both ``b"q1073741824000000000"``, in
nano-units; ``semver("1.2.3+build")`` is ``b"v1.2.3"``.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal

from proreus.objects.quantity import NANO, parse_quantity

_QUANTITY_TAG = b"q"
_SEMVER_TAG = b"v"
_QUANTITY_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>[0-9]*\.?[0-9]*)"
    r"((?P<exponent>[eE][+-]?[0-9]+)|(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE]?))"
)
_POWERS_OF_TEN = {
    "": 0,
    "n": -9,
    "u": -6,
    "m": -3,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_LARGEST = Decimal("1e40")
"""The largest quantity; ``1e999999999`` in an expression would otherwise take all memory."""

_NUMBER = r"(0|[1-9][0-9]*)"
_WORDS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMVER_FORM = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_WORDS}))?(?:\+({_WORDS}))?")
_MAX_UINT64 = 2**64 - 1
_MOST_NANO = (2**63 - 1) * NANO
_EXACT = Context(prec=100)
_INT64 = range(-(2**63), 2**63)

Precedence = tuple[int, int, int, tuple[tuple[int, int, str], ...]]

_NO_OVERLOAD = "no such overload"


# ---- quantities --------------------------------------------------------------------------------


def quantity_value(nano: int) -> bytes:
    """Return a quantity, given in nano-units."""
    return b"q%d" % nano


def quantity(text: str) -> bytes:
    """Parse a quantity; raises ``ValueError``."""
    form = _QUANTITY_FORM.fullmatch(text)
    if not text or form is None:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    digits = "0" if form["digits"] in ("", ".") else form["digits"]  # Kubernetes accepts these
    # As resource.Quantity: with binary suffixes it is limited to 2^63 - 1, decimals are not.
    if form["binary"]:
        nano = parse_quantity(form["sign"] + digits + form["binary"])
        return quantity_value(max(-_MOST_NANO, min(nano, _MOST_NANO)))
    exponent = form["exponent"] or f"e{_POWERS_OF_TEN[form['decimal']]}"
    amount = _EXACT.multiply(min(Decimal(digits + exponent), _LARGEST), NANO)
    nano = int(amount.to_integral_value(ROUND_CEILING))
    return quantity_value(-nano if form["sign"] == "-" else nano)


def is_quantity(text: str) -> bool:
    """Return whether ``quantity`` accepts a text."""
    return bool(text) and _QUANTITY_FORM.fullmatch(text) is not None


def _nano(value: bytes) -> int:
    if value[:1] != _QUANTITY_TAG:
        raise ValueError(_NO_OVERLOAD)
    return int(value[1:])


def sign(value: bytes) -> int:
    """Return -1, 0 or 1."""
    nano = _nano(value)
    return (nano > 0) - (nano < 0)


def is_integer(value: bytes) -> bool:
    """Return whether ``as_integer`` succeeds."""
    nano = _nano(value)
    return nano % NANO == 0 and nano // NANO in _INT64


def as_integer(value: bytes) -> int:
    """Return a quantity in units; raises ``ValueError`` if that is no int64."""
    if not is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nano(value) // NANO


def as_approximate_float(value: bytes) -> float:
    """Return units as a float."""
    return _nano(value) / NANO


def add(value: bytes, other: bytes | int) -> bytes:
    """Add a quantity, or whole units."""
    return quantity_value(_nano(value) + _nano_of(other))


def sub(value: bytes, other: bytes | int) -> bytes:
    """Subtract a quantity, or whole units."""
    return quantity_value(_nano(value) - _nano_of(other))


def _nano_of(other: bytes | int) -> int:
    return other * NANO if isinstance(other, int) else _nano(other)


# ---- semantic versions -------------------------------------------------------------------------


def semver(text: str, normalize: bool = False) -> bytes:
    """Parse ``major.minor.patch[-pre][+build]``; raises ``ValueError``.

    ``normalize`` accepts a leading v, missing parts and leading zeros.
    """
    text = _normalized(text) if normalize else text
    form = _parse_semver(text)
    if form is None:
        raise ValueError(f"{text!r} is not a semantic version")
    major, minor, patch, pre, _ = form.groups()
    # Build metadata does not count in comparisons, so it is dropped: equal versions, equal bytes.
    plain = f"{major}.{minor}.{patch}"
    return b"v" + (f"{plain}-{pre}" if pre else plain).encode()


def is_semver(text: str, normalize: bool = False) -> bool:
    """Return whether ``semver`` accepts a text."""
    return _parse_semver(_normalized(text) if normalize else text) is not None


def _parse_semver(text: str) -> re.Match[str] | None:
    form = _SEMVER_FORM.fullmatch(text)
    if form is None or any(int(number) > _MAX_UINT64 for number in form.group(1, 2, 3)):
        return None
    numbers = [word for word in (form.group(4) or "").split(".") if word.isdigit()]
    bad = any(len(number) > 1 and number[0] == "0" for number in numbers)
    return None if bad or any(int(number) > _MAX_UINT64 for number in numbers) else form


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    parts = [_without_zeros(part) if len(part) > 1 else part for part in parts]
    if len(parts) < 3 and re.search("[+-]", parts[-1]):
        return ""  # Kubernetes refuses suffixes of a version with missing parts
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeros(part: str) -> str:
    bare = part.lstrip("0")
    return bare if bare[:1].isdigit() else "0" + bare


def _precedence(value: bytes) -> Precedence:
    if value[:1] != _SEMVER_TAG:
        raise ValueError(_NO_OVERLOAD)
    form = _SEMVER_FORM.fullmatch(value[1:].decode())
    assert form is not None
    major, minor, patch, pre, _ = form.groups()
    # semver.org, item 11: numbers before words, a pre-release before its release, fewer words
    # before more.
    words = tuple(
        (0, int(word), "") if word.isdigit() else (1, 0, word) for word in (pre or "").split(".")
    )
    return int(major), int(minor), int(patch), words if pre else ((2, 0, ""),)


def major(value: bytes) -> int:
    """Return the major version."""
    return _precedence(bytes(value))[0]


def minor(value: bytes) -> int:
    """Return the minor version."""
    return _precedence(bytes(value))[1]


def patch(value: bytes) -> int:
    """Return the patch version."""
    return _precedence(bytes(value))[2]


# ---- both --------------------------------------------------------------------------------------


def compare_to(value: bytes, other: bytes) -> int:
    """Compare two quantities or two versions; return -1, 0 or 1."""
    # The checker lets dyn values through, of which attributes are: a quantity may meet a version.
    if value[:1] != other[:1]:
        raise ValueError(_NO_OVERLOAD)
    if value[:1] == _QUANTITY_TAG:
        left, right = _nano(value), _nano(other)
        return (left > right) - (left < right)
    one, two = _precedence(bytes(value)), _precedence(bytes(other))
    return (one > two) - (one < two)
