"""Pods by name and by reason: those that wait, and with a search those that have a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from operator import itemgetter

import msgspec

from proreus.clock import Clock
from proreus.framework.pod_info import QueuedPodInfo
from proreus.objects.pod import Pod
from proreus.queue.scheduling_queue import SchedulingQueue

SHOWN = 100
READY = "ready"
"""Stands for pods that nothing rejects: they wait for their turn."""


class ListedPod(msgspec.Struct):
    """A pod of the list. ``place``: its queue, or its node. ``waits``: seconds, None if placed."""

    namespace: str
    name: str
    place: str
    waits: float | None
    attempts: int
    rejected_by: str


class PodList(msgspec.Struct):
    """The pods that were asked for, those that wait longest first. ``count``: of all of them.

    ``reasons``: how many pods wait for each reason, whatever was asked.
    """

    pods: list[ListedPod]
    count: int
    placed: list[ListedPod]
    placed_count: int
    reasons: list[tuple[str, int]]


def list_pods(
    queue: SchedulingQueue, pods: Mapping[str, Pod], clock: Clock, text: str, reason: str
) -> PodList:
    """Return the pods whose ``namespace/name`` contains a text and that wait for a reason.

    ``reason``: "" for any. Pods with a node are searched where there is a text and no reason.
    """
    now = clock.monotonic()
    counts: dict[str, int] = {}
    matching: list[tuple[float, str, QueuedPodInfo, str]] = []
    reasons = _Reasons()
    # Once a pod, with up to all pods of a cluster waiting: the event loop stands still meanwhile.
    for place, waiting in _waiting(queue):
        for queued in waiting:
            why = READY if place == "active" else reasons.of(queued)
            counts[why] = counts.get(why, 0) + 1
            if reason in ("", why) and (not text or text in queued.key):
                first = queued.initial_attempt_timestamp
                since = queued.timestamp if first is None else first
                matching.append((since, place, queued, why))
    placed: list[str] = []
    if text and not reason:
        placed = [key for key, pod in pods.items() if text in key and pod.spec.node_name]
    oldest = nsmallest(SHOWN, matching, key=itemgetter(0))
    return PodList(
        pods=[
            _listed(queued.key, place, max(now - since, 0.0), queued.attempts, why)
            for since, place, queued, why in oldest
        ],
        count=len(matching),
        placed=[
            _listed(key, pods[key].spec.node_name, None, 0, "") for key in nsmallest(SHOWN, placed)
        ],
        placed_count=len(placed),
        reasons=sorted(counts.items(), key=lambda one: (-one[1], one[0])),
    )


def _listed(
    key: str, place: str, waits: float | None, attempts: int, rejected_by: str
) -> ListedPod:
    namespace, _, name = key.partition("/")
    return ListedPod(namespace, name, place, waits, attempts, rejected_by)


def _waiting(queue: SchedulingQueue) -> Iterator[tuple[str, list[QueuedPodInfo]]]:
    yield "active", queue.active_pods()
    yield "backoff", queue.backoff_pods()
    yield "unschedulable", queue.unschedulable_pods()
    yield "gated", queue.gated_pods()


class _Reasons:
    """Which plugins keep pods from their nodes, in one text for each set of plugins."""

    def __init__(self) -> None:
        self._texts: dict[frozenset[str], str] = {}

    def of(self, queued: QueuedPodInfo) -> str:
        plugins = frozenset(queued.rejectors or (queued.gating_plugin or "error",))
        text = self._texts.get(plugins)
        if text is None:
            text = self._texts[plugins] = ", ".join(sorted(plugins))
        return text
