"""LoadVariationRiskBalancing: prefer nodes whose use is low and steady.

Worked example: 4 CPUs, on average 50 % used with a standard deviation of 10 %, and a pod that
requests 400m: the mean becomes 60 %, the risk (0.6 + 0.1) / 2, the score 65.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf, nan, pow

import numpy as np

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Metric, Usage, usage_of
from proreus.addons.node_metrics.node_columns import FloatArray, NodeColumns
from proreus.addons.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.addons.trimaran.recent_requests import RecentRequestsArgs, RecentRequestsPlugin
from proreus.framework import CycleState, Handle, IntArray, NodeTable, PodInfo, ScorePlugin
from proreus.objects import Node


class LoadVariationRiskBalancingArgs(RecentRequestsArgs):
    """The deviation is raised to 1/sensitivity and multiplied by the margin."""

    safe_variance_margin: float = 1.0
    safe_variance_sensitivity: float = 1.0


class LoadVariationRiskBalancing(ScorePlugin, RecentRequestsPlugin):
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

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score nodes by the worse of cpu and memory; 0 without a metric of either."""
        measured = self.measured
        if measured is None:
            return 0
        usages = self._columns.of_all(measured, nodes).reshape(2, 2, -1)
        requests = effective_amounts(pod.pod)
        recent = self.recent_requests(measured, nodes)
        scores = [
            self._scores(
                mean, deviation, nodes.allocatable[resource], max(requests[resource], 0) + of_recent
            )
            for resource, (mean, deviation), of_recent in zip(
                CPU_AND_MEMORY, usages, recent, strict=True
            )
        ]
        # A resource without a metric does not count, unless there is none at all.
        worst = np.fmin(*scores)
        found: IntArray = np.where(np.isnan(worst), 0, np.floor(worst + 0.5)).astype(np.int64)
        return found

    def _scores(
        self, average: FloatArray, deviation: FloatArray, capacity: IntArray, requested: IntArray
    ) -> FloatArray:
        """Return 100 less the mean of use and deviation in percent; NaN without a metric."""
        margin, sensitivity = self.args.safe_variance_margin, self.args.safe_variance_sensitivity
        margin = margin if margin >= 0 else 1.0
        sensitivity = sensitivity if sensitivity >= 0 else 1.0
        exponent = 1 / sensitivity if sensitivity else inf
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


def usages_in_percent(metrics: tuple[Metric, ...], node: Node) -> tuple[float, ...]:
    """Return mean and deviation of cpu, then of memory, in percent."""
    cpu, memory = (usage_of(metrics, type_) or _NOT_MEASURED for type_ in (CPU, MEMORY))
    return *cpu, *memory


_NOT_MEASURED = Usage(nan, nan)
