"""Resources that the apiserver refuses to list while the process starts (401, 403).

A refusal need not be final: a token is being rotated, a RoleBinding is applied a moment after the
Deployment, an authorization webhook is restarting. kube-scheduler waits for ever; here the process
ends after a while, since a crash loop is seen earlier than a scheduler that never becomes ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct

from proreus.base import logs
from proreus.base.errors import ApiError, Forbidden, Unauthorized
from proreus.objects.meta import Resource

log = logs.logger(__name__)

REFUSED_LIMIT_SECONDS = 100.0
"""Time for which a resource may be refused.

More than three times the 30 seconds for which an apiserver caches what its authorization webhook
denied, and less than the two minutes of the startup probe in deploy/: a process that the kubelet
ends would leave without saying why.
"""
_CHECK_INTERVAL_SECONDS = 1.0


class _Refusal(Struct):
    resource: Resource[Any]
    since: float
    error: ApiError


class RefusedWatches:
    """Records failed lists until the first sync. ``unsynced``: returns the kinds not yet listed."""

    def __init__(self, unsynced: Callable[[], Collection[str]]) -> None:
        self._unsynced = unsynced
        self._refusals: dict[str, _Refusal] = {}
        self._reported = False

    def record(self, resource: Resource[Any], error: ApiError) -> None:
        """Record that a list or watch failed; the reflector tries it again in any case."""
        kind = resource.id
        if not isinstance(error, (Forbidden, Unauthorized)):
            # An outage is waited for without a limit, and what it hides is not known.
            self._refusals.pop(kind, None)
            return
        if (known := self._refusals.get(kind)) is not None:
            known.error = error
            return
        self._refusals[kind] = _Refusal(resource, asyncio.get_running_loop().time(), error)
        # One line: credentials that are refused are so for all resources at the same moment.
        if not self._reported:
            self._reported = True
            log.error(
                "The apiserver refuses what the start needs; it is asked again",
                resource=resource.plural,
                err=error,
                givesUpAfter=f"{REFUSED_LIMIT_SECONDS:g}s",
            )

    async def raise_when_final(self) -> None:
        """Wait until a resource has been refused for too long; raise its error."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            unsynced = self._unsynced()
            for kind, refusal in self._refusals.items():
                if kind in unsynced and now() - refusal.since >= REFUSED_LIMIT_SECONDS:
                    raise _final(refusal)


def _final(refusal: _Refusal) -> ApiError:
    error = refusal.error
    return type(error)(
        error.status,
        error.reason,
        f"the apiserver does not let us watch {refusal.resource.plural}: {error.message} "
        f"(asked again for {REFUSED_LIMIT_SECONDS:g} seconds)",
    )
