"""Scheduling policy: kube-scheduler's own plugins, one module each, registered by hand."""

from __future__ import annotations

from proreus.framework.plugin import Plugin
from proreus.plugins.default_binder import DefaultBinder
from proreus.plugins.default_preemption import DefaultPreemption
from proreus.plugins.deferred_pod_scheduling import DeferredPodScheduling
from proreus.plugins.dynamic_resources import DynamicResources
from proreus.plugins.gang_scheduling import GangScheduling
from proreus.plugins.image_locality import ImageLocality
from proreus.plugins.inter_pod_affinity import InterPodAffinity
from proreus.plugins.node_affinity import NodeAffinity
from proreus.plugins.node_declared_features import NodeDeclaredFeatures
from proreus.plugins.node_name import NodeName
from proreus.plugins.node_ports import NodePorts
from proreus.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.plugins.node_unschedulable import NodeUnschedulable
from proreus.plugins.node_volume_limits import NodeVolumeLimits
from proreus.plugins.pod_group_pods_count import PodGroupPodsCount
from proreus.plugins.pod_topology_spread import PodTopologySpread
from proreus.plugins.priority_sort import PrioritySort
from proreus.plugins.scheduling_gates import SchedulingGates
from proreus.plugins.taint_toleration import TaintToleration
from proreus.plugins.topology_placement_generator import TopologyPlacementGenerator
from proreus.plugins.volume_binding import VolumeBinding
from proreus.plugins.volume_restrictions import VolumeRestrictions
from proreus.plugins.volume_zone import VolumeZone

IN_TREE_PLUGINS: tuple[type[Plugin], ...] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    DeferredPodScheduling,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
)
"""Every in-tree plugin, in kube-scheduler's default order."""
