"""DynamicResources: allocates devices to ResourceClaims (KEP-4381, structured parameters).

``plugin`` has the extension points, in the order of a pod's attempt. They delegate:

- PreEnqueue, PreFilter: ``claims``, ``pre_filtering``, ``state_data``
- Filter, Score: ``filtering`` over columns of nodes
- its search: ``search``: ``prepared_claims``, ``alternative`` (what), ``allocator`` (how), by
  ``devices``: ``pools`` and ``availability_index`` (where)
- its selectors: ``devices.kinds`` (results by kind of device), ``cel``
- Reserve: ``binding.reservation``, ``devices.allocated`` (in flight), ``search.results``
- PreBind, Unreserve, PostFilter: ``binding.reservation``, ``binding.deallocation``
- events: ``hints``; scores of other plugins: ``scored_devices``, ``devices.device_totals``

Profiles share one ``dra_manager.DRAManager``: pools, allocated devices, results of searches. Pods
whose claims have equal specs share an ``AllocationCache`` in it. A pod alone has its ``StateData``.

A change of slices or of devices in use gives nodes another availability and invalidates no result.
A change of a DeviceClass, and a new epoch of the availability index, invalidate all results.
"""

from proreus.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
