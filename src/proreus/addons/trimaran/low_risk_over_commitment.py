"""LowRiskOverCommitment: prefer nodes where limits beyond the capacity are little risk.

The risk of a resource is a mean of two: what the limits are beyond the capacity, in relation to
what they are beyond the requests; and the probability that more is used than is requested, by a
beta distribution with the measured mean and deviation.

Worked example: capacity 4000, requests 2000 and limits 6000 with the pod, 1500 and 5000 without it,
mean 0.3, deviation 0.05, window 5. The limits' risk is 2000/4000; the probability to stay below
1500/4000 is 0.7545, so that the load's risk is 0.2455. The score is 63.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import floor, sqrt
from typing import NamedTuple

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Usage, WatcherMetrics, usage_of
from proreus.addons.node_metrics.pod_amounts import effective_amounts
from proreus.addons.trimaran.args import TrimaranArgs
from proreus.addons.trimaran.beta_distribution import Beta
from proreus.addons.trimaran.load_variation_risk_balancing import mean_and_deviation
from proreus.addons.trimaran.measured import MeasuredScorePlugin
from proreus.framework import NodeInfo, PodInfo

DEFAULT_WINDOW = 5
DEFAULT_WEIGHT = 0.5
_MOST_OF_VARIANCE = 0.99


class LowRiskOverCommitmentArgs(TrimaranArgs):
    """``smoothing_window_size``: by the root of it deviations count more. Weights: of limits."""

    smoothing_window_size: int = DEFAULT_WINDOW
    risk_limit_weights: dict[str, float] = {}


class Committed(NamedTuple):
    """Sums of requests and limits of pods."""

    requests: int
    limits: int


class LowRiskOverCommitment(MeasuredScorePlugin):
    """Prefer nodes with a low risk that limits beyond the capacity are used."""

    Args = LowRiskOverCommitmentArgs
    args: LowRiskOverCommitmentArgs

    def sign(self, pod: PodInfo) -> Hashable:
        """Return requests and limits of the pod."""
        return _amounts(pod)

    def score_measured(self, measured: WatcherMetrics, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by the higher of the risks of cpu and memory."""
        if not any(_amounts(pod)):
            return 0
        metrics = measured.of(node.name)
        if not metrics:
            return 0
        risks = [
            self._risk(resource, node, pod, usage_of(metrics, type_))
            for resource, type_ in (("cpu", CPU), ("memory", MEMORY))
        ]
        return floor((1 - max(risks)) * 100 + 0.5)

    def _risk(self, resource: str, node: NodeInfo, pod: PodInfo, usage: Usage | None) -> float:
        capacity = node.allocatable[resource]
        before = committed((*node.pods.values(),), resource)
        with_pod = committed((*node.pods.values(), pod), resource)
        weight = self.args.risk_limit_weights.get(resource, DEFAULT_WEIGHT)
        if not 0 <= weight <= 1:
            weight = DEFAULT_WEIGHT
        window = self.args.smoothing_window_size
        load = 0.0
        if usage is not None and capacity > 0:
            window = window if window > 0 else DEFAULT_WINDOW
            load = load_risk(usage, capacity, before, window)
        risk = weight * limit_risk(capacity, with_pod) + (1 - weight) * load
        return min(max(risk, 0.0), 1.0)


def _amounts(pod: PodInfo) -> tuple[int, ...]:
    requests, limits = effective_amounts(pod.pod), effective_amounts(pod.pod, limits=True)
    return (*requests.values(), *limits.values())


def committed(pods: Iterable[PodInfo], resource: str) -> Committed:
    """Return the sums of pods; a limit below the request counts as the request."""
    requests = limits = 0
    for pod in pods:
        requested = effective_amounts(pod.pod)[resource]
        requests += requested
        limits += max(effective_amounts(pod.pod, limits=True)[resource], requested)
    return Committed(requests, limits)


def limit_risk(capacity: int, pods: Committed) -> float:
    """Return how much of what limits are beyond requests is beyond the capacity too."""
    requests = min(pods.requests, capacity)
    if pods.limits <= capacity:
        return 0.0
    return (pods.limits - capacity) / (pods.limits - requests)


def load_risk(usage: Usage, capacity: int, pods: Committed, window: int) -> float:
    """Return the probability that more is used than is requested."""
    mean, deviation = mean_and_deviation(usage, capacity, 0)
    deviation = min(deviation * sqrt(window), sqrt(_MOST_OF_VARIANCE * mean * (1 - mean)))
    requests = min(pods.requests, capacity)
    threshold = min(max(requests / capacity, 0.0), 1.0)
    distribution: Beta | None = None
    if mean == 0 or (deviation == 0 and mean <= threshold):
        probability = 1.0
    elif deviation == 0:
        probability = 0.0
    else:
        distribution = Beta.fitted(mean, deviation * deviation)
        probability = 0.0 if distribution is None else distribution.cdf(threshold)
    if pods.limits < capacity and requests <= pods.limits:
        # No more than the limits can be used.
        if pods.limits == 0:
            probability = 1.0
        elif distribution is not None and (most := distribution.cdf(pods.limits / capacity)) > 0:
            probability = min(max(probability / most, 0.0), 1.0)
    return 1 - probability
