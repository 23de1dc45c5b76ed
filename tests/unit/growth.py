"""How the work of a program grows: counted, so that it is the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

MOST_FOR_FOUR_TIMES = 6.0
"""Work that is linear grows fourfold, with what is sorted a little more; quadratic, sixteenfold."""


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python are executed, each turn of a comprehension one of them."""
    counted = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += 1
        return count

    before = sys.gettrace()
    gc.disable()  # finalizers of other tests' objects do not count
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return counted


def growth(prepare: Callable[[int], Callable[[], object]], number: int) -> float:
    """Return how many times the work grows from ``number`` objects to four times as many.

    ``prepare`` makes so many objects and returns the work with them, which alone is counted.
    """
    return steps(prepare(4 * number)) / steps(prepare(number))
