"""CapacityScheduling: quotas, which may be borrowed while they are idle, by namespace or queue.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/capacityscheduling`` (KEP 9); for queues the
schedulers Volcano, KAI and Koordinator. ``plugin`` has the extension points, reclaim among them,
and asks a claim about each pod. By namespace: ``quotas`` has the use and its bounds,
``quota_state`` keeps them, ``claims`` decides. By queue: ``queue_objects`` reads queues,
``queue_tree`` and ``fair_share`` divide the capacity, ``queue_accounts`` counts, ``queue_state``
keeps all that, ``queue_claims`` decides.
"""

from proreus.addons.capacity_scheduling.plugin import CapacityScheduling

__all__ = ["CapacityScheduling"]
