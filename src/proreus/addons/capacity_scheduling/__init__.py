"""CapacityScheduling: quotas, which may be borrowed while they are idle, by namespace or queue.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/capacityscheduling`` (KEP 9); for queues those of
Volcano, KAI and Koordinator. ``plugin`` has the extension points, reclaim among them, and asks a
``Claim`` (``claims``) about each pod. By namespace: ``quotas`` is what is used and allowed,
``quota_state`` keeps it. By queue: ``queue_objects`` reads them, ``queue_tree`` and ``fair_share``
divide the capacity, ``queue_accounts`` and ``decayed_usage`` count, ``queue_state`` keeps all that,
``queue_claims`` decides.
"""

from proreus.addons.capacity_scheduling.plugin import CapacityScheduling

__all__ = ["CapacityScheduling"]
