"""LoadVariationRiskBalancing: prefer nodes whose use is low and steady.

Worked example: 4 CPUs, on average 50 % used with a standard deviation of 10 %, and a pod that
requests 400m: the mean becomes 60 %, the risk (0.6 + 0.1) / 2, the score 65.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import floor, inf, pow

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Usage, WatcherMetrics, usage_of
from proreus.addons.node_metrics.pod_amounts import effective_amounts
from proreus.addons.trimaran.args import TrimaranArgs
from proreus.addons.trimaran.measured import MeasuredScorePlugin
from proreus.framework import NodeInfo, PodInfo


class LoadVariationRiskBalancingArgs(TrimaranArgs):
    """How much the deviation counts: it is raised to 1/sensitivity and multiplied by the margin."""

    safe_variance_margin: float = 1.0
    safe_variance_sensitivity: float = 1.0


class LoadVariationRiskBalancing(MeasuredScorePlugin):
    """Prefer nodes with a low sum of the mean use and its deviation."""

    Args = LoadVariationRiskBalancingArgs
    args: LoadVariationRiskBalancingArgs

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the requests of the pod."""
        amounts = effective_amounts(pod.pod)
        return amounts["cpu"], amounts["memory"]

    def score_measured(self, measured: WatcherMetrics, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by the worse of its cpu and memory; 0 without a metric of either."""
        metrics = measured.of(node.name)
        requests = effective_amounts(pod.pod)
        scores = [
            self._score(usage, node.allocatable[resource], requests[resource])
            for resource, type_ in (("cpu", CPU), ("memory", MEMORY))
            if (usage := usage_of(metrics, type_)) is not None
        ]
        return floor(min(scores) + 0.5) if scores else 0

    def _score(self, usage: Usage, capacity: int, requested: int) -> float:
        margin, sensitivity = self.args.safe_variance_margin, self.args.safe_variance_sensitivity
        margin = margin if margin >= 0 else 1.0
        sensitivity = sensitivity if sensitivity >= 0 else 1.0
        if capacity <= 0:
            return 0.0
        mean, deviation = mean_and_deviation(usage, capacity, requested)
        deviation = pow(deviation, 1 / sensitivity if sensitivity else inf)
        deviation = min(max(deviation * margin, 0.0), 1.0)
        return (1 - (mean + deviation) / 2) * 100


def mean_and_deviation(usage: Usage, capacity: int, requested: int) -> tuple[float, float]:
    """Return mean (with what is requested) and deviation as fractions of a positive capacity."""
    used = min(max(usage.average * capacity / 100, 0.0), capacity)
    deviation = min(max(usage.deviation * capacity / 100, 0.0), capacity)
    mean = min(max((used + max(requested, 0)) / capacity, 0.0), 1.0)
    return mean, min(max(deviation / capacity, 0.0), 1.0)
