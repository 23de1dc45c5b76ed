"""Whether the apiserver is there, as its watches find out: said once for all of them.

When it goes, some fifteen watches break at the same moment. Faults of one kind alone (a missing
right, a list that cannot be read) are for its reflector to tell.
"""

import time

from proreus import logs
from proreus.errors import ApiError

log = logs.logger(__name__)


def is_outage(error: ApiError) -> bool:
    """Tell whether an error is about the apiserver, or the way to it, rather than the request."""
    return error.status in (0, 429) or error.status >= 500


class Connectivity:
    """Shared by the watches of one apiserver; each tells of what it has found out itself."""

    def __init__(self) -> None:
        self._lost_at: float | None = None

    def mark_unreachable(self, error: ApiError) -> None:
        """Note that a watch was cut off or could not be begun."""
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            log.error("The apiserver does not answer; watches will be tried again", err=error)

    def mark_reachable(self) -> None:
        """Note that one of those watches goes on."""
        if self._lost_at is not None:
            seconds = round(time.monotonic() - self._lost_at, 1)
            self._lost_at = None
            log.info("The apiserver answers again", afterSeconds=seconds)
