"""Waiting for what processes do; the processes themselves are ``proreus.bench.processes``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(seconds: float, what: str, probe: Callable[[], T], every: float = 0.1) -> T:
    """Return the first true answer of ``probe``; after ``seconds`` say ``what`` is missing."""
    deadline = time.monotonic() + seconds
    while True:
        if answer := probe():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {seconds} s: {what}")
        time.sleep(every)
