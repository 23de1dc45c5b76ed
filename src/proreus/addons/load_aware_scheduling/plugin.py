"""The plugin: thresholds and scores by the sum of measured use and estimates.

Worked example: of 8 CPUs 5100m are used, and a pod is estimated at 170m. That is 66 %, beyond a
threshold of 65: the node is rejected. Without thresholds its CPU scores (8000 - 5270) * 100 / 8000,
which is 34.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from math import inf

import numpy as np

from proreus.addons.load_aware_scheduling.args import AggregatedArgs, LoadAwareSchedulingArgs
from proreus.addons.load_aware_scheduling.estimator import MOST_USED, Estimator, PodEstimate
from proreus.addons.load_aware_scheduling.node_loads import (
    NO_THRESHOLD,
    UNKNOWN,
    NodeLoads,
)
from proreus.addons.node_metrics.metrics import Aggregation, WatcherMetrics
from proreus.addons.node_metrics.providers import NodeMetricsArgs
from proreus.addons.node_metrics.reader import NodeMetricsReader
from proreus.addons.node_metrics.recent_pods import (
    RecentPod,
    RecentPods,
    RecentPodsPlugin,
    transition_time,
)
from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.framework import (
    ClusterEvent,
    CycleState,
    FilterPlugin,
    Handle,
    IntArray,
    NodeTable,
    PodInfo,
    ScorePlugin,
    Status,
    Verdicts,
    events,
    plugin_event,
)
from proreus.objects import PODS, Pod, controller_of

_EXCEEDED = tuple(
    Status.unschedulable(f"node(s) {resource} usage exceed threshold")
    for resource in CPU_AND_MEMORY
)
_EXPIRED = Status.unschedulable("node(s) nodeMetric expired")

_MORE_ROOM = "NodeLoadDecreased"
"""The event of metrics that show more room on a node; its object is a list of ``Room``."""

Room = tuple[float, float]
"""The estimate of cpu and memory that a pod must be below; infinite without a limit."""


class LoadAwareScheduling(
    FilterPlugin, ScorePlugin, NodeMetricsReader, RecentPodsPlugin[PodEstimate]
):
    """Reject nodes whose use is beyond a threshold; prefer the least used."""

    Args = LoadAwareSchedulingArgs
    args: LoadAwareSchedulingArgs

    def __init__(self, args: LoadAwareSchedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._estimator = Estimator(args)
        # Asked for several times a cycle.
        self._estimate = lru_cache(maxsize=1)(lambda pod: self._estimator.estimate(pod.pod).amounts)
        self._loads = NodeLoads(args)
        self._pods = handle.store(PODS)
        self.recent = RecentPods(handle, self._estimator.estimate)
        aggregated = args.aggregated or AggregatedArgs()
        self._filters = bool(args.usage_thresholds or aggregated.usage_thresholds)
        self._rejects_expired = (
            args.filter_expired_node_metrics and not args.enable_schedule_when_node_metrics_expired
        )
        self._weights = tuple(args.resource_weights.get(name, 0) for name in CPU_AND_MEMORY)

    def aggregations(self, args: NodeMetricsArgs) -> tuple[Aggregation, ...]:
        """Return the percentiles that Filter and Score look at."""
        assert isinstance(args, LoadAwareSchedulingArgs)
        aggregated = args.aggregated or AggregatedArgs()
        both = dict.fromkeys((aggregated.for_filter, aggregated.for_score))
        return tuple(one for one in both if one is not None)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register metrics that show more room, pods that leave, and changed nodes."""
        changed = events.UPDATE_NODE_ALLOCATABLE | events.UPDATE_NODE_ANNOTATION
        return (
            plugin_event(_MORE_ROOM, self._fits_somewhere),
            ClusterEvent(events.ASSIGNED_POD, events.DELETE),
            ClusterEvent(events.NODE, events.ADD | changed),
        )

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the estimate of the pod, and whether it is of a DaemonSet."""
        return self._estimate(pod), _is_of_daemon_set(pod.pod)

    # ---- metrics -------------------------------------------------------------------------------

    def is_stale(self, metrics: WatcherMetrics) -> bool:
        """Return whether metrics are older than ``nodeMetricExpirationSeconds``."""
        age = self.handle.clock.now() - metrics.window.end
        return age > self.args.node_metric_expiration_seconds

    def use(self, metrics: WatcherMetrics | None) -> None:
        """Use these metrics, forget pods that they show, and wake pods that fit now."""
        nodes = self.handle.nodes
        # Computed now, not kept: pods that came since the last metrics have taken some of it.
        before = self._room_of(nodes) if self._filters else []
        super().use(metrics)
        # Recent pods and hot nodes may differ though the metrics are the same.
        self._generation += 1
        self._loads.use(self.measured)
        if metrics is not None:
            newest = metrics.window.end - self.args.report_interval_seconds
            self.recent.keep(lambda pod: pod.assigned_at > newest or self._is_forced(pod))
        if self._filters:
            loads = self._loads.columns(nodes)
            used = self._with_recent_pods(loads.filtered_used, nodes)
            self._loads.note_hot(nodes, loads, _percentages(used, loads.allocatable))
            self._announce_room(before, self._room_of(nodes))

    def _is_forced(self, pod: RecentPod[PodEstimate]) -> bool:
        """Return whether a pod's estimate counts though metrics show the pod."""
        now, estimate = self.handle.clock.now(), pod.predicted
        if now < pod.assigned_at + estimate.seconds_after_pod_scheduled:
            return True
        found = self._pods.get(estimate.key)
        if not estimate.seconds_after_initialized or found is None:
            return False
        initialized_at = transition_time(found, "Initialized")
        return initialized_at is None or now < initialized_at + estimate.seconds_after_initialized

    def _room_of(self, nodes: NodeTable) -> list[Room]:
        """Return the room of each node: CPU and memory that new pods may use."""
        loads = self._loads.columns(nodes)
        # A percentage is rounded before it is compared: half a point beyond the limit passes.
        ends = (2 * loads.limits + 1) * loads.allocatable / 200
        room = ends - self._with_recent_pods(loads.filtered_used, nodes)
        room[(loads.limits == NO_THRESHOLD) | (loads.filtered_used == UNKNOWN)] = inf
        if self.measured is None:
            room[:] = -inf if self._rejects_expired else inf
        return [(cpu, memory) for cpu, memory in room.T.tolist()]

    def _announce_room(self, before: Sequence[Room], now: Sequence[Room]) -> None:
        """Wake the pods that fit on a node that has more room than before."""
        more = [
            room
            for room, old in zip(now, before, strict=True)
            if any(one > was for one, was in zip(room, old, strict=True))
        ]
        if more:
            self.handle.announce(plugin_event(_MORE_ROOM), None, more)

    def _fits_somewhere(self, pod: PodInfo, old: object, new: list[Room]) -> bool:
        cpu, memory = self._estimate(pod)
        return any(cpu < room[0] and memory < room[1] for room in new)

    # ---- Filter --------------------------------------------------------------------------------

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Reject the nodes that would be used beyond a limit with the pod."""
        if not self._filters or _is_of_daemon_set(pod.pod):
            return
        if self.measured is None:
            if self._rejects_expired:
                verdicts.reject_with(np.ones(len(nodes), dtype=np.bool_), _EXPIRED)
            return
        loads = self._loads.columns(nodes)
        used = self._with_recent_pods(loads.filtered_used, nodes, pod)
        beyond = _percentages(used, loads.allocatable) > loads.limits
        beyond &= (loads.limits != NO_THRESHOLD) & (used != UNKNOWN) & (loads.allocatable > 0)
        for rows, status in zip(beyond, _EXCEEDED, strict=True):
            verdicts.reject_with(rows, status)

    # ---- Score ---------------------------------------------------------------------------------

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        """Score nodes by their unused share; 0 without fresh metrics."""
        total: IntArray = np.zeros(len(nodes), dtype=np.int64)
        weighted = np.flatnonzero(self._weights)
        if self.measured is None or not weighted.size:
            return total
        loads = self._loads.columns(nodes)
        used = self._with_recent_pods(loads.scored_used, nodes, pod)[weighted]
        most = loads.allocatable[weighted]
        free = np.where(used > most, 0, (most - used) * 100 // np.maximum(most, 1))
        dominant = self.args.dominant_resource_weight
        for weight, one in zip(np.take(self._weights, weighted).tolist(), free, strict=True):
            total += weight * one
        total = (total + dominant * free.min(axis=0)) // (sum(self._weights) + dominant)
        total[(used == UNKNOWN).any(axis=0)] = 0
        return total

    # ---- use -----------------------------------------------------------------------------------

    def _with_recent_pods(
        self, used: IntArray, nodes: NodeTable, pod: PodInfo | None = None
    ) -> IntArray:
        """Return ``used`` with the estimates of recent pods and of a pod, shape (2, nodes)."""
        more = np.zeros_like(used)
        if pod is not None:
            more += np.array(self._estimate(pod))[:, None]
        by_node = self.recent.by_node
        for row, node in enumerate(nodes) if by_node else ():
            for recent in by_node.get(node.name, {}).values():
                more[:, row] += recent.predicted.amounts
        # A percentage of it has to fit an int64.
        return np.where(used == UNKNOWN, UNKNOWN, used + np.minimum(more, MOST_USED))


def _percentages(used: IntArray, allocatable: IntArray) -> IntArray:
    """Return the use in percent, rounded half up."""
    percentages: IntArray = (200 * used + allocatable) // (2 * np.maximum(allocatable, 1))
    return percentages


def _is_of_daemon_set(pod: Pod) -> bool:
    controller = controller_of(pod.metadata)
    return controller is not None and controller.kind == "DaemonSet"
