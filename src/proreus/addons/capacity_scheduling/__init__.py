"""CapacityScheduling: elastic quotas, which may be borrowed while they are idle.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/capacityscheduling`` (KEP 9). ``quotas`` is what is
used and allowed, ``plugin`` the extension points, reclaim among them.
"""

from proreus.addons.capacity_scheduling.plugin import CapacityScheduling

__all__ = ["CapacityScheduling"]
