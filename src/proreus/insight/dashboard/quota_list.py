"""Lists quotas and queues: who holds what, and who waits for whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import msgspec

from proreus.base.logs import logger
from proreus.engine.scheduler import Scheduler
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.quota_plugin import QuotaPlugin, QuotaUse

log = logger(__name__)


class QuotaRow(msgspec.Struct):
    """One resource of a quota, in milli-CPU, bytes or counts.

    ``borrowed``: used beyond the guarantee. ``waiting``: the number of its pods that wait and
    request the resource, ``wanted``: their requests.
    """

    use: QuotaUse
    profile: str
    plugin: str
    borrowed: int
    waiting: int
    wanted: int


class Claim(msgspec.Struct):
    """A quota whose pods wait though its guarantee is not used up.

    ``unused``: of the guarantee. ``borrowers``: quotas that use more of the resource than they are
    guaranteed, with the amounts beyond that.
    """

    row: QuotaRow
    unused: int
    borrowers: list[tuple[str, int]]


FILTERS = ("q", "profile")
COLUMNS: dict[str, Callable[[QuotaRow], object]] = {
    "quota": lambda row: (row.use.quota, row.use.resource),
    "resource": lambda row: (row.use.resource, row.use.quota),
    "-used": lambda row: row.use.used,
    "-guaranteed": lambda row: row.use.guaranteed,
    "-borrowed": lambda row: row.borrowed,
    "-waiting": lambda row: row.waiting,
}


def quota_rows(scheduler: Scheduler) -> list[QuotaRow]:
    """Return the quotas of all profiles; those of a plugin that raises are left out."""
    rows: list[QuotaRow] = []
    waiting = [pod for pods in scheduler.queue.pods_by_queue().values() for pod in pods]
    for name, profile in scheduler.profiles.items():
        for plugin in profile.plugins:
            if not isinstance(plugin, QuotaPlugin):
                continue
            own = (pod for pod in waiting if pod.pod.spec.scheduler_name == name)
            try:
                rows += _rows_of(plugin, name, own)
            except Exception as error:
                log.error("A plugin could not list its quotas", err=error, plugin=plugin.name)
    return rows


def _rows_of(
    plugin: QuotaPlugin, profile: str, waiting: Iterable[QueuedPodInfo]
) -> Iterable[QuotaRow]:
    counts: Counter[tuple[str, str]] = Counter()
    wanted: Counter[tuple[str, str]] = Counter()
    for queued in waiting:
        quota = plugin.quota_of(queued.pod)
        for resource, amount in queued.info.requests.amounts.items():
            if quota and amount:
                counts[quota, resource] += 1
                wanted[quota, resource] += amount
    return [
        QuotaRow(
            use=use,
            profile=profile,
            plugin=plugin.name,
            borrowed=max(use.used - use.guaranteed, 0),
            waiting=counts[use.quota, use.resource],
            wanted=wanted[use.quota, use.resource],
        )
        for use in plugin.quotas()
    ]


def claims_of(rows: Iterable[QuotaRow]) -> list[Claim]:
    """Return the quotas whose pods wait for what others have borrowed."""
    rows = list(rows)
    parents = {(row.profile, row.use.parent) for row in rows}
    borrowers: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for row in rows:
        # Queues above others have only what those have.
        if row.borrowed and (row.profile, row.use.quota) not in parents:
            borrowers[row.profile, row.use.resource].append((row.use.quota, row.borrowed))
    found = []
    for row in rows:
        unused = row.use.guaranteed - row.use.used
        others = borrowers[row.profile, row.use.resource]
        if row.waiting and unused > 0 and others:
            found.append(Claim(row, unused, sorted(others, key=lambda one: -one[1])))
    return found
