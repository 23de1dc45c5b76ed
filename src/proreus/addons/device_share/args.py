"""The arguments of DeviceShare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from proreus.framework import ConfigModel, FeatureGates, PluginArgs, field_errors


class WeightedDeviceResource(ConfigModel):
    """A resource of GPUs, by Koordinator's name, and its weight."""

    name: Literal["koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"]
    weight: int = 1


class DeviceScoringStrategy(ConfigModel):
    """Which node, and which device of it, is best.

    ``LeastAllocated`` spreads pods, ``MostAllocated`` is best fit, ``LeastFragmented`` leaves as
    little as possible that the pods seen lately could not use.
    """

    type: Literal["LeastAllocated", "MostAllocated", "LeastFragmented"] = "LeastAllocated"
    resources: tuple[WeightedDeviceResource, ...] = (
        WeightedDeviceResource(name="koordinator.sh/gpu-core"),
        WeightedDeviceResource(name="koordinator.sh/gpu-memory-ratio"),
    )

    def weight(self, name: str) -> int:
        """Return the weight of a resource, 0 if it is not listed."""
        return sum(one.weight for one in self.resources if one.name == name)


class DeviceShareArgs(PluginArgs):
    """``cpu_only_pods``: whether pods that ask for no device avoid nodes with GPUs (Score), are
    rejected there (Filter), or go anywhere."""

    # Those of Koordinator.
    arguments_without_effect = {
        "allocator": "there is one allocator",
        "disableDeviceNUMATopologyAlignment": "devices are not aligned with CPUs",
        "gpuSharedResourceTemplatesConfig": "GPUs are shared by what pods request",
        "gpuShareUnsupportedModels": "GPUs of all models are shared",
    }

    scoring_strategy: DeviceScoringStrategy = DeviceScoringStrategy()
    cpu_only_pods: Literal["Avoid", "Reject", "Allow"] = "Avoid"
    recent_requests: int = 1000
    """How many requests ``LeastFragmented`` looks back at."""

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the numbers."""
        if self.recent_requests < 1:
            where = field_errors.child(path, "recentRequests")
            yield field_errors.invalid(where, self.recent_requests, "must be > 0")
        where = field_errors.child(field_errors.child(path, "scoringStrategy"), "resources")
        weights = [one.weight for one in self.scoring_strategy.resources]
        if any(weight < 0 for weight in weights) or not any(weights):
            yield field_errors.invalid(where, weights, "weights must be >= 0, and one of them > 0")
