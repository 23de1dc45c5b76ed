"""Warns of plugins that block, in tests: a running scheduler would stand still."""

from __future__ import annotations

import warnings
from time import perf_counter, thread_time

from proreus.engine.runtime.plugin_health import CurrentCall, PluginCall

_MOST_SECONDS = 0.25
"""As long as the watchdog of a running scheduler waits before it reports a plugin."""


class BlockingCallWarning(UserWarning):
    """A plugin slept, or waited for the network or a disk, without ``await``."""


class WatchedCall(CurrentCall):
    """The current call; warns of one that waited too long.

    Time in which the thread computed does not count: it depends on how fast the machine is.
    """

    def __init__(self) -> None:
        self._call: PluginCall | None = None
        self._since = 0.0

    @property
    def call(self) -> PluginCall | None:
        """The place where an out-of-tree plugin is called now, or None."""
        return self._call

    @call.setter
    def call(self, call: PluginCall | None) -> None:
        waiting = perf_counter() - thread_time()
        before, seconds = self._call, waiting - self._since
        self._call, self._since = call, waiting
        if before is not None and seconds > _MOST_SECONDS:
            warnings.warn(
                f"{before.plugin} blocked at {before.point} for {seconds:.2f} s: no pod is "
                "scheduled meanwhile; await, or read beforehand in a BackgroundPlugin",
                BlockingCallWarning,
                stacklevel=3,
            )
