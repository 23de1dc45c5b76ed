"""Limits the writes in flight by a window that grows while the apiserver is well, and shrinks.

The algorithm is Gradient2 of Netflix's concurrency-limits. After each round (as many responses as
the window allows), the latency of the round is compared with its long-term average:

    gradient = tolerance * long-term / latest, between 0.5 and 1
    window   = window * gradient + 4, a fifth of the way

So latency that rises by more than half shrinks the window, and otherwise it grows. But latency
that does not come from load (a slow webhook, a slow disk) would shrink it all the same, and then
binds a few pods a second: for latency alone it stays as large as 50 requests a second need,
kube-scheduler's default rate, up to its initial size. What the
apiserver rejects as too much (429, by Priority and Fairness) or cannot complete (503, 504, no
response) halves it at once, as in TCP, but once a round: the other responses of that round belong
to the same event.

A namespace may have an admission webhook of its own that takes long or never answers. That is not
the apiserver's fault, and must hold up no other namespace:

- The latency of a round is the median of its namespaces' means. A write without a response does
  not count where a later one of another namespace had one.
- A write that has been in flight for a second gives its place in the window to others. Its
  namespace may hold only as many places in the window as are left then.
- It still counts in flight. Of 512 places (twice the largest window) a namespace may hold as many
  as are left: one whose writes hang has 256, two have 170 each, and as many are left.

Writes that wait have two priorities. Events come after everything else, but one in 16 turns is
theirs, or under a lasting load none would ever be written. Within a priority namespaces take turns.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from enum import IntEnum
from statistics import median_low
from typing import Literal

from msgspec import Struct

from proreus.base.logs import logger
from proreus.base.repeated_failures import FailureBackoff, LineLimit

log = logger(__name__)

_TOLERANCE = 1.5
_GROWTH = 4.0
_SMOOTHING = 0.2
_LONG_TERM_ROUNDS = 100
_RECOVERY = 0.95
_USUAL_RATE = 50.0
_TURNS = 16
SLOW_SECONDS = 1.0
"""After this time a write gives its place in the window to others."""
_MANY_SLOW = 8
_REPORT_SECONDS = 600.0

Reason = Literal["latency", "rejected", "unanswered"]


class Priority(IntEnum):
    """The order in which waiting writes are sent."""

    NORMAL = 0
    LOW = 1


class _Share(Struct, eq=False):
    """The writes of a namespace that are in flight, and how many of these count in the window."""

    in_flight: int = 0
    quick: int = 0


class WritePlace(Struct, eq=False):
    """The place of a write in the window. ``granted`` is done once the write may be sent."""

    namespace: str
    priority: Priority
    granted: asyncio.Future[None] | None = None
    held: bool = False
    quick: bool = False
    """Whether it counts in the window: it is held, and has not been for long."""
    since: float = 0.0


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
        self._most = 2 * largest
        self.now = now
        self.in_flight = 0
        self.shrinks: Counter[Reason] = Counter()
        """The number of times that the window was made smaller, by reason."""
        self._shares: dict[str, _Share] = {}
        """The writes of each namespace that has one in flight."""
        self._quick: dict[WritePlace, None] = {}
        """The places that count in the window, the oldest first."""
        self._quick_normal = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None
        self._slow_reported: FailureBackoff[tuple[str, str]] = FailureBackoff(
            _REPORT_SECONDS, _REPORT_SECONDS, now
        )
        self._slow_lines = LineLimit(now=now)
        self._waiting: tuple[dict[str, deque[WritePlace]], ...] = ({}, {})
        self._turn = 0
        self._long_term_seconds = 0.0
        self._halved_at = -math.inf
        self._answered: dict[str, float] = {}
        """When the latest write was sent that had a response, of the last two namespaces."""
        self._begin_round()

    @property
    def limit(self) -> int:
        """The number of writes that may be in flight now, without slow ones."""
        return int(self._limit)

    def waiting(self, priority: Priority) -> int:
        """Return how many writes of a priority wait for their turn."""
        return sum(map(len, self._waiting[priority].values()))

    async def wait_until_idle(self, at_most_seconds: float) -> None:
        """Return when no write of normal priority is in flight, or after ``at_most_seconds``.

        Writes that take long do not count.
        """
        if not self._quick_normal:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_seconds):
                await self._idle.wait()

    @asynccontextmanager
    async def place_for_others(self, place: WritePlace) -> AsyncIterator[None]:
        """Give the place that is held to others while the block runs, and wait for one then."""
        self.release(place)
        yield
        await self.acquire(place)

    async def acquire(self, place: WritePlace) -> None:
        """Wait for a place; ``release`` must follow."""
        if not any(self._waiting) and self._has_room(place.namespace):
            self._take(place)
            return
        if not self._share_is_used_up(place.namespace):
            # The window holds writes up: only then is a larger one of use.
            self._limited = True
        granted = place.granted = asyncio.get_running_loop().create_future()
        queue = self._waiting[place.priority].setdefault(place.namespace, deque())
        queue.append(place)
        self._admit()
        try:
            await granted
        except asyncio.CancelledError:
            # It may have been given the place in the same tick.
            self.release(place)
            # Another write's ``release`` in the same tick may have dropped it already.
            with suppress(ValueError):
                queue.remove(place)
            if not queue and self._waiting[place.priority].get(place.namespace) is queue:
                del self._waiting[place.priority][place.namespace]
            raise

    def release(self, place: WritePlace) -> None:
        """Give a place back, if it is held."""
        if not place.held:
            return
        place.held = False
        self.in_flight -= 1
        share = self._shares[place.namespace]
        share.in_flight -= 1
        if not share.in_flight:
            del self._shares[place.namespace]
        if place.quick:
            self._leave_window(place, share)
        if any(self._waiting):
            self._admit()

    # ---- responses of the apiserver ------------------------------------------------------------

    def answered(self, seconds: float, namespace: str) -> None:
        """Record a response that says nothing about load, and how long it took."""
        self._count += 1
        responses = self._round.setdefault(namespace, [0, 0.0])
        responses[0] += 1
        responses[1] += seconds
        sent_at = max(self._answered.pop(namespace, -math.inf), self.now() - seconds)
        self._answered[namespace] = sent_at
        if len(self._answered) > 2:
            del self._answered[next(iter(self._answered))]
        if self._count >= self._limit:
            self._end_round()

    def overloaded(self, reason: Reason, sent_at: float, namespace: str) -> None:
        """Record that the apiserver did not take a request that was sent at a time of ``now``."""
        # It was sent before the window was halved last: that was for the same event.
        if sent_at <= self._halved_at:
            return
        others = (at for name, at in self._answered.items() if name != namespace)
        if reason == "unanswered" and any(at > sent_at for at in others):
            return
        self._halved_at = self.now()
        self._shrink(self._limit / 2, reason)
        self._begin_round()

    def _end_round(self) -> None:
        latest = median_low(seconds / count for count, seconds in self._round.values())
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
        self._round: dict[str, list[float]] = {}
        """The number of responses and the sum of their seconds, by namespace."""
        self._limited = any(self._next_namespace(one) is not None for one in self._waiting)

    # ---- turns ---------------------------------------------------------------------------------

    def _has_room(self, namespace: str) -> bool:
        return len(self._quick) < self.limit and not self._share_is_used_up(namespace)

    def _share_is_used_up(self, namespace: str) -> bool:
        share = self._shares.get(namespace)
        if share is None:
            return self.in_flight >= self._most
        if share.in_flight > share.quick >= self.limit - len(self._quick):
            return True
        return share.in_flight >= self._most - self.in_flight

    def _take(self, place: WritePlace) -> None:
        place.held = place.quick = True
        self.in_flight += 1
        share = self._shares.get(place.namespace)
        if share is None:
            share = self._shares[place.namespace] = _Share()
        share.in_flight += 1
        share.quick += 1
        loop = asyncio.get_running_loop()
        place.since = loop.time()
        self._quick[place] = None
        if place.priority is Priority.NORMAL:
            self._quick_normal += 1
            self._idle.clear()
        if self._timer is None:
            self._timer = loop.call_at(place.since + SLOW_SECONDS, self._look_for_slow)

    def _leave_window(self, place: WritePlace, share: _Share) -> None:
        place.quick = False
        share.quick -= 1
        del self._quick[place]
        if place.priority is Priority.NORMAL:
            self._quick_normal -= 1
            if not self._quick_normal:
                self._idle.set()

    def _look_for_slow(self) -> None:
        """Let the writes leave the window that have been in flight for long."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._quick:
            oldest = next(iter(self._quick))
            if oldest.since + SLOW_SECONDS > loop.time():
                self._timer = loop.call_at(oldest.since + SLOW_SECONDS, self._look_for_slow)
                break
            share = self._shares[oldest.namespace]
            self._leave_window(oldest, share)
            self._report_slow(oldest.namespace, share.in_flight)
        self._admit()

    def _report_slow(self, namespace: str, in_flight: int) -> None:
        """Log that many writes of a namespace take long."""
        if in_flight >= _MANY_SLOW and self._may_report(namespace, "slow"):
            log.warning(
                "The apiserver is slow to write in a namespace; writes to others continue. An "
                "admission webhook may hang",
                namespace=namespace,
                inFlight=in_flight,
            )

    def report_refusal(self, place: WritePlace, message: str) -> None:
        """Log the reason for the refusal of a slow write: the message names the admission
        webhook.
        """
        if not place.quick and self._may_report(place.namespace, "refused"):
            log.warning("A slow write was refused", namespace=place.namespace, err=message)

    def _may_report(self, namespace: str, what: str) -> bool:
        """Return whether a line may be logged: one in ten minutes for a namespace."""
        key = namespace, what
        if self._slow_reported.is_backing_off(key) or not self._slow_lines.allows():
            return False
        self._slow_reported.failed(key)
        return True

    def _admit(self) -> None:
        while len(self._quick) < self.limit and (place := self._next()) is not None:
            assert place.granted is not None
            self._take(place)
            place.granted.set_result(None)

    def _next(self) -> WritePlace | None:
        """Remove and return the place that is to be granted next; None where nobody may have it."""
        if not any(self._waiting):
            return None
        normal, low = self._waiting
        self._turn = (self._turn + 1) % _TURNS
        for waiting in (low, normal) if self._turn == 0 else (normal, low):
            while (namespace := self._next_namespace(waiting)) is not None:
                queue = waiting.pop(namespace)
                place = queue.popleft()
                # To the end: namespaces take turns.
                if queue:
                    waiting[namespace] = queue
                # A write that was cancelled in this tick is still here.
                if place.granted is not None and not place.granted.done():
                    return place
        return None

    def _next_namespace(self, waiting: Iterable[str]) -> str | None:
        # Few are passed over: each of those has many writes in flight.
        return next((name for name in waiting if not self._share_is_used_up(name)), None)
