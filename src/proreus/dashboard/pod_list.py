"""Pods by name and by reason: those that wait, and with a search those that have a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest

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


def reason_of(queued: QueuedPodInfo, place: str) -> str:
    """Return the plugins that keep a pod from its node, in one text."""
    if place == "active":
        return READY
    plugins = sorted(queued.rejectors) or [queued.gating_plugin or "error"]
    return ", ".join(plugins)


def list_pods(
    queue: SchedulingQueue, pods: Mapping[str, Pod], clock: Clock, text: str, reason: str
) -> PodList:
    """Return the pods whose ``namespace/name`` contains a text and that wait for a reason.

    ``reason``: "" for any. Pods with a node are searched where there is a text and no reason.
    """
    now = clock.monotonic()
    counts: dict[str, int] = {}
    matching: list[tuple[float, str, QueuedPodInfo, str]] = []
    for place, queued in _waiting(queue):
        why = reason_of(queued, place)
        counts[why] = counts.get(why, 0) + 1
        if text in queued.key and reason in ("", why):
            first = queued.initial_attempt_timestamp
            since = queued.timestamp if first is None else first
            matching.append((since, place, queued, why))
    placed: list[str] = []
    if text and not reason:
        placed = [key for key, pod in pods.items() if text in key and pod.spec.node_name]
    oldest = nsmallest(SHOWN, matching, key=lambda one: one[0])
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


def _waiting(queue: SchedulingQueue) -> Iterator[tuple[str, QueuedPodInfo]]:
    for place, pods in (
        ("active", queue.active_pods()),
        ("backoff", queue.backoff_pods()),
        ("unschedulable", queue.unschedulable_pods()),
        ("gated", queue.gated_pods()),
    ):
        for queued in pods:
            yield place, queued
