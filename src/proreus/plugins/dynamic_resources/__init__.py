"""DynamicResources: allocates devices to ResourceClaims (KEP-4381, structured parameters).

Which file is which step of a pod; ``plugin`` has the extension points in this order:

- PreEnqueue, PreFilter: ``claims``, ``pre_filtering``, ``pod_group_claims``, ``state_data``
- Filter, Score: ``filtering`` over columns of nodes; ``extended_resources``, ``node_allocatable*``
- its search: ``prepared_claims``, ``alternative`` (what), ``pools`` and ``availability_index``
  (where); how: ``allocator``, ``allocating_devices``, ``constraints``, ``derived_attributes``,
  ``consumed_counters``, ``infeasible``
- its selectors: ``devices`` (results by kind of device), ``cel`` and ``cel_*``
- Reserve: ``allocated`` (allocations in flight), ``results`` (names for positions)
- PreBind, Unreserve, PostFilter: ``claim_binder``, ``claim_writes``
- events: ``hints``; scores of other plugins: ``scored_devices``, ``device_totals``

Profiles share one ``dra_manager.DRAManager``: pools, allocated devices, results of searches. Pods
whose claims have equal specs share an ``AllocationCache`` in it. A pod alone has its ``StateData``.

A change of slices or of devices in use gives nodes another availability and invalidates no result.
A change of a DeviceClass, and a new epoch of the availability index, invalidate all results.
"""

from proreus.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
