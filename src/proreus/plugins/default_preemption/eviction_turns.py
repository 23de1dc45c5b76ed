"""The order in which many concurrent preemptions evict their victims.

The apiserver needs several milliseconds for each victim. If it were given those of all preemptions
at once, all would be done late, at about the same time, and no preemptor could be bound before.

An eviction that takes long, for an admission webhook of the victim's namespace that hangs, passes
its turn on after a second: 64 of them would stop the preemptions of everybody.

Example: two evictions at a time, preemptions 1 and 2 with three victims each. Those of preemption 1
come first, and its preemptor is tried again while the last victim of preemption 2 is evicted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count

_CONCURRENT_EVICTIONS = 64
"""The number of victims evicted at a time: as many as writes are in flight at first."""
_SLOW_SECONDS = 1.0


class EvictionTurns:
    """Limits concurrent evictions, and prefers the preemption that began first.

    An asyncio.Semaphore would take them in the order in which they came: a preemption that evicts
    its victims a few at a time would wait behind all others after each of them.
    """

    def __init__(self, concurrent: int = _CONCURRENT_EVICTIONS) -> None:
        self._free = concurrent
        self._preemptions, self._arrivals = count(), count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def next_preemption(self) -> int:
        """Return the number of a preemption that begins now, for ``turn``."""
        return next(self._preemptions)

    @asynccontextmanager
    async def turn(self, preemption: int) -> AsyncIterator[None]:
        """Wait until a victim of a preemption may be evicted, and count it as being evicted."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(preemption)
        held = True

        def pass_on() -> None:
            nonlocal held
            if held:
                held = False
                self._pass_on()

        slow = asyncio.get_running_loop().call_later(_SLOW_SECONDS, pass_on)
        try:
            yield
        finally:
            slow.cancel()
            pass_on()

    async def _wait(self, preemption: int) -> None:
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (preemption, next(self._arrivals), given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._pass_on()  # the turn was given in the same tick
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            given = heappop(self._waiting)[2]
            if not given.done():
                given.set_result(None)
                return
        self._free += 1
