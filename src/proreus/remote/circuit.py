"""The circuit breaker of one process: closed while it responds, else open with a reason.

A process can be asked in the background, so that no pod is needed to find out whether it responds
again. An HTTP extender cannot: its circuit (``engine/extenders/extender``) lets a pod try now and
then.
"""

from __future__ import annotations

import asyncio
import math

from proreus.base.logs import logger
from proreus.remote.remote_metrics import RemoteMetrics

log = logger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0
LEAST_TIMEOUTS = 30
"""A process that responds in the background, and hangs again and again when a pod asks, may cost
one time-out in so many, after pauses that double."""


class Circuit:
    """The circuit of one process. ``open_reason``: why it gets no requests; None while closed.

    ``pause``: for how many seconds it stays open at least, and until the first attempt to close it.
    """

    def __init__(self, plugin: str, remote_metrics: RemoteMetrics, open_reason: str | None) -> None:
        self._plugin = plugin
        self._metrics = remote_metrics
        self._closed_at = -math.inf
        self.open_reason = open_reason
        self.pause = FIRST_PAUSE_SECONDS
        self.opened = asyncio.Event()
        """Set by ``open``; not set for a circuit that was open from the beginning."""
        if open_reason is not None:
            remote_metrics.up.set(0)

    @property
    def is_open(self) -> bool:
        """Whether requests fail at once."""
        return self.open_reason is not None

    def open(self, reason: str, address: str, timeout_seconds: float) -> None:
        """Stop requests because of an error, and log it.

        Soon after it closed, the pause is twice the last one.
        """
        if not self.is_open:
            longest = max(LONGEST_PAUSE_SECONDS, LEAST_TIMEOUTS * timeout_seconds)
            soon = asyncio.get_running_loop().time() < self._closed_at + longest
            self.pause = min(2 * self.pause, longest) if soon else FIRST_PAUSE_SECONDS
            log.error("Plugin does not answer", plugin=self._plugin, endpoint=address, err=reason)
        self.open_quietly(reason)

    def open_quietly(self, reason: str) -> None:
        """Stop requests without an error, since the slot is empty."""
        self._metrics.up.set(0)
        self.open_reason = reason
        self.opened.set()

    def close(self, *, reset_pauses: bool = False) -> None:
        """Resume requests."""
        self.open_reason = None
        self._closed_at = -math.inf if reset_pauses else asyncio.get_running_loop().time()
        self.opened.clear()
        self._metrics.up.set(1)
