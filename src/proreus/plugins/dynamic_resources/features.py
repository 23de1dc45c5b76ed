"""The feature gates of DynamicResources, read once (``feature.Features`` upstream)."""

from __future__ import annotations

from msgspec import Struct

from proreus.base.feature_gates import FeatureGates
from proreus.base.known_faults import KnownFault
from proreus.base.kubernetes_version import Change


class Features(Struct, frozen=True):
    """One attribute a gate, three for the ``Change`` of their names.

    ``consistent_pools``: ``KnownFault.DEVICE_POOL_COUNTS``.
    See ``docs/plugins/dynamic-resources.md`` for what each adds.
    """

    admin_access: bool = True
    binding_conditions: bool = True
    compatibility_groups: bool = False
    consumable_capacity: bool = True
    derived_attributes: bool = False
    device_taint_rules: bool = False
    device_taints: bool = True
    extended_resources: bool = True
    filter_timeout: bool = True
    fractional_capacity_range: bool = False
    list_attributes: bool = False
    node_allocatable: bool = False
    optional_node_operations: bool = False
    partitionable_devices: bool = True
    prioritized_list: bool = True
    workload_claims: bool = False
    allocator_of_1_37: bool = True
    allocator_of_1_38: bool = False
    consistent_pools: bool = False
    node_allocatable_overhead: bool = True

    @classmethod
    def of(cls, gates: FeatureGates) -> Features:
        """Return the features that the gates enable."""
        # As upstream, some features need two gates: conditions without the status to report them
        # in, or taint rules without taints, would have no effect.
        on, since_1_37 = gates.enabled, gates.includes(Change.ALLOCATOR_OF_1_37)
        return cls(
            admin_access=on("DRAAdminAccess"),
            binding_conditions=on("DRADeviceBindingConditions")
            and on("DRAResourceClaimDeviceStatus"),
            compatibility_groups=on("DRADeviceCompatibilityGroups"),
            consumable_capacity=on("DRAConsumableCapacity"),
            derived_attributes=on("DRADerivedAttributes"),
            device_taint_rules=on("DRADeviceTaintRules") and on("DRADeviceTaints"),
            device_taints=on("DRADeviceTaints"),
            extended_resources=on("DRAExtendedResource"),
            filter_timeout=on("DRASchedulerFilterTimeout"),
            fractional_capacity_range=on("DRAFractionalCapacityRange"),
            list_attributes=on("DRAListTypeAttributes"),
            node_allocatable=on("DRANodeAllocatableResources"),
            optional_node_operations=on("DRAOptionalNodeOperations"),
            partitionable_devices=on("DRAPartitionableDevices"),
            prioritized_list=on("DRAPrioritizedList"),
            workload_claims=on("DRAWorkloadResourceClaims"),
            allocator_of_1_37=since_1_37,
            allocator_of_1_38=gates.includes(Change.ALLOCATOR_OF_1_38),
            consistent_pools=gates.corrects(KnownFault.DEVICE_POOL_COUNTS),
            node_allocatable_overhead=gates.includes(Change.NODE_ALLOCATABLE_OVERHEAD),
        )

    @property
    def compares_lists(self) -> bool:
        """Whether constraints compare attributes that are lists; 1.36 ignores the gate there."""
        return self.list_attributes and self.allocator_of_1_37

    # kube-scheduler picks the first of its three allocators that supports all enabled features.

    @property
    def stable_allocator(self) -> bool:
        """Whether kube-scheduler would use its stable allocator."""
        beta = self.consumable_capacity or self.binding_conditions
        return not self.experimental_allocator and (self.allocator_of_1_38 or not beta)

    @property
    def minimal_allocator(self) -> bool:
        """Whether it would use that of 1.37 and before, which knows fewer features."""
        return self.stable_allocator and not self.allocator_of_1_38

    @property
    def experimental_allocator(self) -> bool:
        """Whether kube-scheduler would use an allocator that knows features in alpha."""
        return (
            self.compatibility_groups
            or self.derived_attributes
            or self.list_attributes
            or self.optional_node_operations
        )
