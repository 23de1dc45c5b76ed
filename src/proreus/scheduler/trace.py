"""What took so long: the steps of a search that lasted unusually long, in the log.

kube-scheduler's utiltrace: the whole is told of when it took a tenth of a second or more, and of
its steps those that took more than their share.
"""

from __future__ import annotations

from time import perf_counter

from proreus.logs import logger

log = logger(__name__)

LONG_SECONDS = 0.1


class Trace:
    """The times of one operation's steps. Made for each pod: it must cost next to nothing."""

    __slots__ = ("_began", "_steps")

    def __init__(self) -> None:
        self._began = perf_counter()
        self._steps: list[tuple[str, float]] = []

    def step(self, name: str) -> None:
        """Note that a step is done."""
        self._steps.append((name, perf_counter()))

    def log_if_long(self, name: str, pod: str) -> None:
        """Tell of the operation if it took long, with -v 2 or more."""
        seconds = perf_counter() - self._began
        if seconds < LONG_SECONDS or not log.v(2):
            return
        share = LONG_SECONDS / (len(self._steps) + 1)
        slow, last = [], self._began
        for step, at in self._steps:
            if at - last >= share or log.v(4):
                slow.append(f"{step}: {_milliseconds(at - last)}")
            last = at
        log.v(2).info(
            "Trace", name=name, pod=pod, totalTime=_milliseconds(seconds), steps=", ".join(slow)
        )


def _milliseconds(seconds: float) -> str:
    return f"{int(seconds * 1000)}ms"
