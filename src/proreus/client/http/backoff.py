"""Exponential back-off: jittered, with an upper bound.

Jitter spreads the requests to an apiserver that has just come back; without it all its clients
would retry at the same time (thundering herd).
"""

import random


class Backoff:
    """Delays that grow by ``factor``, each multiplied by a random 1 to 1 + ``jitter``."""

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
        """Return the next delay in seconds."""
        seconds = self._next
        # The jitter is not fed back: the delays would drift beyond the bound.
        self._next = min(self._max, seconds * self._factor)
        return seconds * (1.0 + self._rng.random() * self._jitter)

    def reset(self) -> None:
        """Start with the initial delay again, after a success."""
        self._next = self._initial
