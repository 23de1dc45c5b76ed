"""Limits the evictions in a period, in all and in a namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from proreus.controller.evictions.eviction_record import RecordedEviction
from proreus.controller.options import ControllerOptions

_TRIES_PER_EVICTION = 10
"""The record stays small, however many namespaces refuse."""


class EvictionBudget:
    """The rest of the budgets of a period that began at ``since`` (Unix seconds).

    Recorded evictions of the period have used them already: a process that begins anew has no
    budget of its own. An eviction that was refused counts for its namespace alone, so that budgets
    of zero in one namespace leave room for the others.
    """

    def __init__(
        self, recorded: Iterable[RecordedEviction], since: float, options: ControllerOptions
    ) -> None:
        latest = [one for one in recorded if one.at > since]
        self._used = sum(one.state != "refused" for one in latest)
        self._tried = Counter(_namespace(one.pod) for one in latest)
        self._uids = {one.uid for one in latest}
        self._most = options.max_evictions
        self._most_of_namespace = options.max_evictions_per_namespace

    def take(self, pod: str, uid: str) -> bool:
        """Count the eviction of a pod; return False if it may not be tried, or was in the period.

        ``pod``: its key.
        """
        namespace = _namespace(pod)
        if (
            self._used >= self._most
            or self._tried.total() >= self._most * _TRIES_PER_EVICTION
            or self._tried[namespace] >= self._most_of_namespace
            or uid in self._uids
        ):
            return False
        self._used += 1
        self._tried[namespace] += 1
        return True


def _namespace(pod: str) -> str:
    return pod.partition("/")[0]
