"""The write fence: writes are sent only while we hold the Lease, by our own clock.

A leader that was stopped for a while (SIGSTOP, a machine out of memory, a blocked event loop) does
not know that another instance leads by now. So the fence is checked before each write is sent. The
leader elector moves ``until`` forward after each renewal, from another thread; ``until`` and
``closed`` are single values, so that reading them needs no lock.

The fence cannot prevent a process from being stopped between the check and the system call that
sends; then only the apiserver is left, which does not bind a pod twice.
"""

import math
import time
from collections.abc import Callable

from proreus.client.http.responses import Unreachable


class NotLeading(Unreachable):
    """The Lease has ended, so nothing was sent."""

    def __init__(self) -> None:
        super().__init__("the Lease is no longer held: nothing is written")


class WriteFence:
    """Open before the Lease is first acquired and while it is held; shut for good by ``close``.

    ``until``: the time on the clock ``now``, in seconds, up to which writes may be sent.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        # Open at first: an instance that never led may write Events about its own configuration.
        self.until = math.inf
        self.closed = False
        self._now = now

    @property
    def open(self) -> bool:
        """Whether writes may be sent now."""
        return not self.closed and self._now() < self.until

    def check(self) -> None:
        """Raise ``NotLeading`` unless writes may be sent now."""
        if self.closed or self._now() >= self.until:
            raise NotLeading

    def close(self) -> None:
        """Reject every write from now on, even if a renewal that is in flight should succeed."""
        self.closed = True
