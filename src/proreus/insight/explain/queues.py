"""Describes the place of a waiting pod, and the queue as a whole."""

from __future__ import annotations

from collections import defaultdict
from heapq import nsmallest

from proreus.base.clock import Clock
from proreus.engine.cache.cache import Cache
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.events import ClusterEvent
from proreus.framework.pod_info import QueuedPodInfo
from proreus.insight.decisions.retention import KeptRecords
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
STARVING_ATTEMPTS = 5
STARVING_SECONDS = 300.0
"""A pod that waits for so long, after so many failed attempts, is called starving."""


def explain_waiting(
    queue: SchedulingQueue, queued: QueuedPodInfo, clock: Clock, cache: Cache
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
        group=_group(queued, cache),
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


def _group(queued: QueuedPodInfo, cache: Cache) -> GroupState | None:
    key = pod_group_key(queued.pod)
    if not key:
        return None
    entity_key = pod_group_entity_key(queued.pod)
    group = None if entity_key is None else cache.workload_forest.get(entity_key)
    state = cache.pod_group_states.get(key)
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
    lists = queue.pods_by_queue()
    rejected: dict[frozenset[str], list[QueuedPodInfo]] = defaultdict(list)
    for name, pods in lists.items():
        for queued in pods if name != "active" else ():
            rejected[rejecting_plugins(queued)].append(queued)
    waiting = [(name, queued) for name, pods in lists.items() for queued in pods]
    starving_since = clock.monotonic() - STARVING_SECONDS
    starving = [
        (name, queued)
        for name, queued in waiting
        if queued.attempts >= STARVING_ATTEMPTS
        and not queued.gated
        and first_tried(queued) <= starving_since
    ]
    reasons = []
    for plugins, pods in rejected.items():
        oldest = min(pods, key=first_tried)
        reasons.append(
            QueueReason(
                plugins=tuple(sorted(plugins)),
                count=len(pods),
                oldest=oldest.key,
                oldest_since=_wall(clock, first_tried(oldest)),
            )
        )
    counts = queue.pending_counts()
    in_all = sum(counts.values())
    return QueueExplanation(
        summary=f"Waiting: {in_all}; being scheduled or bound: {queue.in_flight_count}.",
        counts=counts,
        in_flight=queue.in_flight_count,
        next=tuple(one.key for one in lists["active"][:SHOWN]),
        reasons=tuple(sorted(reasons, key=lambda one: -one.count)),
        oldest=_oldest(waiting, clock),
        starving=_oldest(starving, clock),
        records=0 if records is None else len(records),
        record_bytes=0 if records is None else records.size_bytes,
    )


def _oldest(pods: list[tuple[str, QueuedPodInfo]], clock: Clock) -> tuple[WaitingPod, ...]:
    return tuple(
        WaitingPod(
            pod=queued.key,
            queue=name,
            since=_wall(clock, first_tried(queued)),
            attempts=queued.attempts,
            rejected_by=tuple(sorted(queued.rejectors)),
        )
        for name, queued in nsmallest(SHOWN, pods, key=lambda one: first_tried(one[1]))
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
