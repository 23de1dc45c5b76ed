"""Whether a process is asked: its circuit is closed while it answers, else open for a reason.

A process can be asked how it is, so nobody's pod has to find out whether it is back. An HTTP
extender cannot: hence its rules (``scheduler/extender_circuit``), by which now and then a pod does.
"""

from __future__ import annotations

import asyncio

from proreus.logs import logger
from proreus.remote.meters import Meters

log = logger(__name__)


class Circuit:
    """That of one process. ``silent_because``: why it is left alone; None while it is asked."""

    def __init__(self, plugin: str, meters: Meters, silent_because: str | None) -> None:
        self._plugin = plugin
        self._meters = meters
        self.silent_because = silent_because
        self.opened = asyncio.Event()
        """Set while it is open; not yet for one that was open from the beginning."""
        if silent_because is not None:
            meters.up.set(0)

    @property
    def is_open(self) -> bool:
        """Whether the process is left alone for now."""
        return self.silent_because is not None

    def open(self, reason: str, address: str) -> None:
        """Leave the process alone, since something is wrong with it."""
        if not self.is_open:
            log.error("Plugin does not answer", plugin=self._plugin, endpoint=address, err=reason)
        self.leave_alone(reason)

    def leave_alone(self, reason: str) -> None:
        """The same where nothing is wrong."""
        self._meters.up.set(0)
        self.silent_because = reason
        self.opened.set()

    def close(self) -> None:
        """Ask it again."""
        self.silent_because = None
        self.opened.clear()
        self._meters.up.set(1)
