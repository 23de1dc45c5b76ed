"""Client-side flow control: a token bucket with clientConnection's qps and burst.

Each request reserves its token at once and then sleeps until the token is there; so requests are
sent in the order in which they came, and no task wakes up in vain (client-go's
flowcontrol.RateLimiter).
"""

import asyncio
import math
import time
from collections.abc import Callable


class RateLimiter:
    """At most ``qps`` requests a second after a first ``burst``; a negative qps sets no limit.

    ``now`` returns seconds on any clock that does not go back.
    """

    def __init__(
        self, qps: float, burst: int, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        if qps == 0 or math.isnan(qps):
            raise ValueError(f"qps must be positive, or negative for no limit, not {qps}")
        if qps > 0 and burst < 1:
            raise ValueError(f"burst must be at least 1 when qps is limited, not {burst}")
        self._qps = qps
        self._burst = float(burst)
        self._now = now
        self._tokens = float(burst)  # negative: that many requests are waiting
        self._at = now()

    @property
    def unlimited(self) -> bool:
        """Whether requests never wait."""
        return self._qps < 0

    def reserve(self) -> float:
        """Take a token and return how many seconds to wait before using it."""
        if self._qps < 0:
            return 0.0
        now = self._now()
        # Tokens grow with time up to the burst. The balance may go below zero: each waiter then has
        # a token of its own to wait for, one 1/qps after the other, which keeps them in order.
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._qps)
        self._at = now
        self._tokens -= 1.0
        return 0.0 if self._tokens >= 0 else -self._tokens / self._qps

    async def acquire(self) -> float:
        """Wait for a token; return the seconds waited. A cancelled request returns its token."""
        wait_seconds = self.reserve()
        if wait_seconds > 0:
            try:
                await asyncio.sleep(wait_seconds)
            except asyncio.CancelledError:
                self._tokens += 1.0
                raise
        return wait_seconds


def no_rate_limit() -> RateLimiter:
    """Return a rate limiter without a limit."""
    return RateLimiter(-1.0, 0)
