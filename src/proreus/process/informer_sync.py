"""Waits for informers: at the start, as a new leader, and for new plugins.

Decisions without a part of the cluster would be wrong: the first lists are waited for, and those
that stay refused end the process. Later, the reflector logs errors and tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any

from msgspec import Struct

from proreus.base import logs
from proreus.base.errors import ApiError, ConfigError, Forbidden, Unauthorized
from proreus.client.watching.informer_factory import InformerFactory
from proreus.objects.meta import Resource

log = logs.logger(__name__)

_NEW_KINDS_SECONDS = 30.0
_CATCH_UP_SECONDS = 30.0
"""Time limit of a new leader for a watch that cannot be opened."""


MakeStores = Callable[[Callable[[Resource[Any], ApiError], bool]], InformerFactory]
"""Makes informers that call a function when a list or watch fails."""


class InformerSync:
    """Makes informers, ``stores``, and waits for them."""

    def __init__(self, make_stores: MakeStores) -> None:
        self._first_lists_done = False
        self.stores = stores = make_stores(self.on_error)
        self._refused_watches = RefusedWatches(lambda: stores.group.unsynced)

    def on_error(self, resource: Resource[Any], error: ApiError) -> bool:
        """Record that a list or watch failed; return whether it is logged here."""
        return not self._first_lists_done and self._refused_watches.record(resource, error)

    async def wait_for_first_lists(self) -> None:
        """Return once every informer has handled its first list.

        Raises the ``ApiError`` of a resource that stays refused.
        """
        synced = asyncio.ensure_future(self.stores.group.wait_for_sync())
        refused = asyncio.ensure_future(self._refused_watches.raise_when_final())
        try:
            await asyncio.wait((synced, refused), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                await refused
        finally:
            synced.cancel()
            refused.cancel()
        self._first_lists_done = True

    async def wait_for_kinds(self, kinds: Mapping[str, Resource[Any]], needed: Set[str]) -> None:
        """Watch ``kinds`` as well, and wait for the kinds that new plugins need.

        Raises ``ConfigError`` after 30 seconds. An informer that cannot list now keeps trying: the
        next configuration may need it too. One that does not need it must not wait for it.
        """
        for resource in kinds.values():
            self.stores.store(resource)
        group = self.stores.group
        # At the start everything is waited for anyway.
        if not (self._first_lists_done and needed & set(group.unsynced)):
            return
        try:
            async with asyncio.timeout(_NEW_KINDS_SECONDS):
                await group.wait_for_sync(needed)
        except TimeoutError:
            missing = ", ".join(kind for kind in group.unsynced if kind in needed)
            raise ConfigError(f"plugins need {missing}, which cannot be watched") from None

    async def catch_up(self) -> None:
        """Wait until all watches are open, as a new leader.

        What a predecessor gave away while we did not see it would be given away again.
        """
        group = self.stores.group
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await group.wait_until_connected()
        except TimeoutError:
            missing = ", ".join(group.disconnected)
            log.warning("Leading, although some resources cannot be watched", kinds=missing)


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
    """Resources that the apiserver refuses to list while the process starts (401, 403).

    A refusal need not be final: a token is being rotated, a RoleBinding is applied a moment after
    the Deployment, an authorization webhook is restarting. kube-scheduler waits for ever; here the
    process ends after a while, since a crash loop is seen earlier than a scheduler that never
    becomes ready. ``unsynced`` returns the kinds not yet listed.
    """

    def __init__(self, unsynced: Callable[[], Collection[str]]) -> None:
        self._unsynced = unsynced
        self._refusals: dict[str, _Refusal] = {}
        self._reported: set[str] = set()

    def record(self, resource: Resource[Any], error: ApiError) -> bool:
        """Record that a list or watch failed; return whether it is a refusal, which is logged here.

        The reflector tries it again in any case.
        """
        kind = resource.id
        if not isinstance(error, (Forbidden, Unauthorized)):
            # An outage is waited for without a limit, and what it hides is not known.
            self._refusals.pop(kind, None)
            return False
        if (known := self._refusals.get(kind)) is not None:
            known.error = error
        else:
            self._refusals[kind] = _Refusal(resource, asyncio.get_running_loop().time(), error)
        return True

    def _report(self, unsynced: Collection[str]) -> None:
        """Log resources that are refused and were not so far, in one line.

        Credentials without rights are refused for all resources at the same moment.
        """
        new = [kind for kind in self._refusals if kind in unsynced and kind not in self._reported]
        if not new:
            return
        self._reported.update(new)
        refusals = [self._refusals[kind] for kind in new]
        log.error(
            "The apiserver refuses requests that the start needs; retrying",
            err=refusals[0].error,
            resources=[one.resource.plural for one in refusals],
            givesUpAfter=f"{REFUSED_LIMIT_SECONDS:g}s",
            remedy=_remedy(refusals[0].error),
        )

    async def raise_when_final(self) -> None:
        """Wait until a resource has been refused for too long; raise its error."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            unsynced = self._unsynced()
            self._report(unsynced)
            for kind, refusal in self._refusals.items():
                if kind in unsynced and now() - refusal.since >= REFUSED_LIMIT_SECONDS:
                    raise _final(refusal)


def _remedy(error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return "apply deploy/second-scheduler/rbac.yaml, which has the rights of a scheduler"
    return "check the credentials: the apiserver does not accept them"


def _final(refusal: _Refusal) -> ApiError:
    error = refusal.error
    return type(error)(
        error.status,
        error.reason,
        f"the apiserver refuses the watch of {refusal.resource.plural}: {error.message} "
        f"(retried for {REFUSED_LIMIT_SECONDS:g} seconds); {_remedy(error)}",
    )
