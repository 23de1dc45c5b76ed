"""The arguments of NodeResourcesFit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, forbidden, invalid, item, required, unsupported
from proreus.config.fields import ConfigModel, PluginArgs, Text
from proreus.config.names import label_key_problems
from proreus.plugins.resource_scoring_args import (
    ResourceSpec,
    UtilizationShapePoint,
    shape_problems,
    weighted,
)


class RequestedToCapacityRatioParam(ConfigModel):
    """The score as a function of utilization, linear between the points of ``shape``."""

    go_type = "v1.RequestedToCapacityRatioParam"

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(ConfigModel):
    """The scores of NodeResourcesFit: LeastAllocated, MostAllocated, RequestedToCapacityRatio."""

    go_type = "v1.ScoringStrategy"

    type: Text = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class NodeResourcesFitArgs(PluginArgs):
    """Extended resources that Filter ignores, and the scoring strategy."""

    go_type = "v1.NodeResourcesFitArgs"
    checked_at_construction = True

    ignored_resources: tuple[Text, ...] = ()
    ignored_resource_groups: tuple[Text, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Score cpu and memory if no resources are given; weight 0 means 1."""
        resources = weighted(self.scoring_strategy.resources)
        strategy = self.scoring_strategy.model_copy(update={"resources": resources})
        return self.model_copy(update={"scoring_strategy": strategy})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the names of ignored resources, then the strategy."""
        for index, name in enumerate(self.ignored_resources):
            where = item(child(path, "ignoredResources"), index)
            yield from label_key_problems(where, name)
        for index, group in enumerate(self.ignored_resource_groups):
            where = item(child(path, "ignoredResourceGroups"), index)
            if "/" in group:
                yield invalid(where, group, "resource group name can't contain '/'")
            yield from label_key_problems(where, group)
        yield from self._strategy_problems(child(path, "scoringStrategy"))

    def _strategy_problems(self, path: str) -> Iterator[str]:
        strategy = self.scoring_strategy
        types = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
        if strategy.type not in types:
            yield unsupported(child(path, "type"), strategy.type, types)
        for index, resource in enumerate(strategy.resources):
            if not 0 < resource.weight <= 100:
                where = child(item(child(path, "resources"), index), "weight")
                detail = f"resource weight of {resource.name} not in valid range (0, 100]"
                yield invalid(where, resource.weight, detail)
        ratio = strategy.requested_to_capacity_ratio
        where = child(path, "requestedToCapacityRatio")
        if strategy.type == "RequestedToCapacityRatio":
            if ratio is None:
                yield required(where, "must be specified when type is RequestedToCapacityRatio")
            else:
                yield from shape_problems(ratio.shape, child(where, "shape"))
        elif ratio is not None:
            yield forbidden(where, "must be nil when type is not RequestedToCapacityRatio")
