"""Whether a process is asked: its circuit is closed while it answers, else open for a reason.

A process can be asked how it is, so nobody's pod has to find out whether it is back. An HTTP
extender cannot: hence its rules (``scheduler/extender_circuit``), by which now and then a pod does.
"""

from __future__ import annotations

import asyncio

from proreus.logs import logger
from proreus.remote.remote_metrics import RemoteMetrics

log = logger(__name__)


class Circuit:
    """That of one process. ``open_reason``: why it is left alone; None while it is asked."""

    def __init__(self, plugin: str, remote_metrics: RemoteMetrics, open_reason: str | None) -> None:
        self._plugin = plugin
        self._metrics = remote_metrics
        self.open_reason = open_reason
        self.opened = asyncio.Event()
        """Set while it is open; not yet for one that was open from the beginning."""
        if open_reason is not None:
            remote_metrics.up.set(0)

    @property
    def is_open(self) -> bool:
        """Whether the process is left alone for now."""
        return self.open_reason is not None

    def open(self, reason: str, address: str) -> None:
        """Leave the process alone, since something is wrong with it."""
        if not self.is_open:
            log.error("Plugin does not answer", plugin=self._plugin, endpoint=address, err=reason)
        self.open_quietly(reason)

    def open_quietly(self, reason: str) -> None:
        """The same where nothing is wrong."""
        self._metrics.up.set(0)
        self.open_reason = reason
        self.opened.set()

    def close(self) -> None:
        """Ask it again."""
        self.open_reason = None
        self.opened.clear()
        self._metrics.up.set(1)
