"""Requests of pods that metrics do not show yet, for plugins that are told to count them."""

from __future__ import annotations

import numpy as np

from proreus.addons.node_metrics.metrics import WatcherMetrics
from proreus.addons.node_metrics.recent_pods import RecentPod, RecentPods, RecentPodsPlugin
from proreus.addons.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.addons.trimaran.measured import MeasuredPlugin, TrimaranArgs
from proreus.framework import CycleState, Handle, IntArray, NodeTable, PodInfo, Status
from proreus.objects import Pod

OVERLAP_SECONDS = 60
"""Metrics may lack pods that came less than this before the end of their window."""

_MOST = 2**55
"""More than any node has, and a percentage of it fits an int64. Pods that somebody else put on a
node may request more together."""

Pair = tuple[int, int]


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

    def recent_requests(self, measured: WatcherMetrics, nodes: NodeTable) -> IntArray:
        """Return the requests of such pods by node: milli-CPU and bytes, shape (2, nodes)."""
        found = np.zeros((2, len(nodes)), dtype=np.int64)
        for name in self.recent.by_node if self._counts else ():
            row = nodes.rows.get(name)
            if row is not None:
                found[:, row] = self._sum(name, measured.window.end)
        return found

    def _sum(self, node_name: str, end: float) -> Pair:
        pods = [pod.predicted for pod in self.recent.on(node_name) if not _is_shown(pod, end)]
        cpu, memory = sum(cpu for cpu, _ in pods), sum(memory for _, memory in pods)
        return min(cpu, _MOST), min(memory, _MOST)


def _requests_of(pod: Pod) -> Pair:
    requests = effective_amounts(pod)
    cpu, memory = (requests[resource] for resource in CPU_AND_MEMORY)
    return cpu, memory


def _is_shown(pod: RecentPod[Pair], end: float) -> bool:
    return end - pod.assigned_at >= OVERLAP_SECONDS
