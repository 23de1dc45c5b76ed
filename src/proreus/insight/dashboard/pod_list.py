"""Lists pods by name and reason: waiting pods, and in a search pods with a node too."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import nsmallest
from operator import itemgetter

import msgspec

from proreus.base.clock import Clock
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.pod_info import QueuedPodInfo
from proreus.insight.explain.queues import first_tried, rejecting_plugins
from proreus.objects.pod import Pod

SHOWN = 100
_PODS_AT_ONCE = 500
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
) -> Generator[None, None, PodList]:
    """Return the pods whose ``namespace/name`` contains a text and that wait for a reason.

    ``reason``: "" for any. Pods with a node are searched where there is a text and no reason. It
    yields every few hundred pods: tens of thousands may wait, and more have a node.
    """
    now = clock.monotonic()
    counts: dict[str, int] = {}
    count = 0
    reasons = _Reasons()
    oldest: list[tuple[float, str, QueuedPodInfo, str]] = []
    for place, waiting in queue.pods_by_queue().items():
        for start in range(0, len(waiting), _PODS_AT_ONCE):
            matching = oldest
            for queued in waiting[start : start + _PODS_AT_ONCE]:
                why = READY if place == "active" else reasons.of(queued)
                counts[why] = counts.get(why, 0) + 1
                if reason in ("", why) and (not text or text in queued.key):
                    matching.append((first_tried(queued), place, queued, why))
                    count += 1
            oldest = nsmallest(SHOWN, matching, key=itemgetter(0))
            yield
    placed: list[tuple[str, str]] = []
    keys = list(pods) if text and not reason else []
    for start in range(0, len(keys), _PODS_AT_ONCE):
        for key in keys[start : start + _PODS_AT_ONCE]:
            # One may have gone since.
            if text in key and (pod := pods.get(key)) is not None and pod.spec.node_name:
                placed.append((key, pod.spec.node_name))
        yield
    return PodList(
        pods=[
            _listed(queued.key, place, max(now - since, 0.0), queued.attempts, why)
            for since, place, queued, why in oldest
        ],
        count=count,
        placed=[_listed(key, node, None, 0, "") for key, node in nsmallest(SHOWN, placed)],
        placed_count=len(placed),
        reasons=sorted(counts.items(), key=lambda one: (-one[1], one[0])),
    )


def _listed(
    key: str, place: str, waits: float | None, attempts: int, rejected_by: str
) -> ListedPod:
    namespace, _, name = key.partition("/")
    return ListedPod(namespace, name, place, waits, attempts, rejected_by)


class _Reasons:
    """The plugins that keep pods from their nodes, in one text for each set of plugins."""

    def __init__(self) -> None:
        self._texts: dict[frozenset[str], str] = {}

    def of(self, queued: QueuedPodInfo) -> str:
        plugins = rejecting_plugins(queued)
        text = self._texts.get(plugins)
        if text is None:
            text = self._texts[plugins] = ", ".join(sorted(plugins))
        return text
