"""DelayScheduling: a pod waits a few scheduling opportunities for a node that it prefers.

A pod whose data is on a node that is busy now often gets that node if it lets a few opportunities
pass, and little time is lost. An opportunity counts only if the pod could have gone somewhere else:
so Permit, which knows where the pod would go, lets it pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable

from pydantic import Field

from proreus.framework import (
    BackgroundPlugin,
    ClusterEvent,
    CycleState,
    Handle,
    NodeInfo,
    PermitPlugin,
    PluginArgs,
    PodInfo,
    QueuedPodInfo,
    QueueSortPlugin,
    ScorePlugin,
    Seconds,
    Status,
    events,
)
from proreus.objects import PODS, Node, Pod, key_of


class DelayScheduling(QueueSortPlugin, ScorePlugin, PermitPlugin, BackgroundPlugin):
    """Its weight must exceed the sum of all others, so that a feasible preferred node wins."""

    class Args(PluginArgs):
        """Where pods name their nodes, and how long they wait for them."""

        annotation: str = Field(
            "example.com/prefer-nodes", description="Of pods: names of nodes, separated by commas."
        )
        opportunities: int = Field(5, ge=0, description="So many may pass; then any node will do.")
        retry_seconds: Seconds = Field(1.0, gt=0, description="When the next one comes at latest.")

    args: Args
    row_local = True

    def __init__(self, args: Args, handle: Handle) -> None:
        super().__init__(args, handle)
        self._passed: dict[str, int] = {}
        """Opportunities that a pod has let pass, by ``namespace/name``."""
        self._to_offer: set[str] = set()
        """Pods that let the latest one pass; others wait for events that may help them."""
        handle.on_change(PODS, self._on_pod)
        self._outcomes = handle.metrics.counter(
            "proreus_delay_scheduling_pods_total", "ALPHA", "Where pods with a wish went.", "node"
        )

    # ---- order and preference ------------------------------------------------------------------

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        # A pod that let others go first keeps its place: its first attempt counts, not the latest.
        return -queued.info.priority, queued.initial_attempt_timestamp or queued.timestamp

    def sign(self, pod: PodInfo) -> Hashable:
        return self._wishes(pod)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 100 if node.name in self._wishes(pod) else 0

    # ---- opportunities -------------------------------------------------------------------------

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        wishes = self._wishes(pod)
        if not wishes:
            return None
        if node_name in wishes:
            self._record_outcome(pod, "preferred")
            return None
        passed = self._passed.get(pod.key, 0)
        if passed >= self.args.opportunities or not any(map(self._may_free_up, wishes)):
            self._record_outcome(pod, "other")
            return None
        self._passed[pod.key] = passed + 1
        self._to_offer.add(pod.key)
        return Status.unschedulable(
            f"waiting for {' or '.join(sorted(wishes))}: "
            f"opportunity {passed + 1} of {self.args.opportunities} passed"
        )

    def _record_outcome(self, pod: PodInfo, where: str) -> None:
        self._outcomes.labels(where).inc()
        self._passed.pop(pod.key, None)

    def _may_free_up(self, name: str) -> bool:
        nodes = self.handle.nodes
        return name in nodes and not nodes[nodes.rows[name]].unschedulable

    async def run_in_background(self) -> None:
        """Offer an opportunity now and then, also when nothing happens in the cluster."""
        while True:
            await asyncio.sleep(self.args.retry_seconds)
            offered, self._to_offer = self._to_offer, set()
            self.handle.activate(offered)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.spec.node_name):
            self._passed.pop(key_of(old), None)

    # ---- events that wake pods ------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        capacity = events.ADD | events.UPDATE_NODE_ALLOCATABLE | events.UPDATE_NODE_TAINT
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, self._leaves_a_preferred_node),
            ClusterEvent(events.NODE, capacity, self._is_preferred),
        )

    def _leaves_a_preferred_node(self, pod: PodInfo, old: Pod, new: None) -> bool:
        return old.spec.node_name in self._wishes(pod)

    def _is_preferred(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return new.metadata.name in self._wishes(pod)

    def _wishes(self, pod: PodInfo) -> frozenset[str]:
        text = pod.pod.metadata.annotations.get(self.args.annotation, "")
        return frozenset(name.strip() for name in text.split(",") if name.strip())
