"""The arguments that all plugins of measured use have: where metrics come from."""

from __future__ import annotations

from typing import Literal

from proreus.framework import ConfigModel, PluginArgs


class MetricProvider(ConfigModel):
    """Where metrics are read. ``insecure_skip_verify``: by default true for Prometheus only."""

    type: Literal["KubernetesMetricsServer", "Prometheus"] = "KubernetesMetricsServer"
    address: str = ""
    token: str = ""
    insecure_skip_verify: bool | None = None


class NodeMetricsArgs(PluginArgs):
    """``watcher_address``: of a load-watcher; it takes precedence over ``metric_provider``."""

    metric_provider: MetricProvider = MetricProvider()
    watcher_address: str = ""
