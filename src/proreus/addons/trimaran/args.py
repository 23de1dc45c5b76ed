"""The arguments that all plugins of the family share: where metrics come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import model_validator

from proreus.framework import ConfigModel, FeatureGates, PluginArgs, field_errors


class MetricProvider(ConfigModel):
    """Where metrics are read. ``insecure_skip_verify``: by default true for Prometheus only."""

    type: Literal["KubernetesMetricsServer", "Prometheus"] = "KubernetesMetricsServer"
    address: str = ""
    token: str = ""
    insecure_skip_verify: bool | None = None


class TrimaranArgs(PluginArgs):
    """``watcher_address``: of a load-watcher; it takes precedence over ``metric_provider``.

    ``staleness_windows``: metrics that end more than so many of their windows ago are not used.
    """

    metric_provider: MetricProvider = MetricProvider()
    watcher_address: str = ""
    staleness_windows: float = 3.0

    @model_validator(mode="before")
    @classmethod
    def _capitals(cls, data: Any) -> Any:
        # The original's Peaks takes its fields in capitals alone, by a malformed tag.
        if isinstance(data, dict):
            return {
                name[:1].lower() + name[1:] if isinstance(name, str) else name: value
                for name, value in data.items()
            }
        return data

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that metrics are used for some time at least."""
        if self.staleness_windows <= 0:
            where = field_errors.child(path, "stalenessWindows")
            yield field_errors.invalid(where, self.staleness_windows, "must be positive")
