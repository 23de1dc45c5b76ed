"""Polling for conditions. (The processes themselves are ``proreus.workbench.bench.processes``.)"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(seconds: float, what: str, probe: Callable[[], T], every: float = 0.1) -> T:
    """Call ``probe`` until it returns a true value, and return that.

    Raises ``AssertionError`` that names ``what`` after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        if answer := probe():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {seconds} s: {what}")
        time.sleep(every)
