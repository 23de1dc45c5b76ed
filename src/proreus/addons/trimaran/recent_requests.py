"""Requests of pods that metrics do not show yet, for plugins that are told to count them."""

from __future__ import annotations

import numpy as np

from proreus.addons.node_metrics.metrics import WatcherMetrics
from proreus.addons.node_metrics.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.addons.node_metrics.recent_pods import RecentPod, RecentPods, RecentPodsPlugin
from proreus.addons.trimaran.args import TrimaranArgs
from proreus.addons.trimaran.measured import MeasuredScorePlugin
from proreus.framework import CycleState, Handle, IntArray, NodeInfo, NodeTable, PodInfo, Status
from proreus.objects import Pod

OVERLAP_SECONDS = 60
"""Pods that came so long before the end of the metrics' window may not be in them yet."""

_MOST = 2**55
"""No node has as much, and a percentage of it fits an int64. Pods that somebody else put on a node
may request more together."""

Pair = tuple[int, int]


class RecentRequestsArgs(TrimaranArgs):
    """``count_recent_pods``: whether pods that metrics do not show yet count by their requests."""

    count_recent_pods: bool = False


class RecentRequestsPlugin(MeasuredScorePlugin, RecentPodsPlugin[Pair]):
    """A plugin that knows what the pods request that metrics do not show yet."""

    args: RecentRequestsArgs

    def __init__(self, args: RecentRequestsArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._counts = args.count_recent_pods
        if self._counts:
            self.recent = RecentPods(handle, _requests_of)

    def use(self, metrics: WatcherMetrics | None) -> None:
        """Score by these metrics; pods that they show are forgotten."""
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

    def recent_requests(self, measured: WatcherMetrics, node: NodeInfo) -> Pair:
        """Return what the pods request that are not in metrics yet: milli-CPU and bytes."""
        return self._sum(node.name, measured.window.end) if self._counts else (0, 0)

    def recent_requests_of_all(self, measured: WatcherMetrics, nodes: NodeTable) -> IntArray:
        """Return the same of each node, shape (2, nodes)."""
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
