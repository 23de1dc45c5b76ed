"""Colocation: online and offline pods on the same nodes, without over-commitment.

The resources are Koordinator's ``kubernetes.io/batch-cpu`` and ``batch-memory``.

Filter looks at the batch resources of a node, less the requests of online pods that came since.

A controller writes to a node how much batch-cpu and batch-memory offline pods may request there:
what online pods do not use, less a margin. That is right at the moment of its measurement. Online
pods that came later, or so shortly before that they were not using much yet, count in full.

Worked example: of 10 CPUs online pods use 2, and 1 is a margin: ``batch-cpu`` is 7000. Offline pods
request 4000 of them. A new online pod of 2 CPUs fits, and leaves 1000 for offline pods. One of 4
CPUs would be rejected, so that preemption evicts offline pods for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from pydantic import Field

from proreus.addons.node_metrics.recent_pods import RecentPods, RecentPodsPlugin, timestamp
from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.framework import (
    ClusterEvent,
    CycleState,
    FilterPlugin,
    Handle,
    NodeInfo,
    PluginArgs,
    PodInfo,
    Status,
    events,
)
from proreus.objects import NODES, Node, Pod

BATCH = tuple(f"kubernetes.io/batch-{name}" for name in CPU_AND_MEMORY)
"""The resources that offline pods request: thousandths of a CPU, and bytes."""

MEASURED_AT = "colocation.proreus.dev/measured-at"
"""Annotation of a node: the end of the measurement that its batch resources come from, RFC 3339."""

_REJECTIONS = tuple(
    Status.unschedulable(f"Insufficient {name} beside online and offline pods")
    for name in CPU_AND_MEMORY
)

Pair = tuple[int, int]
"""Of cpu and memory: milli-CPU and bytes."""


class ColocationArgs(PluginArgs):
    """``report_interval_seconds``: pods that came so shortly before a measurement count by their
    requests, since they did not use much yet."""

    report_interval_seconds: int = Field(60, ge=0)


class _Measured(NamedTuple):
    """The batch resources of a node as it shows them, and when they were measured."""

    amounts: tuple[str, ...]
    annotation: str
    at: float


class Colocation(FilterPlugin, RecentPodsPlugin[Pair]):
    """Rejects nodes where online and offline pods would need more than there is."""

    Args = ColocationArgs
    args: ColocationArgs
    row_local = True

    def __init__(self, args: ColocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._measured: dict[str, _Measured] = {}
        """By name of the node."""
        self.recent = RecentPods(handle, _requests_of)
        """Online pods that the batch resources of their node do not include."""
        handle.on_change(NODES, self._node_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register pods that leave, and nodes whose batch resources change."""
        changed = events.UPDATE_NODE_ALLOCATABLE | events.UPDATE_NODE_ANNOTATION
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE),
            ClusterEvent(events.NODE, events.ADD | changed),
        )

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the online and the batch requests of the pod."""
        amounts = pod.requests.amounts
        return tuple(amounts.get(name, 0) for name in (*CPU_AND_MEMORY, *BATCH))

    # ---- measurements --------------------------------------------------------------------------

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._measured.pop(old.metadata.name, None)
            return
        name = new.metadata.name
        amounts = tuple(str(new.status.allocatable.get(batch, "")) for batch in BATCH)
        annotation = new.metadata.annotations.get(MEASURED_AT, "")
        known = self._measured.get(name)
        if known is not None and known[:2] == (amounts, annotation):
            return
        # Without the annotation, the change of the amounts is the time of the measurement.
        at = timestamp(annotation) or self.handle.clock.now()
        self._measured[name] = _Measured(amounts, annotation, at)
        newest = at - self.args.report_interval_seconds
        self.recent.keep_on(name, lambda pod: pod.assigned_at > newest)

    def _unmeasured(self, node: NodeInfo) -> Pair:
        """Sum the requests of online pods that the batch resources do not include yet."""
        recent = self.recent.by_node.get(node.name)
        if not recent:
            return 0, 0
        measured = self._measured.get(node.name)
        newest = 0.0 if measured is None else measured.at - self.args.report_interval_seconds
        # In a dry run of preemption some of them are not on the node.
        pods = [
            one.predicted
            for uid, one in recent.items()
            if one.assigned_at > newest and uid in node.pods
        ]
        return sum(pod[0] for pod in pods), sum(pod[1] for pod in pods)

    # ---- Filter --------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Reject a node that has too little for the pod beside online and offline pods."""
        unmeasured = self._unmeasured(node)
        for own, batch, other, status in zip(
            CPU_AND_MEMORY, BATCH, unmeasured, _REJECTIONS, strict=True
        ):
            offline = node.requested[batch]
            free = node.allocatable[batch] - offline - other
            asked = pod.requests.amounts.get(batch, 0)
            if offline:
                # Online pods matter beside offline ones only: NodeResourcesFit counts the others.
                asked += pod.requests.amounts.get(own, 0)
            if asked > free and asked:
                return status
        return None


def _requests_of(pod: Pod) -> Pair:
    amounts = PodInfo(pod).requests.amounts
    cpu, memory = (amounts.get(name, 0) for name in CPU_AND_MEMORY)
    return cpu, memory
