"""An event loop whose time stands still until it is moved, for clusters in virtual time.

``asyncio.sleep``, time-outs and timers end when the time is moved beyond them. Nothing may wait for
the outside world: such a loop has no reason to return from a wait for a socket.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose ``time()`` is moved by ``move_to``, in seconds since its start."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0

    def time(self) -> float:
        """Return the virtual time."""
        return self._now

    def move_to(self, when: float) -> None:
        """Move the time on; timers that are due run in the next turns of the loop."""
        self._now = max(self._now, when)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function at a time, as every loop does."""
        handle = super().call_at(when, callback, *args, context=context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def next_timer(self) -> float | None:
        """Return when the next timer is due; None without one."""
        timers = self._timers
        while timers and (timers[0][2].cancelled() or timers[0][0] <= self._now):
            heapq.heappop(timers)
        return timers[0][0] if timers else None
