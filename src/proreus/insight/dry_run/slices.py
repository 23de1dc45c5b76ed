"""Works in slices, so that the event loop does other work in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

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
        self.pauses = 0
        """The number of turns of other work."""

    @property
    def due(self) -> bool:
        """Whether the slice has taken long enough."""
        return perf_counter() - self._began >= self._slice_seconds

    async def pause_if_due(self) -> None:
        """Let other work have a turn if the slice has taken long enough."""
        if self.due:
            await self.pause()

    async def pause(self) -> None:
        """Let other work have a turn."""
        self.pauses += 1
        spent = perf_counter() - self._began
        await asyncio.sleep(_REST_FACTOR * spent if self._busy() else 0)
        self._began = perf_counter()

    def begin(self) -> None:
        """Begin a slice: something else was awaited."""
        self._began = perf_counter()


async def run_in_slices(parts: Generator[None, None, T]) -> T:
    """Return the result of a generator; other work has turns where it yields."""
    slices = Slices()
    while True:
        try:
            next(parts)
        except StopIteration as end:
            value: T = end.value
            return value
        await slices.pause_if_due()
