"""Whether we may still write: only while the Lease is ours, by our own clock.

A leader that was stopped for a while (SIGSTOP, a machine out of memory, a loop that stood still)
does not know that another leads by now. So each write asks here before it is sent. Whoever renews
the Lease moves ``until`` on, from another thread; it and ``closed`` are single values, so that
reading them needs no lock.

What this cannot prevent is that a process is stopped between this question and the system call
that sends; the apiserver, which binds no pod twice, is what is left then.
"""

import math
import time
from collections.abc import Callable

from proreus.client.responses import Unreachable


class NotLeading(Unreachable):
    """The Lease is not ours any more: nothing was sent."""

    def __init__(self) -> None:
        super().__init__("the Lease is not held any more: nothing is written")


class WriteFence:
    """Open until the Lease is first ours, while it is, and never again after ``close``.

    ``until``: the instant of ``now`` up to which may be written.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.until = math.inf
        self.closed = False
        self._now = now

    @property
    def open(self) -> bool:
        """Whether may be written now."""
        return not self.closed and self._now() < self.until

    def check(self) -> None:
        """Raise ``NotLeading`` unless may be written now."""
        if self.closed or self._now() >= self.until:
            raise NotLeading

    def close(self) -> None:
        """Let no write pass any more, even if the Lease should be renewed."""
        self.closed = True
