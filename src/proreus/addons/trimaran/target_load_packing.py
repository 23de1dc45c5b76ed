"""TargetLoadPacking: fill nodes up to a target use of the CPU, and spread pods beyond it.

Worked example, target 40 %: a node with a predicted use of 20 % scores 70, one of 40 % scores 100,
one of 50 % 33, and one that would be at its limit 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import lru_cache
from math import floor

from proreus.addons.node_metrics.metrics import WatcherMetrics, cpu_values
from proreus.addons.node_metrics.recent_pods import RecentPods, RecentPodsPlugin
from proreus.addons.trimaran.measured import (
    OVERLAP_SECONDS,
    MeasuredPlugin,
    TrimaranArgs,
    cpu_capacity,
)
from proreus.framework import (
    CycleState,
    FeatureGates,
    Handle,
    NodeInfo,
    PodInfo,
    ScorePlugin,
    field_errors,
)
from proreus.objects import Container, Pod, parse_amount

DEFAULT_TARGET = 40


class TargetLoadPackingArgs(TrimaranArgs):
    """The target, and the prediction for containers without a limit, or without requests."""

    target_utilization: int = DEFAULT_TARGET
    default_requests: dict[str, str | int | float] = {"cpu": "1000m"}
    default_requests_multiplier: str = "1.5"

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that the multiplier is a number."""
        try:
            float(self.default_requests_multiplier)
        except ValueError:
            where = field_errors.child(path, "defaultRequestsMultiplier")
            yield field_errors.invalid(where, self.default_requests_multiplier, "must be a number")


class TargetLoadPacking(ScorePlugin, MeasuredPlugin, RecentPodsPlugin[int]):
    """Prefers nodes with a predicted use of the CPU near the target."""

    Args = TargetLoadPackingArgs
    args: TargetLoadPackingArgs

    def __init__(self, args: TargetLoadPackingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._target = float(args.target_utilization if args.target_utilization > 0 else 40)
        self._default_milli = parse_amount("cpu", args.default_requests.get("cpu", 0))
        self._multiplier = float(args.default_requests_multiplier)
        # Asked for each node in turn.
        self._predict = lru_cache(maxsize=1)(lambda pod: self.predict(pod.pod))
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
        return self._predict(pod)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node: 100 at the target, 0 beyond 100 % or without a metric of its CPU."""
        measured = self.measured
        values = [] if measured is None else cpu_values(measured.of(node.name))
        if measured is None or not values:
            return 0
        capacity, target = cpu_capacity(node), self._target
        missing = self._missing(node.name, measured.window.end)
        used = values[-1] / 100 * capacity + self._predict(pod) + missing
        percent = 100 * used / capacity if capacity else 0.0
        if percent > 100:
            return 0
        if percent > target:
            return floor(target * (100 - percent) / (100 - target) + 0.5)
        return floor((100 - target) * percent / target + target + 0.5)
