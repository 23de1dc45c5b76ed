"""Lists pods by name, namespace, profile and reason: waiting pods, and in a search placed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from heapq import nsmallest

import msgspec

from proreus.base.clock import Clock
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.pod_info import QueuedPodInfo
from proreus.insight.dashboard.listing import SHOWN, Listing
from proreus.insight.explain.queues import WaitReasons, first_tried
from proreus.objects.pod import Pod

READY = "ready"
"""Stands for pods that nothing rejects: they wait for their turn."""


class WaitingRow(msgspec.Struct):
    """A waiting pod. ``since``: seconds of the monotonic clock. ``why``: the plugins that reject
    it.
    """

    queued: QueuedPodInfo
    queue: str
    since: float
    why: str


class ListedPod(msgspec.Struct):
    """A pod of the list. ``place``: its queue, or its node. ``since``: since the epoch; None
    if it is placed. ``reasons``: the message of its last attempt, without what preemption says.
    """

    namespace: str
    name: str
    place: str
    since: float | None = None
    attempts: int = 0
    priority: int = 0
    rejected_by: str = ""
    reasons: str = ""


class PodList(msgspec.Struct):
    """The requested pods, and the number of all of them.

    ``reasons``, ``namespaces``, ``profiles``: how many pods wait for each, whatever was asked.
    """

    pods: list[ListedPod]
    count: int
    placed: list[ListedPod]
    placed_count: int
    reasons: list[tuple[str, int]]
    namespaces: list[tuple[str, int]]
    profiles: list[tuple[str, int]]


FILTERS = ("q", "reason", "namespace", "profile")
COLUMNS: dict[str, Callable[[WaitingRow], object]] = {
    "-waits": lambda row: -row.since,
    "pod": lambda row: row.queued.pod.metadata.name,
    "namespace": lambda row: row.queued.pod.metadata.namespace,
    "queue": lambda row: row.queue,
    "reason": lambda row: row.why,
    "-priority": lambda row: row.queued.priority,
    "-attempts": lambda row: row.queued.attempts,
}


def list_pods(
    queue: SchedulingQueue,
    pods: Mapping[str, Pod],
    clock: Clock,
    message_of: Callable[[str], str],
    asked: Listing,
) -> PodList:
    """Return the pods that are asked for.

    ``message_of``: returns the message of a pod's last attempt. Pods with a node are searched where
    there is a text or a namespace, and no reason.
    """
    text, reason, namespace, profile = (asked[name] for name in FILTERS)
    reasons: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    profiles: Counter[str] = Counter()
    why_waits, reason_of = WaitReasons(queue), cache(_reason_of)
    matching = []
    for place, waiting in queue.pods_by_queue().items():
        for queued in waiting:
            why = READY if place == "active" else reason_of(why_waits.of(queued))
            meta, of_profile = queued.pod.metadata, queued.pod.spec.scheduler_name
            reasons[why] += 1
            namespaces[meta.namespace] += 1
            profiles[of_profile] += 1
            if (
                reason in ("", why)
                and namespace in ("", meta.namespace)
                and profile in ("", of_profile)
                and text in queued.key
            ):
                matching.append(WaitingRow(queued, place, first_tried(queued), why))
    placed: list[tuple[str, str]] = []
    if (text or namespace) and not reason:
        placed = [
            (key, pod.spec.node_name)
            for key, pod in pods.items()
            if pod.spec.node_name
            and text in key
            and namespace in ("", pod.metadata.namespace)
            and profile in ("", pod.spec.scheduler_name)
        ]
    epoch = clock.now() - clock.monotonic()
    return PodList(
        pods=[_listed(row, epoch, message_of) for row in asked.sorted(matching)[:SHOWN]],
        count=len(matching),
        placed=[_placed(key, node) for key, node in nsmallest(SHOWN, placed)],
        placed_count=len(placed),
        reasons=_most_first(reasons),
        namespaces=_most_first(namespaces),
        profiles=_most_first(profiles),
    )


def _listed(row: WaitingRow, epoch: float, message_of: Callable[[str], str]) -> ListedPod:
    queued = row.queued
    meta = queued.pod.metadata
    return ListedPod(
        namespace=meta.namespace,
        name=meta.name,
        place=row.queue,
        since=epoch + row.since,
        attempts=queued.attempts,
        priority=queued.priority,
        rejected_by=row.why,
        reasons=short_reasons(message_of(queued.key)) or gates_of(queued),
    )


def _placed(key: str, node: str) -> ListedPod:
    namespace, _, name = key.partition("/")
    return ListedPod(namespace, name, node)


def gates_of(queued: QueuedPodInfo) -> str:
    """Return the scheduling gates of a pod as a sentence, "" if it has none."""
    gates = ", ".join(gate.name for gate in queued.pod.spec.scheduling_gates)
    return f"scheduling gates: {gates}" if gates else ""


def short_reasons(message: str) -> str:
    """Return a message such as ``0/3 nodes are available: 3 Insufficient cpu`` without its end.

    There it speaks of preemption, and of claims that cannot be deallocated.
    """
    text = message.partition(" preemption: ")[0]
    return text.replace(" no new claims to deallocate,", "").strip().removesuffix(".")


def _most_first(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


def _reason_of(plugins: frozenset[str]) -> str:
    return ", ".join(sorted(plugins))
