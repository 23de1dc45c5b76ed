"""QOSSort: pods of the same priority by their QoS class.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/qos``.

The highest priority comes first, then Guaranteed, Burstable and BestEffort pods.
"""

from __future__ import annotations

from proreus.addons.qos import qos_class
from proreus.framework import QueuedPodInfo, QueueSortPlugin

_ORDER = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}


class QOSSort(QueueSortPlugin):
    """Orders the active queue by priority, then by QoS class, then by the time of queueing."""

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, int, float]:
        """Return a key that sorts ascending."""
        return -queued.priority, _ORDER[qos_class(queued.pod)], queued.timestamp
