"""Quotas and queues that a plugin keeps, for people who ask who holds what."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from proreus.framework.plugin import Plugin
from proreus.objects.pod import Pod


class QuotaUse(Struct, frozen=True, kw_only=True):
    """The use of a ``resource`` by a ``quota`` or queue, in milli-CPU, bytes or counts.

    ``used``: by pods that have a node. ``guaranteed``: the part that pods of other quotas have to
    give back. ``limit``: never exceeded, None without one. ``fair_share``: its part of the capacity
    at present, None where capacity is not divided. ``parent``: the queue above, "" at the top.
    """

    quota: str
    resource: str
    used: int
    guaranteed: int = 0
    limit: int | None = None
    fair_share: int | None = None
    parent: str = ""


class QuotaPlugin(Plugin):
    """A plugin that keeps quotas or queues, and shows them to people.

    It is no extension point of the configuration: the dashboard asks each enabled plugin of this
    class while a page is made. Both methods must be cheap, and must not change anything.
    """

    def quotas(self) -> Iterable[QuotaUse]:
        """Return the use of every quota, one item for each resource."""
        raise NotImplementedError

    def quota_of(self, pod: Pod) -> str:
        """Return the quota that counts a pod, "" if none does."""
        raise NotImplementedError
