"""Work of low priority, in slices between which the event loop does everything else."""

from __future__ import annotations

import asyncio
from time import perf_counter

from proreus.framework.attempt_budget import Stopwatch

SLICE_SECONDS = 0.003
PAUSE_SECONDS = 0.01


class TimeSlices:
    """Pauses work whose current slice has taken long enough."""

    def __init__(self, stopwatch: Stopwatch = perf_counter) -> None:
        self._stopwatch = stopwatch
        self._began = stopwatch()

    async def checkpoint(self) -> None:
        """Let the event loop turn, and pause, if ``SLICE_SECONDS`` have passed since the last time.

        To be awaited often: one step between two calls is what a slice may exceed its length by.
        """
        if self._stopwatch() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(PAUSE_SECONDS)
            self._began = self._stopwatch()

    def restart(self) -> None:
        """Begin a new slice: the caller has just awaited something else."""
        self._began = self._stopwatch()
