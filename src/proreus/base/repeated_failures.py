"""Failures that repeat: how long to wait before the next try, and how many lines they may log."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)

_MOST_KEYS = 10_000


class _Failures(Struct):
    count: int
    until: float


class FailureBackoff(Generic[K]):
    """Back-off by key: 1, 2, 4 … seconds (flowcontrol.Backoff of client-go).

    Whoever creates what fails decides on the keys: of more than ten thousand, the one that failed
    longest ago is forgotten. ``now`` returns seconds on a clock that does not go back.
    """

    def __init__(
        self, initial_seconds: float, max_seconds: float, now: Callable[[], float]
    ) -> None:
        self._initial = initial_seconds
        self._max = max_seconds
        self._now = now
        self._failures: OrderedDict[K, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def failed(self, key: K) -> tuple[int, float]:
        """Record a failure; return how many in a row it is, and the seconds until the next try."""
        before = self._failures.pop(key, None)
        now = self._now()
        # After so long without a try it is no longer the same failure.
        again = before is not None and now <= before.until + 2 * self._max
        count = before.count + 1 if before is not None and again else 1
        seconds = min(self._max, self._initial * 2.0 ** min(count - 1, 60))
        self._failures[key] = _Failures(count, now + seconds)
        if len(self._failures) > _MOST_KEYS:
            self._failures.popitem(last=False)
        return count, seconds

    def is_backing_off(self, key: K) -> bool:
        """Return whether it is too early for the next try."""
        return self.seconds_left(key) > 0

    def seconds_left(self, key: K) -> float:
        """Return the seconds until the next try; 0 if it may be now."""
        failures = self._failures.get(key)
        return 0.0 if failures is None else max(0.0, failures.until - self._now())

    def succeeded(self, key: K) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)


class RefusalPause(FailureBackoff[K]):
    """Pauses after writes that the apiserver refuses: 1, 2, 4 … up to 60 seconds.

    An admission webhook or a missing right refuses the same write again. No answer, an apiserver
    that is overloaded (429, 5xx), a conflict and an object that is gone are no refusals.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(1.0, 60.0, now)

    def write_failed(self, key: K, code: int) -> bool:
        """Record that a write failed with an HTTP status; return whether it repeats a refusal."""
        refused = 400 <= code < 500 and code not in (404, 409, 429)
        return refused and self.failed(key)[0] > 1


class LineLimit:
    """At most ``lines`` lines of a log in each period."""

    def __init__(
        self,
        lines: int = 10,
        period_seconds: float = 60.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = lines
        self._period_seconds = period_seconds
        self._now = now
        self._began = float("-inf")
        self._written = self._suppressed = 0

    def allows(self) -> bool:
        """Return whether another line may be written, and count it."""
        now = self._now()
        if now - self._began >= self._period_seconds:
            self._began, self._written = now, 0
        if self._written == self._lines:
            self._suppressed += 1
            return False
        self._written += 1
        return True

    def take_suppressed(self) -> int:
        """Return the number of lines that were not allowed since the last call."""
        count, self._suppressed = self._suppressed, 0
        return count
