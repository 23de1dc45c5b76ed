"""Add-ons: plugins beyond kube-scheduler's own, for batch, AI and network-aware clusters.

One folder a plugin, named as its project names it. They are known by name and belong to no default
profile; a module is imported once a configuration names its plugin (``engine.runtime.registry``),
so that a scheduler without them pays nothing. They use the public plugin API, as any other plugin,
and what custom resources they read is watched only while they are enabled. docs/addons/ has a page
each.
"""

from collections.abc import Mapping
from types import MappingProxyType

ADD_ONS: Mapping[str, str] = MappingProxyType(
    {
        "NodeResourcesAllocatable": "proreus.addons.node_resources_allocatable",
        "PodState": "proreus.addons.pod_state",
        "NodeMetadata": "proreus.addons.node_metadata",
        "QOSSort": "proreus.addons.qos_sort",
        "PreemptionToleration": "proreus.addons.preemption_toleration",
        "CapacityScheduling": "proreus.addons.capacity_scheduling",
        "Coscheduling": "proreus.addons.coscheduling",
        "NodeResourceTopologyMatch": "proreus.addons.node_resource_topology_match",
        "TargetLoadPacking": "proreus.addons.trimaran.target_load_packing",
        "LoadVariationRiskBalancing": "proreus.addons.trimaran.load_variation_risk_balancing",
        "LowRiskOverCommitment": "proreus.addons.trimaran.low_risk_over_commitment",
        "Peaks": "proreus.addons.trimaran.peaks",
        "LoadAwareScheduling": "proreus.addons.load_aware_scheduling",
        "Colocation": "proreus.addons.colocation",
        "NetworkOverhead": "proreus.addons.network_aware.network_overhead",
        "TopologicalSort": "proreus.addons.network_aware.topological_sort",
        "Reservation": "proreus.addons.reservation",
        "SySched": "proreus.addons.sysched",
        "GangPreemption": "proreus.addons.gang_preemption",
        "GroupTopology": "proreus.addons.group_topology",
        "DelayScheduling": "proreus.addons.delay_scheduling",
        "JobBarrier": "proreus.addons.job_barrier",
        "BusinessWeight": "proreus.addons.business_weight",
        "DeviceShare": "proreus.addons.device_share",
    }
)
"""The module of each add-on, by the name of the plugin, which is that of its class."""
