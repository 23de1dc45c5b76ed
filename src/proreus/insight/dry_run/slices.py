"""Works in slices, so that the event loop does other work in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

SLICE_SECONDS = 0.004
_REST_FACTOR = 3
"""The length of a rest, in slices, while pods wait to be scheduled."""


class Slices:
    """Divides work on the event loop into slices.

    ``busy``: whether the scheduler has pods to schedule; then it gets most of the time.
    """

    def __init__(
        self, busy: Callable[[], bool] = lambda: False, slice_seconds: float = SLICE_SECONDS
    ) -> None:
        self._busy = busy
        self._slice_seconds = slice_seconds
        self._began = perf_counter()

    async def pause_if_due(self) -> None:
        """Let other work have a turn if the slice has taken long enough."""
        spent = perf_counter() - self._began
        if spent >= self._slice_seconds:
            await asyncio.sleep(_REST_FACTOR * spent if self._busy() else 0)
            self._began = perf_counter()
