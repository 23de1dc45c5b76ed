"""The arguments of VolumeBinding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, invalid
from proreus.config.fields import Int64, PluginArgs
from proreus.plugins.resource_scoring_args import (
    MAX_CUSTOM_SCORE,
    MAX_UTILIZATION,
    UtilizationShapePoint,
    shape_problems,
)


class VolumeBindingArgs(PluginArgs):
    """How long PreBind waits for volumes, and how storage capacity is scored."""

    go_type = "v1.VolumeBindingArgs"

    bind_timeout_seconds: Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Prefer nodes whose storage the pod uses least, if StorageCapacityScoring is enabled."""
        if self.shape or not gates.enabled("StorageCapacityScoring"):
            return self
        shape = (
            UtilizationShapePoint(utilization=0, score=MAX_CUSTOM_SCORE),
            UtilizationShapePoint(utilization=MAX_UTILIZATION, score=0),
        )
        return self.model_copy(update={"shape": shape})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the timeout, and the shape, which is an error while its gate is disabled."""
        if self.bind_timeout_seconds < 0:
            yield invalid(
                child(path, "bindTimeoutSeconds"),
                self.bind_timeout_seconds,
                "invalid BindTimeoutSeconds, should not be a negative value",
            )
        where = child(path, "shape")
        if gates.enabled("StorageCapacityScoring"):
            yield from shape_problems(self.shape or (), where)
        elif self.shape is not None:
            points = [{"Utilization": p.utilization, "Score": p.score} for p in self.shape]
            yield invalid(
                where,
                points,
                "unexpected field `shape`, remove it or turn on the feature gate "
                "StorageCapacityScoring",
            )
