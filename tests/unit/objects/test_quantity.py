"""Quantities: exact, rounded up once."""

from __future__ import annotations

import pytest

from proreus.objects.quantity import NANO, parse_amount, parse_quantity

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("1", NANO),
        ("+1", NANO),
        ("-1", -NANO),
        ("1.5", 1_500_000_000),
        (".5", 500_000_000),
        ("5.", 5 * NANO),
        ("100m", 100_000_000),
        ("1u", 1_000),
        ("1n", 1),
        ("1k", 1_000 * NANO),
        ("1M", 10**6 * NANO),
        ("1G", 10**9 * NANO),
        ("1T", 10**12 * NANO),
        ("1P", 10**15 * NANO),
        ("1Ki", 1024 * NANO),
        ("1.5Gi", 3 * 2**29 * NANO),
        ("1Ei", 2**60 * NANO),
        ("1e3", 1_000 * NANO),
        ("1E3", 1_000 * NANO),
        ("1e-3", 1_000_000),
        ("32e9", 32 * 10**9 * NANO),
        (2, 2 * NANO),
        (0.5, 500_000_000),
        # finer than the finest step: away from zero
        ("0.1n", 1),
        ("-0.1n", -1),
        ("1e-999999999", 1),
        ("0." + "0" * 100_000 + "1", 1),
        ("1.0000000000000000000000000000000001", NANO + 1),
        # larger than any amount, with exponents beyond those of Python's decimal numbers, too
        ("1e1000000", MAX * NANO),
        ("1e999999999", MAX * NANO),
        ("1e9999999999999999999999", MAX * NANO),
        ("-1e9999999999999999999999", -MAX * NANO),
        ("9" * 100_000, MAX * NANO),
        (1e300, MAX * NANO),
    ],
)
def test_parse_quantity(text: str | int | float, nano: int) -> None:
    assert parse_quantity(text) == nano


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "1 Gi", "Gi", ".", "1.2.3", "--1", "1e", "1ee3", "٣", float("inf")]
)
def test_rejects_invalid_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number with an optional suffix"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "1.0005", 1001),
        ("cpu", "0.1m", 1),
        ("memory", "1.5", 2),
        ("memory", "100m", 1),
        ("memory", "1Gi", 2**30),
        ("example.com/gpu", "3", 3),
        ("memory", "16E", MAX),
        ("memory", "1e30", MAX),
        ("cpu", "16E", MAX),
    ],
)
def test_amounts_are_rounded_up_and_stay_within_int64(
    resource: str, text: str, amount: int
) -> None:
    assert parse_amount(resource, text) == amount
