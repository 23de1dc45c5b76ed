"""The feature gates that DynamicResources looks at, read once."""

from __future__ import annotations

from dataclasses import dataclass

from proreus.feature_gates import FeatureGates
from proreus.logs import logger

log = logger(__name__)

NOT_BUILT = {
    "DRANodeAllocatableResources": "devices that stand for cpu, memory and the like are not "
    "counted among the requests of pods: nodes may be given more than they have",
}
"""Alpha gates that are accepted, and what proreus does not do although they are on."""


def warn_of_what_is_not_built(gates: FeatureGates) -> None:
    """Say which gates that are on do not have their whole effect."""
    for name, effect in NOT_BUILT.items():
        if gates.enabled(name):
            log.warning("Feature gate is on, but proreus lacks a part of it", gate=name, so=effect)


@dataclass(frozen=True, slots=True)
class Features:
    """One attribute a gate; see ``docs/plugins/dynamic-resources.md`` for what each adds."""

    admin_access: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    device_taint_rules: bool = False
    device_taints: bool = True
    extended_resources: bool = True
    filter_timeout: bool = True
    list_attributes: bool = False
    partitionable_devices: bool = True
    prioritized_list: bool = True
    workload_claims: bool = False

    @classmethod
    def of(cls, gates: FeatureGates) -> Features:
        """Read the gates."""
        on = gates.enabled
        return cls(
            admin_access=on("DRAAdminAccess"),
            binding_conditions=on("DRADeviceBindingConditions")
            and on("DRAResourceClaimDeviceStatus"),
            consumable_capacity=on("DRAConsumableCapacity"),
            device_taint_rules=on("DRADeviceTaintRules") and on("DRADeviceTaints"),
            device_taints=on("DRADeviceTaints"),
            extended_resources=on("DRAExtendedResource"),
            filter_timeout=on("DRASchedulerFilterTimeout"),
            list_attributes=on("DRAListTypeAttributes"),
            partitionable_devices=on("DRAPartitionableDevices"),
            prioritized_list=on("DRAPrioritizedList"),
            workload_claims=on("DRAWorkloadResourceClaims"),
        )

    @property
    def stable_allocator(self) -> bool:
        """Whether kube-scheduler would use its older, smaller allocator."""
        return not (self.consumable_capacity or self.binding_conditions)
