"""LowRiskOverCommitment: prefer nodes where limits beyond the capacity are little risk.

The risk of a resource is a mean of two: the part of the limits beyond the requests that is beyond
the capacity too; and the probability that more than the requests is used, by a beta distribution
with the measured mean and deviation.

Worked example: capacity 4000, requests 2000 and limits 6000 with the pod, 1500 and 5000 without it,
mean 0.3, deviation 0.05, window 5. The limits' risk is 2000/4000; the probability to stay below
1500/4000 is 0.7545, so that the load's risk is 0.2455. The score is 63.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from math import floor, sqrt

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Usage, usage_of
from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.addons.trimaran.beta_distribution import Beta
from proreus.addons.trimaran.commitments import NOTHING, Committed, NodeCommitments, commitments_of
from proreus.addons.trimaran.measured import MeasuredPlugin, TrimaranArgs
from proreus.framework import CycleState, Handle, NodeInfo, PodInfo, ScorePlugin

DEFAULT_WINDOW = 5
DEFAULT_WEIGHT = 0.5
_TYPES = {"cpu": CPU, "memory": MEMORY}
_NOTHING = (NOTHING, NOTHING)
_MOST_OF_VARIANCE = 0.99


class LowRiskOverCommitmentArgs(TrimaranArgs):
    """``smoothing_window_size``: deviations are multiplied by its root.

    ``risk_limit_weights``: the weight of the limits' risk by resource, 0 to 1.
    """

    # The original computes the amounts of a pod there; here they are part of its signature.
    points_without_effect = frozenset({"preScore"})

    smoothing_window_size: int = DEFAULT_WINDOW
    risk_limit_weights: dict[str, float] = {}


class LowRiskOverCommitment(ScorePlugin, MeasuredPlugin):
    """Prefer nodes with a low risk that limits beyond the capacity are used."""

    Args = LowRiskOverCommitmentArgs
    args: LowRiskOverCommitmentArgs

    def __init__(self, args: LowRiskOverCommitmentArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._commitments = NodeCommitments(handle)
        # Asked for each node in turn.
        self._commitments_of = lru_cache(maxsize=1)(commitments_of)

    def sign(self, pod: PodInfo) -> Hashable:
        """Return requests and limits of the pod."""
        return self._commitments_of(pod)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node by the higher of the risks of cpu and memory."""
        committed = self._commitments_of(pod)
        metrics = () if self.measured is None else self.measured.of(node.name)
        if not metrics or committed == _NOTHING:
            return 0
        risks = []
        for resource, before, of_pod in zip(
            CPU_AND_MEMORY, self._commitments.of(node), committed, strict=True
        ):
            capacity = node.allocatable[resource]
            usage = usage_of(metrics, _TYPES[resource])
            load = 0.0
            if usage is not None and capacity > 0:
                load = load_risk(usage, capacity, before, self._window)
            weight = self._weight(resource)
            risk = weight * limit_risk(capacity, before + of_pod) + (1 - weight) * load
            risks.append(min(max(risk, 0.0), 1.0))
        return floor((1 - max(risks)) * 100 + 0.5)

    def _weight(self, resource: str) -> float:
        weight = self.args.risk_limit_weights.get(resource, DEFAULT_WEIGHT)
        return weight if 0 <= weight <= 1 else DEFAULT_WEIGHT

    @property
    def _window(self) -> int:
        window = self.args.smoothing_window_size
        return window if window > 0 else DEFAULT_WINDOW


def limit_risk(capacity: int, pods: Committed) -> float:
    """Return how much of the limits beyond the requests is beyond the capacity too, 0 to 1."""
    requests = min(pods.requests, capacity)
    if pods.limits <= capacity:
        return 0.0
    return (pods.limits - capacity) / (pods.limits - requests)


# It does not depend on the pod to be scheduled, and is needed again for the next one.
@lru_cache(maxsize=2**15)
def load_risk(usage: Usage, capacity: int, pods: Committed, window: int) -> float:
    """Return the probability that more than the requests is used."""
    used, deviation = (min(max(one * capacity / 100, 0.0), capacity) for one in usage)
    mean, deviation = used / capacity, deviation / capacity
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
