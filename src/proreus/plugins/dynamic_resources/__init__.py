"""DynamicResources: allocates devices to ResourceClaims (KEP-4381, structured parameters).

Which file is which step of a pod (``plugin`` has the extension points in this order):

- PreEnqueue, PreFilter: ``claims`` (a pod's claims), ``state_data``, ``pod_group_claims``
- Filter, Score: ``filtering`` over columns of nodes; ``extended_resources``, ``node_allocatable``
- its search: ``prepared_claims`` (what), ``availability_index`` (where), ``allocator`` and
  ``allocating_devices`` (how), with ``constraints``, ``consumed_counters``, ``capacity``
- its selectors: ``devices`` (results by kind of device), ``cel`` and ``cel_*``
- Reserve: ``allocated`` (allocations in flight), ``results`` (names for positions)
- PreBind, Unreserve, PostFilter: ``claim_binder``, ``claim_writes``
- events: ``hints``; scores of other plugins: ``scored_devices``, ``device_totals``

Profiles share one ``dra_manager.DRAManager``: pools, allocated devices, results of searches. Pods
whose claims have equal specs share an ``AllocationCache`` in it. A pod alone has its ``StateData``.

A change of a slice, or of the devices in use, gives the nodes concerned another availability; no
result is invalidated. A DeviceClass voids all results. So does a new epoch of the index.
"""

from proreus.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
