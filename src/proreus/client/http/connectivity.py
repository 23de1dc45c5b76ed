"""Whether the apiserver can be reached, logged once for all its watches.

When it goes down, some fifteen watches break at the same moment. Errors about one resource (a
missing permission, a list that cannot be decoded) are logged by its reflector.
"""

import asyncio
import math
import time
from contextlib import suppress

from proreus.base import logs
from proreus.base.errors import ApiError

log = logs.logger(__name__)

_RESTORED_LOG_INTERVAL_SECONDS = 300.0
"""All watches notice a restored history within a read timeout of each other."""


def is_outage(error: ApiError) -> bool:
    """Return whether an error is about the apiserver or the network, rather than the request."""
    return error.status in (0, 429) or error.status >= 500


class Connectivity:
    """Shared by the reflectors of one apiserver."""

    def __init__(self) -> None:
        self._lost_at: float | None = None
        self._unreachable: set[str] = set()
        """The paths of the watches that have marked it, and have not found it again."""
        self.open_watches = 0
        self._found = asyncio.Event()
        self._restored_at = -math.inf

    def mark_unreachable(self, path: str, error: ApiError) -> None:
        """Record that the watch of a path broke or could not be opened."""
        self._unreachable.add(path)
        # Only the first watch to notice logs: the others would repeat the same line.
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            log.error(
                "The apiserver does not answer; watches will be tried again", err=error, path=path
            )

    def mark_reachable(self) -> None:
        """Record that a failed watch works again."""
        self._unreachable.clear()
        if self._lost_at is not None:
            seconds = round(time.monotonic() - self._lost_at, 1)
            self._lost_at = None
            log.info("The apiserver answers again", afterSeconds=seconds)
            self._found.set()
            self._found = asyncio.Event()

    def withdraw(self, path: str) -> None:
        """Record that it is only this path for which the apiserver has errors."""
        self._unreachable.discard(path)
        # Or the next outage, of which this is none, would not be logged.
        if not self._unreachable and self._lost_at is not None:
            self._lost_at = None
            log.info("The apiserver answers; its errors concern one resource", path=path)

    async def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, or until a watch finds that the apiserver is back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._found.wait()

    def report_restored(self, path: str, held: str, version: str) -> None:
        """Report a list that is older than the store; only the first watch to notice logs it."""
        now = time.monotonic()
        if now - self._restored_at >= _RESTORED_LOG_INTERVAL_SECONDS:
            log.error(
                "The apiserver's resourceVersions have gone back, as after a restored backup; "
                "everything is listed again",
                resource=path,
                held=held,
                listed=version,
            )
            self._restored_at = now
