"""LoadVariationRiskBalancing: prefer nodes whose use is low and steady.

Worked example: 4 CPUs, on average 50 % used with a standard deviation of 10 %, and a pod that
requests 400m: the mean becomes 60 %, the risk (0.6 + 0.1) / 2, the score 65.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import floor, inf, nan, pow

import numpy as np

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Metric, Usage, WatcherMetrics, usage_of
from proreus.addons.node_metrics.node_columns import FloatArray, NodeColumns
from proreus.addons.node_metrics.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.addons.trimaran.recent_requests import RecentRequestsArgs, RecentRequestsPlugin
from proreus.framework import Handle, IntArray, NodeInfo, NodeTable, PodInfo
from proreus.objects import Node


class LoadVariationRiskBalancingArgs(RecentRequestsArgs):
    """How much the deviation counts: it is raised to 1/sensitivity and multiplied by the margin."""

    safe_variance_margin: float = 1.0
    safe_variance_sensitivity: float = 1.0


class LoadVariationRiskBalancing(RecentRequestsPlugin):
    """Prefer nodes with a low sum of the mean use and its deviation."""

    Args = LoadVariationRiskBalancingArgs
    args: LoadVariationRiskBalancingArgs

    def __init__(self, args: LoadVariationRiskBalancingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._columns = NodeColumns(usages_in_percent, 4)

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the requests of the pod."""
        amounts = effective_amounts(pod.pod)
        return amounts["cpu"], amounts["memory"]

    def score_measured(self, measured: WatcherMetrics, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by the worse of its cpu and memory; 0 without a metric of either."""
        metrics = measured.of(node.name)
        requests, recent = effective_amounts(pod.pod), self.recent_requests(measured, node)
        scores = [
            self._score(usage, node.allocatable[resource], max(requests[resource], 0) + of_recent)
            for resource, type_, of_recent in zip(
                CPU_AND_MEMORY, (CPU, MEMORY), recent, strict=True
            )
            if (usage := usage_of(metrics, type_)) is not None
        ]
        return floor(min(scores) + 0.5) if scores else 0

    def score_all_measured(
        self, measured: WatcherMetrics, pod: PodInfo, nodes: NodeTable
    ) -> IntArray:
        """Score all nodes by the worse of cpu and memory; 0 without a metric of either."""
        usages = self._columns.of_all(measured, nodes).reshape(2, 2, -1)
        requests = effective_amounts(pod.pod)
        recent = self.recent_requests_of_all(measured, nodes)
        scores = [
            self._scores(
                mean, deviation, nodes.allocatable[resource], max(requests[resource], 0) + of_recent
            )
            for resource, (mean, deviation), of_recent in zip(
                CPU_AND_MEMORY, usages, recent, strict=True
            )
        ]
        # What is not measured does not count, unless nothing is.
        worst = np.fmin(*scores)
        found: IntArray = np.where(np.isnan(worst), 0, np.floor(worst + 0.5)).astype(np.int64)
        return found

    def _scores(
        self, average: FloatArray, deviation: FloatArray, capacity: IntArray, requested: IntArray
    ) -> FloatArray:
        """Return ``_score`` of each node, NaN where nothing is measured."""
        margin, exponent = self._margin_and_exponent
        most = np.maximum(capacity, 1)
        used = np.clip(average * capacity / 100, 0.0, capacity)
        mean = np.clip((used + requested) / most, 0.0, 1.0)
        deviation = np.clip(np.clip(deviation * capacity / 100, 0.0, capacity) / most, 0.0, 1.0)
        if exponent != 1:
            # Not np.power, which may differ from ``pow`` in the last digit.
            deviation = np.array([pow(one, exponent) for one in deviation.tolist()])
        deviation = np.clip(deviation * margin, 0.0, 1.0)
        scores: FloatArray = (1 - (mean + deviation) / 2) * 100
        scores[(capacity <= 0) & ~np.isnan(average)] = 0
        return scores

    @property
    def _margin_and_exponent(self) -> tuple[float, float]:
        margin, sensitivity = self.args.safe_variance_margin, self.args.safe_variance_sensitivity
        sensitivity = sensitivity if sensitivity >= 0 else 1.0
        return margin if margin >= 0 else 1.0, 1 / sensitivity if sensitivity else inf

    def _score(self, usage: Usage, capacity: int, requested: int) -> float:
        margin, exponent = self._margin_and_exponent
        if capacity <= 0:
            return 0.0
        mean, deviation = mean_and_deviation(usage, capacity, requested)
        deviation = pow(deviation, exponent)
        deviation = min(max(deviation * margin, 0.0), 1.0)
        return (1 - (mean + deviation) / 2) * 100


def usages_in_percent(metrics: tuple[Metric, ...], node: Node) -> tuple[float, ...]:
    """Return mean and deviation of cpu, then of memory, in percent."""
    cpu, memory = (usage_of(metrics, type_) or _NOT_MEASURED for type_ in (CPU, MEMORY))
    return *cpu, *memory


_NOT_MEASURED = Usage(nan, nan)


def mean_and_deviation(usage: Usage, capacity: int, requested: int) -> tuple[float, float]:
    """Return mean (with what is requested) and deviation as fractions of a positive capacity."""
    used = min(max(usage.average * capacity / 100, 0.0), capacity)
    deviation = min(max(usage.deviation * capacity / 100, 0.0), capacity)
    mean = min(max((used + max(requested, 0)) / capacity, 0.0), 1.0)
    return mean, min(max(deviation / capacity, 0.0), 1.0)
