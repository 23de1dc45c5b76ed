"""How long to wait before trying again: exponential, jittered, bounded.

Jitter spreads the clients of an apiserver that has just come back; without it they would all knock
at the same instants.
"""

import random


class Backoff:
    """Each delay is ``factor`` times the last, times 1 to 1 + ``jitter`` at random."""

    def __init__(
        self,
        initial_seconds: float,
        max_seconds: float,
        *,
        factor: float = 2.0,
        jitter: float = 1.0,
        rng: random.Random | None = None,
    ) -> None:
        self._initial = initial_seconds
        self._max = max_seconds
        self._factor = factor
        self._jitter = jitter
        self._rng = rng or random.Random()
        self._next = initial_seconds

    def next(self) -> float:
        """Return the seconds to wait now, and grow."""
        seconds = self._next
        self._next = min(self._max, seconds * self._factor)
        return seconds * (1.0 + self._rng.random() * self._jitter)

    def reset(self) -> None:
        """Start small again: something has worked."""
        self._next = self._initial
