"""Metrics of nodes in the form of load-watcher, and the choice among several of one type.

Values are percent of the node's capacity.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

AVERAGE, DEVIATION, LATEST, UNKNOWN = "AVG", "STD", "Latest", ""
CPU, MEMORY = "CPU", "Memory"


class Aggregation(NamedTuple):
    """A mean or a percentile over a window: ``kind`` avg, p50, p90, p95 or p99."""

    kind: str
    seconds: int

    @property
    def operator(self) -> str:
        """The operator of its metrics."""
        return f"{self.kind}/{self.seconds}s"


class Metric(msgspec.Struct, frozen=True):
    """One value: ``type`` CPU, Memory or another, ``operator`` AVG, STD, Latest, "", or that of
    an ``Aggregation``.
    """

    type: str = ""
    operator: str = ""
    value: float = 0.0


class NodeMetricList(msgspec.Struct, frozen=True):
    """The metrics of one node."""

    metrics: tuple[Metric, ...] | None = None


class Window(msgspec.Struct, frozen=True):
    """The time of the values: ``start`` and ``end`` in seconds since the epoch."""

    duration: str = ""
    start: float = 0.0
    end: float = 0.0


class MetricsData(msgspec.Struct, frozen=True):
    """The metrics of all nodes."""

    nodes: dict[str, NodeMetricList] | None = msgspec.field(default=None, name="NodeMetricsMap")


class WatcherMetrics(msgspec.Struct, frozen=True):
    """An answer of load-watcher."""

    window: Window = Window()
    data: MetricsData = MetricsData()

    def of(self, node_name: str) -> tuple[Metric, ...]:
        """Return the metrics of a node, () if there are none."""
        found = (self.data.nodes or {}).get(node_name)
        return () if found is None else found.metrics or ()


class Usage(NamedTuple):
    """The mean and the standard deviation of the use, in percent."""

    average: float
    deviation: float


def usage_of(metrics: tuple[Metric, ...], type_: str) -> Usage | None:
    """Return the usage of one type; None if there is no value of it.

    Averages win over the latest value, and the last of several wins. A deviation alone counts as
    measured, with average 0.
    """
    average = deviation = 0.0
    averaged = found = False
    for metric in metrics:
        if metric.type != type_:
            continue
        found = True
        if metric.operator == AVERAGE:
            average, averaged = metric.value, True
        elif metric.operator == DEVIATION:
            deviation = metric.value
        elif metric.operator in (LATEST, UNKNOWN) and not averaged:
            average = metric.value
    return Usage(average, deviation) if found else None


def cpu_values(metrics: tuple[Metric, ...]) -> list[float]:
    """Return the averages and latest values of the CPU, in their order."""
    return [one.value for one in metrics if one.type == CPU and one.operator in (AVERAGE, LATEST)]
