"""How many pods may be evicted in a period, in all and of a namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from proreus.controller.evictions.eviction_record import RecordedEviction


class EvictionBudget:
    """What is left of the budgets of a period that began at ``since`` (Unix seconds).

    What is recorded of the period has used them already: a process that begins anew has no budget
    of its own.
    """

    def __init__(
        self, recorded: Iterable[RecordedEviction], since: float, most: int, most_of_namespace: int
    ) -> None:
        self._used = Counter(_namespace(one.pod) for one in recorded if one.at > since)
        self._most = most
        self._most_of_namespace = most_of_namespace

    def take(self, pod: str) -> bool:
        """Count the eviction of a pod, named by its key; return False if there is none left."""
        namespace = _namespace(pod)
        if self._used.total() >= self._most or self._used[namespace] >= self._most_of_namespace:
            return False
        self._used[namespace] += 1
        return True


def _namespace(pod: str) -> str:
    return pod.partition("/")[0]
