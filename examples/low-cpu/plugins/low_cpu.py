"""LowCpu: keeps pods off nodes whose CPUs are really busy, and prefers the idlest of the rest.

What is busy is not what is requested: it is read from metrics.k8s.io (metrics-server) in the
background. Pods that started after a measurement are not in it yet: they count with what they
request, so that a wave of pods does not end on one node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import Field

from proreus.framework import (
    ApiError,
    BackgroundPlugin,
    ClusterEvent,
    CycleState,
    FilterPlugin,
    Handle,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    ScorePlugin,
    Seconds,
    Status,
    events,
    logger,
    plugin_event,
)
from proreus.objects import ApiStruct, ObjectMeta, Resource, parse_amount

log = logger("plugins.LowCpu")


class NodeMetrics(ApiStruct, frozen=True):
    """What metrics-server measured on a node."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: datetime | None = None
    usage: dict[str, str] = {}


NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, NodeMetrics)

NODE_CALMED = plugin_event("NodeCalmed")

BUSY = Status.unresolvable("node(s) had too much CPU in use")
STALE = Status.unresolvable("node(s) had no fresh CPU usage")


class Measured(NamedTuple):
    """A node's CPU usage, and when it was that, in seconds since the epoch."""

    milli_cpu: int
    at: float


class LowCpu(FilterPlugin, ScorePlugin, BackgroundPlugin):
    """Utilisation is measured usage plus what newer pods request, in percent of allocatable."""

    class Args(PluginArgs):
        """When a node is too busy, and when a measurement is too old."""

        max_percent: int = Field(80, ge=1, le=100, description="Above it, a node takes no pod.")
        refresh_seconds: Seconds = Field(15.0, gt=0, description="How often metrics are read.")
        stale_seconds: Seconds = Field(60.0, gt=0, description="Older measurements are ignored.")
        unknown: Literal["Allow", "Reject"] = Field(
            "Allow", description="Whether nodes without a fresh measurement take pods."
        )

    args: Args
    row_local = True

    def __init__(self, args: Args, handle: Handle) -> None:
        super().__init__(args, handle)
        self._measured: dict[str, Measured] = {}
        self._version = 0
        self._rejected_nodes: set[str] = set()
        gauge = handle.metrics.gauge(
            "proreus_low_cpu_nodes", "ALPHA", "Nodes by what is known of their CPU usage.", "state"
        )
        self._fresh, self._stale = gauge.labels("fresh"), gauge.labels("stale")

    # ---- what is known of nodes ----------------------------------------------------------------

    async def run_in_background(self) -> None:
        while True:
            try:
                self._learn(await self.handle.api.list_all(NODE_METRICS))
            except ApiError as error:
                log.error("Cannot read metrics.k8s.io", err=error)
                self._learn(())
            await asyncio.sleep(self.args.refresh_seconds)

    def _learn(self, found: Iterable[NodeMetrics]) -> None:
        """Take over new measurements, drop those that have become too old."""
        for metrics in found:
            if metrics.timestamp is not None:
                milli = parse_amount("cpu", metrics.usage.get("cpu", 0))
                at = metrics.timestamp.timestamp()
                self._measured[metrics.metadata.name] = Measured(milli, at)
        oldest = self.handle.clock.now() - self.args.stale_seconds
        self._measured = {k: m for k, m in self._measured.items() if m.at >= oldest}
        self._report([node.name for node in self.handle.nodes if node.name not in self._measured])
        self._version += 1  # invalidates all cached results
        self._wake_pods()

    def _wake_pods(self) -> None:
        """Wake pods if a node that was rejected as too busy is not any more."""
        nodes = self.handle.nodes
        there = [nodes[nodes.rows[name]] for name in self._rejected_nodes if name in nodes]
        still = {node.name for node in there if self._verdict(node) is not None}
        self._rejected_nodes = still
        if len(still) < len(there):
            self.handle.announce(NODE_CALMED)

    def _report(self, stale: list[str]) -> None:
        if stale and not self._stale.value:
            log.warning("Nodes without fresh CPU usage", nodes=stale[:10], count=len(stale))
        self._stale.set(len(stale))
        self._fresh.set(len(self.handle.nodes) - len(stale))

    def utilisation(self, node: NodeInfo) -> float | None:
        """Return percent of allocatable; None without a fresh measurement."""
        measured, allocatable = self._measured.get(node.name), node.allocatable.get("cpu", 0)
        if measured is None or not allocatable:
            return None
        newer = (pod for pod in node.pods.values() if _started(pod) > measured.at)
        requested = sum(pod.requests.amounts.get("cpu", 0) for pod in newer)
        return 100 * (measured.milli_cpu + requested) / allocatable

    # ---- Filter and Score ----------------------------------------------------------------------

    def sign(self, pod: PodInfo) -> Hashable:
        return ()  # all pods are equivalent for this plugin

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        return self._version

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        status = self._verdict(node)
        if status is not None:
            self._rejected_nodes.add(node.name)
        return status

    def _verdict(self, node: NodeInfo) -> Status | None:
        # Unresolvable: no pod should be evicted because of a measurement.
        percent = self.utilisation(node)
        if percent is None:
            # Before the first reading pods wait for it, whatever `unknown` says.
            return STALE if self.args.unknown == "Reject" or not self._version else None
        return BUSY if percent > self.args.max_percent else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        percent = self.utilisation(node)
        return 0 if percent is None else max(0, 100 - round(percent))

    def events_to_register(self) -> Iterable[ClusterEvent]:
        return (NODE_CALMED, ClusterEvent(events.NODE, events.ADD))


def _started(pod: PodInfo) -> float:
    """Return when a pod started, in seconds since the epoch; infinite while it has not."""
    _, started = pod.importance
    return started
