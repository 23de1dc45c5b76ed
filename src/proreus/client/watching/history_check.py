"""Notices that resourceVersions have gone backwards, as when etcd is restored from a backup.

What was watched before is then from a future that never happened: objects are held that do not
exist, and a watch from a version that lies ahead delivers nothing, without an error. The remedy is
a new list. A client may compare versions of the apiserver's own resources as numbers (KEP-5504);
others, of aggregated APIs, need not be comparable, so a comparison leads to a list at most.
"""

import asyncio
import math
from typing import Any

import msgspec

from proreus.base.errors import ApiError, Gone
from proreus.client.http.connectivity import Connectivity, is_outage
from proreus.client.watching.list_watch import ListWatch
from proreus.objects.codec import UNDECODABLE
from proreus.objects.meta import ListMeta

FALSE_ALARM_SECONDS = 600.0
"""Time in which backward versions are ignored after a list has shown that history did not go
back.
"""


class _ListHead(msgspec.Struct):
    """A list without its items."""

    metadata: ListMeta = ListMeta()


_LIST_HEAD = msgspec.json.Decoder(_ListHead)


def is_older(version: str, held: str) -> bool:
    """Return whether a version precedes another; False where they cannot be compared."""
    if len(version) > len(held) or (len(version) == len(held) and version >= held):
        return False
    return all(one.isdecimal() and one[0] != "0" for one in (version, held))


class HistoryCheck:
    """Compares the versions that one reflector receives with the newest that it held."""

    def __init__(
        self, list_watch: ListWatch[Any], connectivity: Connectivity, timeout_seconds: float
    ) -> None:
        self._list_watch = list_watch
        self._connectivity = connectivity
        self._timeout_seconds = timeout_seconds
        self._held = ""
        self._suspected = False
        self._ignore_until = -math.inf
        self._in_doubt = False

    def listed(self, version: str) -> bool:
        """Take over the version of a list; return whether it may be of an earlier history.

        That is so where it is older than what was held, and also where an older one was seen before
        this list: a restored apiserver may have come as far again by other writes.
        """
        older, suspected = is_older(version, self._held), self._suspected
        if older:
            self._connectivity.report_restored(self._list_watch.path, self._held, version)
        elif suspected:
            self._ignore_until = _now() + FALSE_ALARM_SECONDS
        self._suspected = self._in_doubt = False
        self._held = version
        return older or suspected

    def received(self, version: str) -> None:
        """Take over the version after a chunk of a watch ("": unknown).

        Raises ``Gone`` if it is older than what was held; the chunk must not be applied then.
        """
        if not version:
            return
        if is_older(version, self._held) and _now() >= self._ignore_until:
            self._suspect(version)
        self._held = version

    def failed(self, error: ApiError) -> None:
        """Record that a watch failed; after an outage, however short, the history is doubtful."""
        # The attempt after a watch that broke may be the first one that the restored apiserver
        # answers: there need not be one that fails in between.
        if is_outage(error):
            self._in_doubt = True

    async def verify(self) -> None:
        """Before a watch is resumed: if in doubt, look up the present version.

        Raises ``Gone`` if that is older than what is held, and ``ApiError`` during an outage.
        """
        if not self._in_doubt or _now() < self._ignore_until:
            return
        try:
            # Without a resourceVersion the list is consistent: never older than events of a watch.
            body = await self._list_watch.list({"limit": "1"}, self._timeout_seconds)
            version = _LIST_HEAD.decode(body).metadata.resource_version
        except UNDECODABLE:
            version = ""
        except ApiError as error:
            if is_outage(error):
                raise
            version = ""  # the watch itself shows whether it is still allowed and served
        self._in_doubt = False
        if is_older(version, self._held):
            self._suspect(version)

    def _suspect(self, version: str) -> None:
        self._suspected = True
        raise Gone(
            410,
            "Expired",
            f"resourceVersion {version} is older than {self._held}, which was seen before",
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
