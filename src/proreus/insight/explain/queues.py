"""Describes the place of a waiting pod, and the queue as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from heapq import nsmallest
from typing import cast

from proreus.base.clock import Clock
from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.events import ClusterEvent
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.workload_forest import WorkloadForest
from proreus.insight.decisions import KeptRecords
from proreus.insight.explain.explanation import (
    GroupState,
    QueueExplanation,
    QueueReason,
    Waiting,
    WaitingPod,
    WakingEvent,
)
from proreus.objects.scheduling import pod_group_entity_key, pod_group_key

SHOWN = 10
"""The number of pods that a list names."""
_MANY_ACTIONS = 5
_PODS_AT_ONCE = 500
STARVING_ATTEMPTS = 5
STARVING_SECONDS = 300.0
"""A pod that waits for so long, after so many failed attempts, is called starving."""


def explain_waiting(
    queue: SchedulingQueue,
    queued: QueuedPodInfo,
    clock: Clock,
    states: PodGroupStates,
    forest: WorkloadForest,
) -> Waiting:
    """Return a waiting pod's queue, time, predecessors, and the events that would wake it."""
    entity = queue.entity_of(queued)
    name = queue.queue_name_of(entity.key)
    waiting = Waiting(
        queue=name,
        since=_wall(clock, entity.timestamp),
        attempts=queued.attempts,
        gating_plugin=entity.gating_plugin,
        scheduling_gates=tuple(gate.name for gate in queued.pod.spec.scheduling_gates),
        rejected_by=tuple(sorted(queued.rejectors)),
        group=_group(queued, states, forest),
    )
    if name in ("active", "backoff"):
        pods = queue.active_pods() if name == "active" else queue.backoff_pods()
        place = next((n for n, one in enumerate(pods) if one is queued), -1)
        if place >= 0:
            waiting.position = place + 1
            waiting.ahead = tuple(one.key for one in pods[:place][:SHOWN])
    if name == "backoff":
        left = queue.backoff_expiration(entity) - clock.monotonic()
        waiting.backoff_seconds = max(round(left, 3), 0.0)
    if name in ("unschedulable", "gated"):
        waiting.events = tuple(
            WakingEvent(plugin=plugin, event=_name_of(event), hinted=event.hint is not None)
            for plugin, event in queue.events_for(queued)
        )
    if name == "unschedulable":
        retried = entity.timestamp + queue.unschedulable_timeout_seconds
        waiting.retried_without_event_at = _wall(clock, retried)
    return waiting


def _name_of(event: ClusterEvent) -> str:
    """Return the label of an event, shortened where it stands for nearly any change."""
    if event.wildcard:
        return "any event"
    if event.action.bit_count() > _MANY_ACTIONS:
        return f"{event.resource} (any change)"
    return event.label


def _group(
    queued: QueuedPodInfo, states: PodGroupStates, forest: WorkloadForest
) -> GroupState | None:
    key = pod_group_key(queued.pod)
    if not key:
        return None
    entity_key = pod_group_entity_key(queued.pod)
    group = None if entity_key is None else forest.get(entity_key)
    state = states.get(key)
    pods = 0 if state is None else state.all_pods_count
    min_count = 0 if group is None else group.min_count
    return GroupState(
        name=key,
        exists=group is not None,
        min_count=min_count,
        pods=pods,
        scheduled=0 if state is None else state.scheduled_count,
        lacking=max(min_count - pods, 0),
    )


def explain_queue(
    queue: SchedulingQueue, records: KeptRecords | None, clock: Clock
) -> QueueExplanation:
    """Return counts by queue and reason, the oldest pods, and starving pods."""
    parts = explain_queue_in_parts(queue, records, clock)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return cast(QueueExplanation, end.value)


def explain_queue_in_parts(
    queue: SchedulingQueue, records: KeptRecords | None, clock: Clock
) -> Generator[None, None, QueueExplanation]:
    """Do as ``explain_queue``, and yield every few hundred pods: tens of thousands may wait.

    Pods are those that wait at the beginning, counts those of the end.
    """
    now = clock.monotonic()
    lists = queue.pods_by_queue()
    counted: dict[frozenset[str], int] = defaultdict(int)
    oldest_of: dict[frozenset[str], QueuedPodInfo] = {}
    oldest: list[tuple[str, QueuedPodInfo]] = []
    starving: list[tuple[str, QueuedPodInfo]] = []
    for name, pods in lists.items():
        for start in range(0, len(pods), _PODS_AT_ONCE):
            part = pods[start : start + _PODS_AT_ONCE]
            for queued in part if name != "active" else ():
                plugins = rejecting_plugins(queued)
                counted[plugins] += 1
                first = oldest_of.setdefault(plugins, queued)
                if first_tried(queued) < first_tried(first):
                    oldest_of[plugins] = queued
            oldest = _oldest([*oldest, *((name, one) for one in part)])
            starving = _oldest(
                [
                    *starving,
                    *(
                        (name, one)
                        for one in part
                        if one.attempts >= STARVING_ATTEMPTS
                        and not one.gated
                        and now - first_tried(one) >= STARVING_SECONDS
                    ),
                ]
            )
            yield
    reasons = [
        QueueReason(
            plugins=tuple(sorted(plugins)),
            count=count,
            oldest=oldest_of[plugins].key,
            oldest_since=_wall(clock, first_tried(oldest_of[plugins])),
        )
        for plugins, count in counted.items()
    ]
    counts = queue.pending_counts()
    in_all = sum(counts.values())
    return QueueExplanation(
        summary=f"Waiting: {in_all}; being scheduled or bound: {queue.in_flight_count}.",
        counts=counts,
        in_flight=queue.in_flight_count,
        next=tuple(one.key for one in lists["active"][:SHOWN]),
        reasons=tuple(sorted(reasons, key=lambda one: -one.count)),
        oldest=_listed(oldest, clock),
        starving=_listed(starving, clock),
        records=0 if records is None else len(records),
        record_bytes=0 if records is None else records.size_bytes,
    )


def _oldest(pods: list[tuple[str, QueuedPodInfo]]) -> list[tuple[str, QueuedPodInfo]]:
    return nsmallest(SHOWN, pods, key=lambda one: first_tried(one[1]))


def _listed(pods: list[tuple[str, QueuedPodInfo]], clock: Clock) -> tuple[WaitingPod, ...]:
    return tuple(
        WaitingPod(
            pod=queued.key,
            queue=name,
            since=_wall(clock, first_tried(queued)),
            attempts=queued.attempts,
            rejected_by=tuple(sorted(queued.rejectors)),
        )
        for name, queued in pods
    )


def rejecting_plugins(queued: QueuedPodInfo) -> frozenset[str]:
    """Return the plugins that keep a pod from its node; "error" stands for an error."""
    return frozenset(queued.rejectors or (queued.gating_plugin or "error",))


def first_tried(queued: QueuedPodInfo) -> float:
    """Return when the first attempt for a pod began, or since when it waits for one."""
    first = queued.initial_attempt_timestamp
    return queued.timestamp if first is None else first


def _wall(clock: Clock, monotonic: float) -> float:
    """Return an instant of the monotonic clock as seconds since the epoch."""
    return clock.now() - (clock.monotonic() - monotonic)
