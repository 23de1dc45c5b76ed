"""TargetLoadPacking: fill nodes up to a target use of the CPU, and spread pods beyond it.

Worked example, target 40 %: a node with a predicted use of 20 % scores 70, one of 40 % scores 100,
one of 50 % 33, and one that would be at its limit 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from math import floor, nan

import numpy as np

from proreus.addons.node_metrics.metrics import Metric, WatcherMetrics, cpu_values
from proreus.addons.node_metrics.node_columns import NodeColumns
from proreus.addons.node_metrics.recent_pods import RecentPods, RecentPodsPlugin
from proreus.addons.trimaran.measured import MeasuredPlugin, TrimaranArgs
from proreus.addons.trimaran.recent_requests import OVERLAP_SECONDS
from proreus.framework import (
    CycleState,
    FeatureGates,
    Handle,
    IntArray,
    NodeTable,
    PodInfo,
    ScorePlugin,
    field_errors,
)
from proreus.objects import Container, Node, Pod, parse_amount

DEFAULT_TARGET = 40


class TargetLoadPackingArgs(TrimaranArgs):
    """The target, and the prediction for containers without a limit, or without requests."""

    target_utilization: int = DEFAULT_TARGET
    default_requests: dict[str, str | int | float] = {"cpu": "1000m"}
    default_requests_multiplier: str = "1.5"

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that the multiplier is a number."""
        yield from super().problems(path, gates)
        try:
            float(self.default_requests_multiplier)
        except ValueError:
            where = field_errors.child(path, "defaultRequestsMultiplier")
            yield field_errors.invalid(where, self.default_requests_multiplier, "must be a number")


class TargetLoadPacking(ScorePlugin, MeasuredPlugin, RecentPodsPlugin[int]):
    """Prefer nodes whose predicted use of the CPU is next to the target."""

    Args = TargetLoadPackingArgs
    args: TargetLoadPackingArgs

    def __init__(self, args: TargetLoadPackingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._target = float(args.target_utilization if args.target_utilization > 0 else 40)
        self._default_milli = parse_amount("cpu", args.default_requests.get("cpu", 0))
        self._multiplier = float(args.default_requests_multiplier)
        self._columns = NodeColumns(_cpu_of, 2)
        self.recent = RecentPods(handle, self.predict)

    def use(self, metrics: WatcherMetrics | None) -> None:
        """Score by these metrics, and forget the pods that they show."""
        super().use(metrics)
        if metrics is None:
            return
        oldest = metrics.window.end - OVERLAP_SECONDS
        self.recent.keep(lambda pod: pod.assigned_at > oldest)

    def _missing(self, node_name: str, end: float) -> int:
        """Return the predicted milli-CPU of pods that are not in metrics up to ``end``."""
        return sum(
            pod.predicted
            for pod in self.recent.on(node_name)
            if int(end) - int(pod.assigned_at) < OVERLAP_SECONDS
        )

    # ---- prediction and score ------------------------------------------------------------------

    def predict(self, pod: Pod) -> int:
        """Return the predicted CPU of a pod, in milli-CPU."""
        containers = sum(self._predict_container(one) for one in pod.spec.containers)
        return containers + parse_amount("cpu", pod.spec.overhead.get("cpu", 0))

    def _predict_container(self, container: Container) -> int:
        resources = container.resources
        if "cpu" in resources.limits:
            return parse_amount("cpu", resources.limits["cpu"])
        if "cpu" in resources.requests:
            requested = parse_amount("cpu", resources.requests["cpu"])
            return floor(requested * self._multiplier + 0.5)
        return self._default_milli

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the predicted CPU of the pod."""
        return self.predict(pod.pod)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score nodes: 100 at the target, 0 beyond 100 % or without a metric of the CPU."""
        measured = self.measured
        if measured is None:
            return 0
        percent, capacity = self._columns.of_all(measured, nodes)
        missing = np.zeros(len(nodes))
        by_node = self.recent.by_node
        for row, node in enumerate(nodes) if by_node else ():
            if node.name in by_node:
                missing[row] = self._missing(node.name, measured.window.end)
        used = percent / 100 * capacity + self.predict(pod.pod) + missing
        # Rows of the other branch may divide by 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            predicted = np.where(capacity == 0, 0.0, 100 * used / capacity)
            target = self._target
            beyond = np.floor(target * (100 - predicted) / (100 - target) + 0.5)
        below = np.floor((100 - target) * predicted / target + target + 0.5)
        scores = np.where(predicted > target, beyond, below)
        scores[np.isnan(percent) | (predicted > 100)] = 0
        return scores.astype(np.int64)


def _cpu_of(metrics: tuple[Metric, ...], node: Node) -> tuple[float, ...]:
    """Return the use of the CPU in percent and its capacity in milli-CPU."""
    values = cpu_values(metrics)
    return values[-1] if values else nan, parse_amount("cpu", node.status.capacity.get("cpu", 0))
