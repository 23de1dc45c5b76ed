"""Lists pods by name and reason: waiting pods, and in a search pods with a node too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from heapq import nsmallest
from operator import itemgetter

import msgspec

from proreus.base.clock import Clock
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.pod_info import QueuedPodInfo
from proreus.insight.explain.queues import first_tried, rejecting_plugins
from proreus.objects.pod import Pod

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
    """The requested pods, the longest waiting first. ``count`` is the number of all of them.

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
    counts: Counter[str] = Counter()
    reason_of = cache(_reason_of)
    matching: list[tuple[float, str, QueuedPodInfo, str]] = []
    for place, waiting in queue.pods_by_queue().items():
        for queued in waiting:
            why = READY if place == "active" else reason_of(rejecting_plugins(queued))
            counts[why] += 1
            if reason in ("", why) and text in queued.key:
                matching.append((first_tried(queued), place, queued, why))
    placed: list[tuple[str, str]] = []
    if text and not reason:
        placed = [
            (key, pod.spec.node_name)
            for key, pod in pods.items()
            if text in key and pod.spec.node_name
        ]
    return PodList(
        pods=[
            _listed(queued.key, place, max(now - since, 0.0), queued.attempts, why)
            for since, place, queued, why in nsmallest(SHOWN, matching, key=itemgetter(0))
        ],
        count=len(matching),
        placed=[_listed(key, node, None, 0, "") for key, node in nsmallest(SHOWN, placed)],
        placed_count=len(placed),
        reasons=sorted(counts.items(), key=lambda one: (-one[1], one[0])),
    )


def _listed(
    key: str, place: str, waits: float | None, attempts: int, rejected_by: str
) -> ListedPod:
    namespace, _, name = key.partition("/")
    return ListedPod(namespace, name, place, waits, attempts, rejected_by)


def _reason_of(plugins: frozenset[str]) -> str:
    return ", ".join(sorted(plugins))
