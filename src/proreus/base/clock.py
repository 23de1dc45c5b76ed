"""Time as an argument.

State machines (queue, cache, waiting pods) never read the system time: they are
given a ``Clock``. Tests, ``evaluate`` and ``simulate`` pass a ``FakeClock`` and move it.

The wall clock may be set while we run: it is for what others read. Intervals and deadlines of our
own are measured by ``monotonic``.
"""

import time
from datetime import UTC, datetime
from typing import Protocol

_EPOCH = time.time() - time.monotonic()


class Clock(Protocol):
    """Seconds since the epoch, as floats."""

    def now(self) -> float:
        """Return the present instant of the wall clock, for timestamps."""
        ...

    def monotonic(self) -> float:
        """Return the present instant of a clock that nobody sets, for intervals.

        It agreed with the wall clock when the process started.
        """
        ...


class RealClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Return the present instant of the wall clock."""
        return time.time()

    def monotonic(self) -> float:
        """Return the present instant of the monotonic clock, counted from the epoch."""
        return _EPOCH + time.monotonic()


class FakeClock:
    """A clock that moves only by ``advance`` and ``advance_to``; nobody sets it otherwise."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return the instant the clock was last moved to."""
        return self._now

    def monotonic(self) -> float:
        """Return the same as ``now``."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back {-seconds} seconds")
        self._now += seconds

    def advance_to(self, instant: float) -> None:
        """Move on to ``instant``, which must not lie in the past."""
        self.advance(instant - self._now)


def rfc3339(instant: float) -> str:
    """Return an instant as a metav1.Time: UTC, whole seconds. ``instant``: since the epoch."""
    return datetime.fromtimestamp(int(instant), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
