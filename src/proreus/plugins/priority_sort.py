"""PrioritySort: the highest priority first, then the pod that has been queued longest."""

from __future__ import annotations

from proreus.framework.plugin import QueueSortPlugin
from proreus.framework.pod_info import QueuedPodInfo


class PrioritySort(QueueSortPlugin):
    """Orders the active queue by priority, then by the time of entering the queue."""

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        """Return a key that sorts ascending: negated priority, then the time of queueing."""
        return -queued.priority, queued.timestamp
