"""An event loop whose time is a clock that tests move.

``asyncio.sleep``, timeouts and ``call_later`` of plugins then follow the virtual clock, as
back-offs and Permit do. I/O is real: it goes on while the clock stands still.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from typing import TypeVarTuple, Unpack

from proreus.clock import Clock, FakeClock

Ts = TypeVarTuple("Ts")

_MOST_ROUNDS = 10_000


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Follows a clock; until it is given one, time stands still at 0."""

    def __init__(self) -> None:
        super().__init__()
        self._clock: Clock = FakeClock()
        self._origin = 0.0
        self._instants: list[float] = []
        self._calls = 0

    def use_clock(self, clock: Clock) -> None:
        """Take the time from a clock."""
        self._clock, self._origin = clock, clock.now()

    def time(self) -> float:
        """Return the seconds since the clock was given.

        Not since the epoch: the event loop adds a nanosecond to see what is due, and so large a
        float would swallow it.
        """
        return self._clock.now() - self._origin

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call something later, and remember when; ``call_later`` comes here too."""
        heapq.heappush(self._instants, when)
        return super().call_at(when, callback, *args, context=context)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call something in the next round, and count that."""
        self._calls += 1
        return super().call_soon(callback, *args, context=context)

    def next_timer(self) -> float | None:
        """Return when, by the clock, something is due next, cancelled or not; None if nothing."""
        while self._instants and self._instants[0] <= self.time():
            heapq.heappop(self._instants)
        return self._instants[0] + self._origin if self._instants else None

    async def run_until_idle(self) -> None:
        """Let everything go on until all of it waits: for time, for I/O, or for each other."""
        quiet = 0
        for _ in range(_MOST_ROUNDS):
            before = self._calls
            await asyncio.sleep(0)
            # One call is the one that brought us back here. What timers and sockets call comes
            # after us in the same round, so that one quiet round is none.
            quiet = quiet + 1 if self._calls == before + 1 else 0
            if quiet == 2:
                return
        raise RuntimeError(
            f"something never waits: it is still busy after {_MOST_ROUNDS} rounds of the event loop"
            " (a plugin that polls with asyncio.sleep(0)?)"
        )
