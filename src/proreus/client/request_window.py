"""How many writes may be in flight: a window that grows while the apiserver is well, and shrinks.

The algorithm is Gradient2 of Netflix's concurrency-limits. After each round (as many responses as
the window allows), the mean latency of the round is compared with its long-term average:

    gradient = tolerance * long-term / latest, between 0.5 and 1
    window   = window * gradient + 4, a fifth of the way

So latency that rises by more than half shrinks the window, and otherwise it grows. But latency
that does not come from load (a slow webhook, a slow disk) would shrink it all the same, and then
binds a few pods a second: for latency alone it stays as large as 50 requests a second need,
kube-scheduler's default rate, up to its initial size. What the
apiserver rejects as too much (429, by Priority and Fairness) or cannot complete (503, 504, no
response) halves it at once, as in TCP, but once a round: the other responses of that round belong
to the same event.

Writes that wait have two priorities. Events come after everything else, but one in 16 turns is
theirs, or under a lasting load none would ever be written.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import IntEnum
from typing import Literal

_TOLERANCE = 1.5
_GROWTH = 4.0
_SMOOTHING = 0.2
_LONG_TERM_ROUNDS = 100
_RECOVERY = 0.95
_USUAL_RATE = 50.0
_TURNS = 16

Reason = Literal["latency", "rejected", "unanswered"]


class Priority(IntEnum):
    """Which waiting write goes first."""

    NORMAL = 0
    LOW = 1


class RequestWindow:
    """The writes in flight at one apiserver, of all clients that share this object.

    ``smallest`` and ``largest`` limit the window, which begins with ``initial``. ``now`` returns
    seconds on a clock that does not go back.
    """

    def __init__(
        self,
        initial: int = 64,
        *,
        smallest: int = 4,
        largest: int = 256,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = self._initial = float(initial)
        self._smallest, self._largest = float(smallest), float(largest)
        self.now = now
        self.in_flight = 0
        self.shrinks: Counter[Reason] = Counter()
        """How often the window was made smaller, by reason."""
        self._waiting: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque())
        self._turn = 0
        self._long_term_seconds = 0.0
        self._halved_at = -math.inf
        self._begin_round()

    @property
    def limit(self) -> int:
        """How many writes may be in flight now."""
        return int(self._limit)

    def waiting(self, priority: Priority) -> int:
        """Return how many writes of a priority wait for their turn."""
        return len(self._waiting[priority])

    @asynccontextmanager
    async def turn(self, priority: Priority = Priority.NORMAL) -> AsyncIterator[None]:
        """Wait for a place in the window, and hold it."""
        await self.acquire(priority)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, priority: Priority) -> None:
        """Wait for a place in the window; ``release`` must follow."""
        if self.in_flight < self.limit and not any(self._waiting):
            self.in_flight += 1
            return
        # The window is what holds writes up: only then is it worth a larger one.
        self._limited = True
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[priority].append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # it was given the place in the same tick
            else:
                # Another write's ``release`` in the same tick may have dropped it already.
                with suppress(ValueError):
                    self._waiting[priority].remove(place)
            raise

    @asynccontextmanager
    async def place_for_others(self, priority: Priority) -> AsyncIterator[None]:
        """Give the place that is held to others while the block runs, and wait for one then."""
        self.release()
        try:
            yield
            await self.acquire(priority)
        except BaseException:
            # The caller gives it back, whatever happens.
            self.in_flight += 1
            raise

    def release(self) -> None:
        """Give a place back."""
        self.in_flight -= 1
        self._admit()

    # ---- what the apiserver says ---------------------------------------------------------------

    def answered(self, seconds: float) -> None:
        """Record a response that says nothing about load, and how long it took."""
        self._count += 1
        self._seconds += seconds
        if self._count >= self._limit:
            self._end_round()

    def overloaded(self, reason: Reason, sent_at: float) -> None:
        """Record that the apiserver did not take a request that was sent at a time of ``now``."""
        # It was sent before the window was halved last: that was for the same event.
        if sent_at <= self._halved_at:
            return
        self._halved_at = self.now()
        self._shrink(self._limit / 2, reason)
        self._begin_round()

    def _end_round(self) -> None:
        latest = self._seconds / self._count
        if not self._long_term_seconds:
            self._long_term_seconds = latest
        self._long_term_seconds += (latest - self._long_term_seconds) / _LONG_TERM_ROUNDS
        long_term = self._long_term_seconds
        # After a time of high latency the average is too high to notice the next one.
        if latest and long_term / latest > 2:
            self._long_term_seconds *= _RECOVERY
        needed = min(self._initial, _USUAL_RATE * latest)
        gradient = 1.0
        if latest and self._limit > needed:
            gradient = max(0.5, min(1.0, _TOLERANCE * long_term / latest))
        wanted = self._limit * gradient + _GROWTH
        limit = self._limit + (wanted - self._limit) * _SMOOTHING
        if limit < self._limit:
            self._shrink(max(limit, needed), "latency")
        elif self._limited:
            self._limit = min(limit, self._largest)
            self._admit()
        self._begin_round()

    def _shrink(self, limit: float, reason: Reason) -> None:
        self._limit = max(limit, self._smallest)
        self.shrinks[reason] += 1

    def _begin_round(self) -> None:
        self._count = 0
        self._seconds = 0.0
        self._limited = any(self._waiting)

    # ---- turns ---------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self.in_flight < self.limit and (place := self._next()) is not None:
            self.in_flight += 1
            place.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        normal, low = self._waiting
        self._turn = (self._turn + 1) % _TURNS
        for queue in (low, normal) if self._turn == 0 else (normal, low):
            while queue:
                place = queue.popleft()
                if not place.done():
                    return place
        return None
