"""LoadVariationRiskBalancing: prefer nodes with low and steady use.

Worked example: 4 CPUs, on average 50 % used with a standard deviation of 10 %, and a pod that
requests 400m: the mean becomes 60 %, the risk (0.6 + 0.1) / 2, the score 65.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from math import floor, inf, pow

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Usage, usage_of
from proreus.addons.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.addons.trimaran.measured import RecentRequestsArgs, RecentRequestsPlugin
from proreus.framework import CycleState, Handle, NodeInfo, PodInfo, ScorePlugin


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
        # Asked for each node in turn.
        self._requests_of = lru_cache(maxsize=1)(lambda pod: effective_amounts(pod.pod))
        self._margin, sensitivity = args.safe_variance_margin, args.safe_variance_sensitivity
        self._margin = self._margin if self._margin >= 0 else 1.0
        sensitivity = sensitivity if sensitivity >= 0 else 1.0
        self._exponent = 1 / sensitivity if sensitivity else inf

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the requests of the pod."""
        return tuple(self._requests_of(pod).values())

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node by the worse of its cpu and memory; 0 without a metric of either."""
        measured = self.measured
        if measured is None:
            return 0
        metrics, requests = measured.of(node.name), self._requests_of(pod)
        recent = self.recent_requests(node, measured.window.end)
        scores = [
            self._score(usage, node.allocatable[resource], max(requests[resource], 0) + of_recent)
            for resource, type_, of_recent in zip(
                CPU_AND_MEMORY, (CPU, MEMORY), recent, strict=True
            )
            if (usage := usage_of(metrics, type_)) is not None
        ]
        return floor(min(scores) + 0.5) if scores else 0

    def _score(self, usage: Usage, capacity: int, requested: int) -> float:
        """Return 100 less the mean of use and deviation, in percent."""
        if capacity <= 0:
            return 0.0
        used, deviation = (min(max(one * capacity / 100, 0.0), capacity) for one in usage)
        mean = min((used + requested) / capacity, 1.0)
        deviation = min(pow(deviation / capacity, self._exponent) * self._margin, 1.0)
        return (1 - (mean + deviation) / 2) * 100
