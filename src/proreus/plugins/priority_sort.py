"""PrioritySort: the most important pod first; of equals, the one that has waited longest."""

from __future__ import annotations

from proreus.framework.plugin import QueueSortPlugin
from proreus.framework.pod_info import QueuedPodInfo


class PrioritySort(QueueSortPlugin):
    """Orders the active queue by priority, then by the time of entering the queue."""

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        """Smallest first: the highest priority, then the earliest time."""
        return -queued.info.priority, queued.timestamp
