"""Time as an argument.

State machines (queue, cache, waiting pods) never read the system time: they are
given a ``Clock``. Tests, ``evaluate`` and ``simulate`` pass a ``FakeClock`` and move it.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the epoch, as a float."""

    def now(self) -> float:
        """Return the present instant."""
        ...


class RealClock:
    """The machine's wall clock."""

    def now(self) -> float:
        """Return the present instant in seconds since the epoch."""
        return time.time()


class FakeClock:
    """A clock that moves only by ``advance`` and ``advance_to``."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return the instant the clock was last moved to."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back {-seconds} seconds")
        self._now += seconds

    def advance_to(self, instant: float) -> None:
        """Move on to ``instant``, which must not lie in the past."""
        self.advance(instant - self._now)
