"""Shapes of score functions, with Go's division."""

from __future__ import annotations

import pytest

from proreus.plugins.resource_scoring import broken_linear

FALLING = [(0, 100), (80, 0)]
HILL = [(20, 20), (60, 100), (90, 40)]


@pytest.mark.parametrize(
    ("shape", "at", "value"),
    [(FALLING, at, value) for at, value in ((0, 100), (33, 59), (50, 38), (80, 0), (90, 0))]
    + [
        (HILL, at, value)
        for at, value in (
            (0, 20),
            (20, 20),
            (33, 46),
            (60, 100),
            (61, 98),
            (75, 70),
            (90, 40),
            (100, 40),
        )
    ],
)
def test_broken_linear(shape: list[tuple[int, int]], at: int, value: int) -> None:
    assert broken_linear(shape, at) == value
