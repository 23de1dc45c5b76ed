"""Reads metrics of nodes from a load-watcher, Prometheus, or metrics.k8s.io."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from proreus.addons.node_metrics.metrics import (
    AVERAGE,
    CPU,
    DEVIATION,
    LATEST,
    MEMORY,
    Aggregation,
    Metric,
    MetricsData,
    NodeMetricList,
    WatcherMetrics,
    Window,
)
from proreus.framework import ApiError, ConfigModel, Handle, PluginArgs
from proreus.objects import ApiStruct, ObjectMeta, Resource, parse_amount

WINDOWS_MINUTES = (15, 10, 5)
"""Windows of means and deviations, tried in this order."""

PROMETHEUS = "http://prometheus-k8s:9090"
PROMETHEUS_SERIES = {
    CPU: "instance:node_cpu:ratio",
    MEMORY: "instance:node_memory_utilisation:ratio",
}
_PROMETHEUS_FUNCTIONS = {AVERAGE: "avg_over_time", DEVIATION: "stddev_over_time"}


class MetricProvider(ConfigModel):
    """The source of metrics. ``insecure_skip_verify``: by default true for Prometheus only."""

    type: Literal["KubernetesMetricsServer", "Prometheus"] = "KubernetesMetricsServer"
    address: str = ""
    token: str = ""
    insecure_skip_verify: bool | None = None


class NodeMetricsArgs(PluginArgs):
    """``watcher_address``: of a load-watcher; it takes precedence over ``metric_provider``."""

    metric_provider: MetricProvider = MetricProvider()
    watcher_address: str = ""

    @property
    def aggregations(self) -> tuple[Aggregation, ...]:
        """The aggregations to read besides means and deviations; only Prometheus has them."""
        return ()


class NodeUsage(ApiStruct, frozen=True):
    """metrics.k8s.io NodeMetrics."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: datetime | None = None
    window: str = ""
    usage: dict[str, str | int | float] = {}


NODE_USAGES = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, NodeUsage)


class LoadWatcher:
    """A load-watcher service, which collects metrics itself."""

    def __init__(self, args: NodeMetricsArgs, handle: Handle) -> None:
        self._url = f"{args.watcher_address.rstrip('/')}/watcher"
        self._handle = handle

    async def read(self) -> WatcherMetrics:
        """Return the answer of the service."""
        body = await self._handle.http_get(self._url)
        metrics: WatcherMetrics = decode(body, WatcherMetrics, self._url)
        return metrics


class Prometheus:
    """Recording rules of node-exporter's mixin, as ratios by ``instance``, the node's name."""

    def __init__(self, args: NodeMetricsArgs, handle: Handle) -> None:
        provider = args.metric_provider
        self._address = (provider.address or PROMETHEUS).rstrip("/")
        self._insecure = provider.insecure_skip_verify is not False
        self._headers = {"Authorization": f"Bearer {provider.token}"} if provider.token else {}
        self._aggregations = args.aggregations
        self._handle = handle

    async def read(self) -> WatcherMetrics:
        """Return the metrics of the longest window that has some."""
        for minutes in WINDOWS_MINUTES:
            found: dict[str, list[Metric]] = {}
            for type_, series in PROMETHEUS_SERIES.items():
                for operator, function in _PROMETHEUS_FUNCTIONS.items():
                    for node, ratio in await self._query(f"{function}({series}[{minutes}m])"):
                        found.setdefault(node, []).append(Metric(type_, operator, 100 * ratio))
            if found:
                await self._add_aggregations(found)
                now = self._handle.clock.now()
                window = Window(f"{minutes}m", now - 60 * minutes, now)
                nodes = {name: NodeMetricList(tuple(metrics)) for name, metrics in found.items()}
                return WatcherMetrics(window, MetricsData(nodes))
        raise ApiError(0, "NoMetrics", f"{self._address} has none of the series that are asked for")

    async def _add_aggregations(self, found: dict[str, list[Metric]]) -> None:
        for aggregation in self._aggregations:
            for type_, series in PROMETHEUS_SERIES.items():
                over = f"{series}[{aggregation.seconds}s])"
                query = f"avg_over_time({over}"
                if aggregation.kind != "avg":
                    query = f"quantile_over_time(0.{aggregation.kind[1:]},{over}"
                for node, ratio in await self._query(query):
                    metric = Metric(type_, aggregation.operator, 100 * ratio)
                    found.setdefault(node, []).append(metric)

    async def _query(self, query: str) -> list[tuple[str, float]]:
        url = f"{self._address}/api/v1/query?{urlencode({'query': query})}"
        body = await self._handle.http_get(
            url, headers=self._headers, insecure_skip_verify=self._insecure
        )
        answer: Any = decode(body, dict[str, Any], url)
        try:
            return [
                (str(series["metric"]["instance"]).partition(":")[0], float(series["value"][1]))
                for series in answer["data"]["result"]
                if "instance" in series["metric"]
            ]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ApiError(0, "Unreadable", f"{url} answered no vector: {error!r}") from error


class MetricsServer:
    """metrics.k8s.io, which has the latest value of each node and no deviation."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def read(self) -> WatcherMetrics:
        """Return the latest values."""
        nodes, ends = {}, []
        for one in await self._handle.api.list_all(NODE_USAGES):
            row = self._handle.nodes.rows.get(one.metadata.name)
            node = None if row is None else self._handle.nodes[row].node
            if node is None or one.timestamp is None:
                continue
            ends.append(one.timestamp.timestamp())
            nodes[one.metadata.name] = NodeMetricList(percentages(one.usage, node.status.capacity))
        if not nodes:
            raise ApiError(0, "NoMetrics", "metrics.k8s.io has no metrics of nodes")
        minutes = WINDOWS_MINUTES[0]
        window = Window(f"{minutes}m", max(ends) - 60 * minutes, max(ends))
        return WatcherMetrics(window, MetricsData(nodes))


Provider = LoadWatcher | Prometheus | MetricsServer


def provider_of(args: NodeMetricsArgs, handle: Handle) -> Provider:
    """Return the provider that the arguments choose."""
    if args.watcher_address:
        return LoadWatcher(args, handle)
    if args.metric_provider.type == "Prometheus":
        return Prometheus(args, handle)
    return MetricsServer(handle)


def percentages(
    usage: Mapping[str, str | int | float], capacity: Mapping[str, str | int | float]
) -> tuple[Metric, ...]:
    """Return the use in percent of the capacity, for the resources that have both."""
    found = []
    for resource, type_ in (("cpu", CPU), ("memory", MEMORY)):
        most = parse_amount(resource, capacity.get(resource, 0))
        if resource in usage and most:
            used = parse_amount(resource, usage[resource])
            found.append(Metric(type_, LATEST, 100 * used / most))
    return tuple(found)


def decode(body: bytes, type_: Any, url: str) -> Any:
    """Return a JSON body as a type; raises ``ApiError``."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"{url} answered something else: {error}") from error
