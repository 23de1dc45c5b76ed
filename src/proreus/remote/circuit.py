"""The circuit breaker of one process: closed while it responds, else open with a reason.

A process has a health endpoint, so that no pod is needed to find out whether it responds again. An
HTTP extender has none: its circuit (``scheduler/extender_circuit``) lets a pod try now and then.
"""

from __future__ import annotations

import asyncio

from proreus.logs import logger
from proreus.remote.remote_metrics import RemoteMetrics

log = logger(__name__)


class Circuit:
    """The circuit of one process. ``open_reason``: why it gets no requests; None while closed."""

    def __init__(self, plugin: str, remote_metrics: RemoteMetrics, open_reason: str | None) -> None:
        self._plugin = plugin
        self._metrics = remote_metrics
        self.open_reason = open_reason
        self.opened = asyncio.Event()
        """Set by ``open``; not set for a circuit that was open from the beginning."""
        if open_reason is not None:
            remote_metrics.up.set(0)

    @property
    def is_open(self) -> bool:
        """Whether requests fail at once."""
        return self.open_reason is not None

    def open(self, reason: str, address: str) -> None:
        """Stop requests because of an error, and log it."""
        if not self.is_open:
            log.error("Plugin does not answer", plugin=self._plugin, endpoint=address, err=reason)
        self.open_quietly(reason)

    def open_quietly(self, reason: str) -> None:
        """Stop requests without an error: the slot is empty."""
        self._metrics.up.set(0)
        self.open_reason = reason
        self.opened.set()

    def close(self) -> None:
        """Resume requests."""
        self.open_reason = None
        self.opened.clear()
        self._metrics.up.set(1)
