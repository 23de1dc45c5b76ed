"""Every in-tree plugin that filters or scores nodes has the same results in all its forms.

Columns and single nodes agree, shared results and new ones agree. Each case draws as many clusters
as hypothesis' profile says (CONTRIBUTING.md describes ``thorough``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import strategies as st

from proreus.framework.plugin import FilterPlugin, Plugin, ScorePlugin
from proreus.objects.node import LABEL_ZONE
from proreus.plugins import IN_TREE_PLUGINS
from proreus.plugins.deferred_pod_scheduling import DeferredPodScheduling
from proreus.plugins.dynamic_resources import DynamicResources
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
from proreus.plugins.pod_topology_spread import PodTopologySpread
from proreus.plugins.taint_toleration import TaintToleration
from proreus.plugins.volume_binding import VolumeBinding
from proreus.plugins.volume_restrictions import VolumeRestrictions
from proreus.plugins.volume_zone import VolumeZone
from proreus.testing.agreement import agree
from proreus.testing.clusters import Cluster, clusters
from proreus.testing.device_clusters import device_clusters
from proreus.testing.inter_pod_clusters import inter_pod_clusters
from proreus.testing.volume_clusters import volume_clusters

GPU = "example.com/gpu"
FALLING = {"shape": [{"utilization": 10, "score": 9}, {"utilization": 90, "score": 0}]}
MANY_RESOURCES = [{"name": n} for n in ("cpu", "memory", "ephemeral-storage", GPU)]
WEIGHED = [{"name": "cpu", "weight": 10}, {"name": "memory", "weight": 1}, *MANY_RESOURCES[2:]]
IN_ZONE_B = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}


@dataclass(frozen=True)
class Case:
    """A plugin, its configuration, and clusters with the objects that it reads."""

    plugin: type[Plugin]
    name: str = "defaults"
    args: dict[str, Any] | None = None
    gates: tuple[str, ...] = ()
    drawn_from: st.SearchStrategy[Cluster] = field(default_factory=clusters)
    constant: tuple[Literal["Filter", "Score"], ...] = ()


def fitting(kind: str, resources: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": kind, "resources": resources, **more}}


CASES = (
    Case(NodeUnschedulable),
    Case(NodeName),
    Case(TaintToleration),
    Case(
        TaintToleration,
        "comparing",
        gates=("TaintTolerationComparisonOperators=true",),
    ),
    Case(NodeAffinity),
    Case(
        NodeAffinity,
        "added",
        {
            "addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [IN_ZONE_B]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "preference": IN_ZONE_B}
                ],
            }
        },
    ),
    # Filters deferred resizes only, which are not drawn.
    Case(
        DeferredPodScheduling,
        gates=("InPlacePodVerticalScalingSchedulerPreemption=true",),
        constant=("Filter",),
    ),
    Case(NodePorts),
    Case(NodeResourcesFit),
    Case(NodeResourcesFit, "most", fitting("MostAllocated", WEIGHED)),
    Case(
        NodeResourcesFit,
        "ratio",
        fitting("RequestedToCapacityRatio", WEIGHED, requestedToCapacityRatio=FALLING),
    ),
    Case(NodeResourcesFit, "ignoring", {"ignoredResources": [GPU]}),
    Case(
        NodeResourcesFit,
        "devices",
        fitting("LeastAllocated", MANY_RESOURCES),
        drawn_from=device_clusters(),
    ),
    Case(VolumeRestrictions, drawn_from=volume_clusters()),
    Case(NodeVolumeLimits, drawn_from=volume_clusters()),
    # Scores by gate StorageCapacityScoring only.
    Case(VolumeBinding, drawn_from=volume_clusters(), constant=("Score",)),
    Case(
        VolumeBinding,
        "scoring",
        gates=("StorageCapacityScoring=true",),
        drawn_from=volume_clusters(),
    ),
    Case(VolumeZone, drawn_from=volume_clusters()),
    Case(PodTopologySpread, drawn_from=inter_pod_clusters()),
    Case(
        PodTopologySpread,
        "list",
        {
            "defaultingType": "List",
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": LABEL_ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
            ],
        },
        drawn_from=inter_pod_clusters(),
    ),
    Case(InterPodAffinity, drawn_from=inter_pod_clusters()),
    Case(
        InterPodAffinity, "weight", {"hardPodAffinityWeight": 50}, drawn_from=inter_pod_clusters()
    ),
    Case(DynamicResources, drawn_from=device_clusters()),
    Case(NodeResourcesBalancedAllocation),
    Case(NodeResourcesBalancedAllocation, "many", {"resources": MANY_RESOURCES}),
    Case(
        NodeResourcesBalancedAllocation,
        "devices",
        {"resources": MANY_RESOURCES},
        drawn_from=device_clusters(),
    ),
    Case(ImageLocality),
    Case(NodeDeclaredFeatures, gates=("NodeDeclaredFeatures=true",)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.plugin.name}-{case.name}")
def test_forms_agree(case: Case) -> None:
    agree(
        case.plugin,
        case.args,
        gates=case.gates,
        drawn_from=case.drawn_from,
        may_be_constant=case.constant,
    )


@pytest.mark.parametrize("plugin", IN_TREE_PLUGINS, ids=lambda plugin: plugin.name)
def test_every_plugin_is_covered(plugin: type[Plugin]) -> None:
    asked_about_nodes = issubclass(plugin, (FilterPlugin, ScorePlugin))

    assert asked_about_nodes == (plugin in {case.plugin for case in CASES})
