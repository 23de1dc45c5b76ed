"""The arguments of NodeResourceTopologyMatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from proreus.framework import ConfigModel, FeatureGates, PluginArgs, field_errors


class ScoredZoneResource(ConfigModel):
    """A resource and its weight; below 1 counts as 1."""

    name: str
    weight: int = 1


class ZoneScoringStrategy(ConfigModel):
    """How nodes are scored."""

    type: Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"] = (
        "LeastAllocated"
    )
    resources: tuple[ScoredZoneResource, ...] = (
        ScoredZoneResource(name="cpu"),
        ScoredZoneResource(name="memory"),
    )

    def weights(self) -> dict[str, int]:
        """Return the weights by resource; others count once."""
        return {one.name: max(one.weight, 1) for one in self.resources}


class TopologyCacheArgs(ConfigModel):
    """How the cache learns that agents have caught up."""

    foreign_pods_detect: Literal["None", "All", "OnlyExclusiveResources"] = "All"
    resync_method: Literal["Autodetect", "All", "OnlyExclusiveResources"] = "Autodetect"
    informer_mode: Literal["Dedicated", "Shared"] = "Dedicated"
    resync_scope: Literal["All", "OnlyResources"] = "All"


class NodeResourceTopologyMatchArgs(PluginArgs):
    """Scoring, and what bridges the time until agents publish (see ``cache``)."""

    # That of Koordinator's NodeNUMAResource, whose place this plugin takes.
    points_without_effect = frozenset({"preBind"})

    scoring_strategy: ZoneScoringStrategy = ZoneScoringStrategy()
    cache_resync_period_seconds: int = 0
    discard_reserved_nodes: bool = False
    cache: TopologyCacheArgs | None = None
    preemption_mode: Literal["Disabled", "Enabled"] = "Disabled"

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the period."""
        if self.cache_resync_period_seconds < 0:
            where = field_errors.child(path, "cacheResyncPeriodSeconds")
            yield field_errors.invalid(where, self.cache_resync_period_seconds, "must be >= 0")
