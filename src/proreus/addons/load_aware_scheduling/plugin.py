"""The plugin: thresholds and scores by the sum of measured use and estimates.

Worked example: of 8 CPUs 5100m are used, and a pod is estimated at 170m. That is 66 %, beyond a
threshold of 65: the node is rejected. Without thresholds its CPU scores (8000 - 5270) * 100 / 8000,
which is 34.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from math import inf

from proreus.addons.load_aware_scheduling.args import AggregatedArgs, LoadAwareSchedulingArgs
from proreus.addons.load_aware_scheduling.estimator import Estimator, PodEstimate
from proreus.addons.load_aware_scheduling.node_loads import (
    NO_THRESHOLD,
    UNKNOWN,
    NodeLoads,
    Pair,
    exceeds,
)
from proreus.addons.node_metrics.metrics import WatcherMetrics
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
    NodeInfo,
    NodeTable,
    PodInfo,
    ScorePlugin,
    Status,
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
            self._loads.note_hot({node.name: self._used(node) for node in nodes})
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
        if self.measured is None:
            room = -inf if self._rejects_expired else inf
            return [(room, room)] * len(nodes)
        return [self._room_on(node) for node in nodes]

    def _room_on(self, node: NodeInfo) -> Room:
        load = self._loads.of(node)
        # A percentage is rounded before it is compared: half a point beyond the limit passes.
        cpu, memory = (
            inf if limit == NO_THRESHOLD or used == UNKNOWN else (2 * limit + 1) * most / 200 - used
            for used, most, limit in zip(
                self._used(node), load.allocatable, load.limits, strict=True
            )
        )
        return cpu, memory

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

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Reject a node that would be used beyond a limit with the pod."""
        if not self._filters or _is_of_daemon_set(pod.pod):
            return None
        if self.measured is None:
            return _EXPIRED if self._rejects_expired else None
        load = self._loads.of(node)
        used = self._with_pods(load.filtered_used, node, pod)
        for one, most, limit, status in zip(
            used, load.allocatable, load.limits, _EXCEEDED, strict=True
        ):
            if exceeds(one, most, limit):
                return status
        return None

    # ---- Score ---------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node by its unused share; 0 without fresh metrics."""
        if self.measured is None:
            return 0
        load = self._loads.of(node)
        used = self._with_pods(load.scored_used, node, pod)
        free, total = [], 0
        for weight, one, most in zip(self._weights, used, load.allocatable, strict=True):
            if weight:
                if one == UNKNOWN:
                    return 0
                free.append((most - one) * 100 // most if 0 < most >= one else 0)
                total += weight * free[-1]
        dominant = self.args.dominant_resource_weight
        total += dominant * min(free, default=0)
        return total // (sum(self._weights) + dominant)

    # ---- use -----------------------------------------------------------------------------------

    def _used(self, node: NodeInfo) -> Pair:
        return self._with_pods(self._loads.of(node).filtered_used, node)

    def _with_pods(self, used: Pair, node: NodeInfo, pod: PodInfo | None = None) -> Pair:
        """Return ``used`` with the estimates of the node's recent pods, and of another one."""
        cpu, memory = (0, 0) if pod is None else self._estimate(pod)
        for recent in self.recent.on(node.name):
            cpu += recent.predicted.amounts[0]
            memory += recent.predicted.amounts[1]
        return (
            UNKNOWN if used[0] == UNKNOWN else used[0] + cpu,
            UNKNOWN if used[1] == UNKNOWN else used[1] + memory,
        )


def _is_of_daemon_set(pod: Pod) -> bool:
    controller = controller_of(pod.metadata)
    return controller is not None and controller.kind == "DaemonSet"
