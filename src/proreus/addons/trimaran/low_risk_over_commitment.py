"""LowRiskOverCommitment: prefer nodes where limits beyond the capacity are little risk.

The risk of a resource is a mean of two: the part of the limits beyond the requests that is beyond
the capacity too; and the probability that more than the requests is used, by a beta distribution
with the measured mean and deviation.

Worked example: capacity 4000, requests 2000 and limits 6000 with the pod, 1500 and 5000 without it,
mean 0.3, deviation 0.05, window 5. The limits' risk is 2000/4000; the probability to stay below
1500/4000 is 0.7545, so that the load's risk is 0.2455. The score is 63.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from math import exp, floor, lgamma, log, log1p, sqrt
from typing import NamedTuple

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Usage, usage_of
from proreus.addons.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.addons.trimaran.measured import MeasuredPlugin, TrimaranArgs
from proreus.framework import CycleState, Handle, NodeInfo, PodInfo, ScorePlugin
from proreus.objects import NODES, Node

DEFAULT_WINDOW = 5
DEFAULT_WEIGHT = 0.5
_TYPES = {"cpu": CPU, "memory": MEMORY}
_MOST_OF_VARIANCE = 0.99
_MOST_STEPS = 1000
_PRECISION = 1e-15
_TINY = 1e-300


class Committed(NamedTuple):
    """Sums of requests and limits of pods."""

    requests: int
    limits: int

    def __add__(self, other: object) -> Committed:
        """Return the sums of both."""
        assert isinstance(other, Committed)
        return Committed(self.requests + other.requests, self.limits + other.limits)

    def __sub__(self, other: Committed) -> Committed:
        return Committed(self.requests - other.requests, self.limits - other.limits)


Commitments = tuple[Committed, Committed]
"""Of cpu and of memory."""
_NOTHING = Committed(0, 0), Committed(0, 0)


def commitments_of(pod: PodInfo) -> Commitments:
    """Return the requests and limits of a pod; a limit below the request counts as the request."""
    requests, limits = effective_amounts(pod.pod), effective_amounts(pod.pod, limits=True)
    cpu, memory = (Committed(requests[r], max(limits[r], requests[r])) for r in CPU_AND_MEMORY)
    return cpu, memory


class NodeCommitments:
    """The sums of each node, updated by the pods that changed."""

    def __init__(self, handle: Handle) -> None:
        self._known: dict[str, tuple[Mapping[str, PodInfo], Commitments]] = {}
        """By name of a node: its pods, and their sums."""
        handle.on_change(NODES, self._node_changed)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None and old is not None:
            self._known.pop(old.metadata.name, None)

    def of(self, node: NodeInfo) -> Commitments:
        """Return the sums of cpu and of memory on a node."""
        before, (cpu, memory) = self._known.get(node.name, ({}, _NOTHING))
        if before == node.pods:
            return cpu, memory
        for uid in before.keys() | node.pods.keys():
            old, new = before.get(uid), node.pods.get(uid)
            if old is new:
                continue
            if old is not None:
                of_cpu, of_memory = commitments_of(old)
                cpu, memory = cpu - of_cpu, memory - of_memory
            if new is not None:
                of_cpu, of_memory = commitments_of(new)
                cpu, memory = cpu + of_cpu, memory + of_memory
        self._known[node.name] = dict(node.pods), (cpu, memory)
        return cpu, memory


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
    """Return the part of the limits beyond the requests that is beyond the capacity too."""
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


class Beta(NamedTuple):
    """A beta distribution with these two shapes, both positive; without SciPy.

    Source: the continued fraction of the regularised incomplete beta function (DLMF 8.17.22), by
    Lentz's method.
    """

    alpha: float
    beta: float

    @classmethod
    def fitted(cls, mean: float, variance: float) -> Beta | None:
        """Return the distribution with this mean and variance; None if there is none."""
        if not 0 < mean < 1 or not 0 < variance < mean * (1 - mean):
            return None
        total = mean * (1 - mean) / variance - 1
        return cls(mean * total, (1 - mean) * total)

    def cdf(self, x: float) -> float:
        """Return the probability of a value up to ``x``."""
        if x <= 0:
            return 0.0
        if x >= 1:
            return 1.0
        a, b = self
        # It converges fast left of the mean; the other side is its mirror image.
        if x > (a + 1) / (a + b + 2):
            return 1 - Beta(b, a).cdf(1 - x)
        return _front(x, a, b) * _continued_fraction(x, a, b) / a


def _front(x: float, a: float, b: float) -> float:
    return exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))


def _continued_fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, _nonzero(1 - (a + b) * x / (a + 1))
    d = 1 / d
    result = d
    for step in range(1, _MOST_STEPS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        factor = 1.0
        for coefficient in (even, odd):
            d = 1 / _nonzero(1 + coefficient * d)
            c = _nonzero(1 + coefficient / c)
            factor = c * d
            result *= factor
        if abs(factor - 1) < _PRECISION:
            break
    return result


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
