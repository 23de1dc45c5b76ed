"""An event loop with the time of a clock that is advanced by hand, for clusters in virtual time.

So ``asyncio.sleep``, timeouts and ``call_later`` of plugins follow the virtual clock, like
back-offs and Permit. I/O is real, and proceeds while the clock stands still.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from typing import TypeVarTuple, Unpack

from proreus.base.clock import Clock, FakeClock

Ts = TypeVarTuple("Ts")

_MOST_ROUNDS = 10_000


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on a given clock; before ``use_clock`` its time stands still at 0."""

    def __init__(self) -> None:
        super().__init__()
        self._clock: Clock = FakeClock()
        self._origin = 0.0
        self._instants: list[float] = []
        self._calls = 0

    def use_clock(self, clock: Clock) -> None:
        """Take the time from a clock from now on."""
        self._clock, self._origin = clock, clock.monotonic()

    def time(self) -> float:
        """Return the seconds since ``use_clock``.

        Not since the epoch: asyncio adds the clock's resolution, a nanosecond, to find due timers,
        which is below the precision of so large a float.
        """
        return self._clock.monotonic() - self._origin

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback, and record its time; ``call_later`` uses this method too."""
        heapq.heappush(self._instants, when)
        return super().call_at(when, callback, *args, context=context)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback for the next iteration, and count it."""
        self._calls += 1
        return super().call_soon(callback, *args, context=context)

    def next_timer(self) -> float | None:
        """Return the clock's time of the next timer, even if it was cancelled; None if there is
        none."""
        while self._instants and self._instants[0] <= self.time():
            heapq.heappop(self._instants)
        return self._instants[0] + self._origin if self._instants else None

    async def run_until_idle(self) -> None:
        """Run until all tasks wait: for time, for I/O, or for each other.

        Raises ``RuntimeError`` if that does not happen.
        """
        quiet = 0
        for _ in range(_MOST_ROUNDS):
            before = self._calls
            await asyncio.sleep(0)
            # One call is our own wake-up. Callbacks of timers and sockets run after us in the same
            # iteration, so a single quiet iteration does not prove that all is idle.
            quiet = quiet + 1 if self._calls == before + 1 else 0
            if quiet == 2:
                return
        raise RuntimeError(
            f"something never waits: it is still busy after {_MOST_ROUNDS} rounds of the event loop"
            " (a plugin that polls with asyncio.sleep(0)?)"
        )
