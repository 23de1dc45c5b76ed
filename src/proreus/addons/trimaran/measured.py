"""The base classes of the family: Score by metrics of nodes.

While metrics are missing or stale, all nodes score 0: equally, so that other plugins decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field, model_validator

from proreus.addons.node_metrics.metrics import WatcherMetrics
from proreus.addons.node_metrics.providers import NodeMetricsArgs
from proreus.addons.node_metrics.reader import NodeMetricsReader
from proreus.addons.node_metrics.recent_pods import RecentPod, RecentPods, RecentPodsPlugin
from proreus.addons.pod_amounts import effective_amounts
from proreus.framework import (
    ClusterEvent,
    CycleState,
    Handle,
    NodeInfo,
    PodInfo,
    Status,
)
from proreus.objects import Pod, parse_amount

_DEFAULT_WINDOW_SECONDS = 900.0

OVERLAP_SECONDS = 60
"""Metrics may lack pods that came less than this before the end of their window."""

Pair = tuple[int, int]
"""Of cpu and memory: milli-CPU and bytes."""


class TrimaranArgs(NodeMetricsArgs):
    """``staleness_windows``: metrics older than so many of their windows are not used."""

    staleness_windows: float = Field(3.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _capitals(cls, data: Any) -> Any:
        # The original's Peaks takes its fields in capitals alone, by a malformed tag.
        if isinstance(data, dict):
            return {
                name[:1].lower() + name[1:] if isinstance(name, str) else name: value
                for name, value in data.items()
            }
        return data


class MeasuredPlugin(NodeMetricsReader):
    """A plugin that scores by ``measured``, which is None without fresh metrics."""

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nothing: the plugin rejects no pod."""
        return []

    def is_stale(self, metrics: WatcherMetrics) -> bool:
        """Return whether metrics ended more than ``stalenessWindows`` of their windows ago."""
        window = metrics.window
        seconds = window.end - window.start
        if seconds <= 0:
            seconds = _DEFAULT_WINDOW_SECONDS
        age = self.handle.clock.now() - window.end
        limit: float = self.args.staleness_windows * seconds
        return age > limit


class RecentRequestsArgs(TrimaranArgs):
    """``count_recent_pods``: count pods that metrics do not show yet by their requests."""

    count_recent_pods: bool = False


class RecentRequestsPlugin(MeasuredPlugin, RecentPodsPlugin[Pair]):
    """A plugin that sums the requests of pods that metrics do not show yet."""

    args: RecentRequestsArgs

    def __init__(self, args: RecentRequestsArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._counts = args.count_recent_pods
        if self._counts:
            self.recent = RecentPods(handle, _requests_of)

    def use(self, metrics: WatcherMetrics | None) -> None:
        """Score by these metrics, and forget the pods that they show."""
        super().use(metrics)
        if metrics is not None and self._counts:
            end = metrics.window.end
            self.recent.keep(lambda pod: not _is_shown(pod, end))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod."""
        return super().reserve(state, pod, node_name) if self._counts else None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Forget the pod."""
        if self._counts:
            super().unreserve(state, pod, node_name)

    def recent_requests(self, node: NodeInfo, end: float) -> Pair:
        """Sum the requests of pods that metrics up to ``end`` do not show yet."""
        recent = self.recent.on(node.name) if self._counts else ()
        pods = [pod.predicted for pod in recent if not _is_shown(pod, end)]
        return sum(cpu for cpu, _ in pods), sum(memory for _, memory in pods)


def _requests_of(pod: Pod) -> Pair:
    cpu, memory = effective_amounts(pod).values()
    return cpu, memory


def _is_shown(pod: RecentPod[Pair], end: float) -> bool:
    return end - pod.assigned_at >= OVERLAP_SECONDS


def cpu_capacity(node: NodeInfo) -> int:
    """Return the capacity of a node in milli-CPU, 0 if it is not known."""
    capacity = {} if node.node is None else node.node.status.capacity
    return parse_amount("cpu", capacity.get("cpu", 0))
