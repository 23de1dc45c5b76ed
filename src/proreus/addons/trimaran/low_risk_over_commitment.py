"""LowRiskOverCommitment: prefer nodes where limits beyond the capacity are little risk.

The risk of a resource is a mean of two: what the limits are beyond the capacity, in relation to
what they are beyond the requests; and the probability that more is used than is requested, by a
beta distribution with the measured mean and deviation.

Worked example: capacity 4000, requests 2000 and limits 6000 with the pod, 1500 and 5000 without it,
mean 0.3, deviation 0.05, window 5. The limits' risk is 2000/4000; the probability to stay below
1500/4000 is 0.7545, so that the load's risk is 0.2455. The score is 63.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import floor

import numpy as np

from proreus.addons.node_metrics.metrics import CPU, MEMORY, Metric, WatcherMetrics, usage_of
from proreus.addons.node_metrics.node_columns import NodeColumns
from proreus.addons.node_metrics.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.addons.trimaran.args import TrimaranArgs
from proreus.addons.trimaran.commitments import NodeCommitments, commitments_of
from proreus.addons.trimaran.load_variation_risk_balancing import usages_in_percent
from proreus.addons.trimaran.measured import MeasuredScorePlugin
from proreus.addons.trimaran.risks import LoadRisks, limit_risk, limit_risks, load_risk
from proreus.framework import Handle, IntArray, NodeInfo, NodeTable, PodInfo
from proreus.objects import Node

DEFAULT_WINDOW = 5
DEFAULT_WEIGHT = 0.5
_TYPES = {"cpu": CPU, "memory": MEMORY}


class LowRiskOverCommitmentArgs(TrimaranArgs):
    """``smoothing_window_size``: by the root of it deviations count more. Weights: of limits."""

    # The original computes the amounts of a pod there; here they are part of its signature.
    points_without_effect = frozenset({"preScore"})

    smoothing_window_size: int = DEFAULT_WINDOW
    risk_limit_weights: dict[str, float] = {}


class LowRiskOverCommitment(MeasuredScorePlugin):
    """Prefer nodes with a low risk that limits beyond the capacity are used."""

    Args = LowRiskOverCommitmentArgs
    args: LowRiskOverCommitmentArgs

    def __init__(self, args: LowRiskOverCommitmentArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._commitments = NodeCommitments(handle)
        self._usages = NodeColumns(_numbers_of, 5)
        self._load_risks = {resource: LoadRisks() for resource in CPU_AND_MEMORY}

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
        added = zip(CPU_AND_MEMORY, self._commitments.of(node), commitments_of(pod), strict=True)
        risks = []
        for resource, before, of_pod in added:
            capacity = node.allocatable[resource]
            usage = usage_of(metrics, _TYPES[resource])
            load = 0.0
            if usage is not None and capacity > 0:
                load = load_risk(usage, capacity, before, self._window)
            weight = self._weight(resource)
            risk = weight * limit_risk(capacity, before + of_pod) + (1 - weight) * load
            risks.append(min(max(risk, 0.0), 1.0))
        return floor((1 - max(risks)) * 100 + 0.5)

    def score_all_measured(
        self, measured: WatcherMetrics, pod: PodInfo, nodes: NodeTable
    ) -> IntArray:
        """Score all nodes by the higher of the risks of cpu and memory."""
        if not any(_amounts(pod)):
            return np.zeros(len(nodes), dtype=np.int64)
        usages = self._usages.of_all(measured, nodes)
        committed = self._commitments.of_all(nodes)
        risk = np.zeros(len(nodes))
        for place, (resource, of_pod) in enumerate(
            zip(CPU_AND_MEMORY, commitments_of(pod), strict=True)
        ):
            capacity, (requests, limits) = nodes.allocatable[resource], committed[place]
            average, deviation = usages[2 * place : 2 * place + 2]
            weight = self._weight(resource)
            load = self._load_risks[resource].of_all(
                average, deviation, capacity, requests, limits, self._window
            )
            limit = limit_risks(capacity, requests + of_pod.requests, limits + of_pod.limits)
            one = weight * limit + (1 - weight) * load
            risk = np.maximum(risk, np.clip(one, 0.0, 1.0))
        scores: IntArray = np.floor((1 - risk) * 100 + 0.5).astype(np.int64)
        scores[usages[4] == 0] = 0
        return scores

    def _weight(self, resource: str) -> float:
        weight = self.args.risk_limit_weights.get(resource, DEFAULT_WEIGHT)
        return weight if 0 <= weight <= 1 else DEFAULT_WEIGHT

    @property
    def _window(self) -> int:
        window = self.args.smoothing_window_size
        return window if window > 0 else DEFAULT_WINDOW


def _amounts(pod: PodInfo) -> tuple[int, ...]:
    requests, limits = effective_amounts(pod.pod), effective_amounts(pod.pod, limits=True)
    return (*requests.values(), *limits.values())


def _numbers_of(metrics: tuple[Metric, ...], node: Node) -> tuple[float, ...]:
    """Return mean and deviation of cpu, then of memory, and whether there is any metric."""
    return *usages_in_percent(metrics, node), float(bool(metrics))
