"""A catalog of kube-scheduler's plugins, with the extension points that they have upstream."""

from __future__ import annotations

import pytest

from proreus.config.fields import PluginArgs
from proreus.config.types import API_VERSION, KIND
from proreus.plugins import IN_TREE_PLUGINS

# kube-scheduler 1.38: which plugin has which extension points
POINTS = {
    "preEnqueue": "SchedulingGates DynamicResources DefaultPreemption GangScheduling",
    "queueSort": "PrioritySort",
    "preFilter": "NodeName NodeUnschedulable TaintToleration "
    "NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits "
    "VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources "
    "NodeDeclaredFeatures",
    "filter": "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit "
    "VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread "
    "InterPodAffinity DynamicResources NodeDeclaredFeatures",
    "postFilter": "DynamicResources DefaultPreemption",
    "preScore": "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread "
    "InterPodAffinity NodeResourcesBalancedAllocation",
    "score": "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread "
    "InterPodAffinity DynamicResources NodeResourcesBalancedAllocation ImageLocality",
    "reserve": "VolumeBinding DynamicResources DefaultPreemption",
    "permit": "GangScheduling",
    "preBind": "VolumeBinding DynamicResources",
    "bind": "DefaultBinder",
    "placementGenerate": "TopologyPlacementGenerator",
    "placementScore": "NodeResourcesFit PodGroupPodsCount",
    "placementFeasible": "GangScheduling",
    "podGroupPostFilter": "DynamicResources DefaultPreemption",
}
IN_TREE_ARGS = {plugin.name: plugin.Args for plugin in IN_TREE_PLUGINS}


class FakeCatalog:
    """All of kube-scheduler's plugins, and ``extra`` ones with their args."""

    def __init__(
        self,
        extra: dict[str, type[PluginArgs] | None] | None = None,
    ) -> None:
        self.extra = extra or {}
        self._names = IN_TREE_ARGS.keys() | self.extra.keys()

    def names(self) -> frozenset[str]:
        return frozenset(self._names)

    def is_in_tree(self, name: str) -> bool:
        return name in IN_TREE_ARGS

    def args_model(self, name: str) -> type[PluginArgs] | None:
        return self.extra.get(name) or IN_TREE_ARGS.get(name)

    def points(self, name: str) -> frozenset[str]:
        if name in self.extra:
            return frozenset({"filter", "score"})
        return frozenset(point for point, names in POINTS.items() if name in names.split())


def document(**fields: object) -> dict[str, object]:
    """Return a configuration as plain data."""
    return {"apiVersion": API_VERSION, "kind": KIND, **fields}


@pytest.fixture
def catalog() -> FakeCatalog:
    return FakeCatalog()


@pytest.fixture
def catalog_type() -> type[FakeCatalog]:
    return FakeCatalog


@pytest.fixture
def with_document():
    return document
