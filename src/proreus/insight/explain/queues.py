"""Describes the place of a waiting pod, and the queue as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import nsmallest

from proreus.base.clock import Clock
from proreus.base.errors import PluginError
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.runtime.plugin_errors import as_status
from proreus.engine.runtime.points import call_plugin
from proreus.engine.runtime.profile import Profile
from proreus.engine.scheduler import Scheduler
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.pod_info import QueuedPodInfo
from proreus.insight.decisions.retention import KeptRecords
from proreus.insight.explain.explanation import (
    QueueExplanation,
    QueueReason,
    Waiting,
    WaitingGroup,
    WaitingPod,
    WakingEvent,
)
from proreus.insight.explain.groups import PodsOfGroup, group_of
from proreus.objects.scheduling import pod_group_key

SHOWN = 10
"""The number of pods that a list names."""
_ASKED = 200
"""So many pods are looked at for their groups."""
_MANY_ACTIONS = 5
STARVING_ATTEMPTS = 5
STARVING_SECONDS = 300.0
"""A pod that waits for so long, after so many failed attempts, is called starving."""


def explain_waiting(
    scheduler: Scheduler, queued: QueuedPodInfo, clock: Clock, group: PodsOfGroup | None
) -> Waiting:
    """Return a waiting pod's queue, time, predecessors, and the events that would wake it."""
    queue = scheduler.queue
    entity = queue.entity_of(queued)
    beside_groups = "incomplete" if group is not None and group.missing else "pending"
    name = queue.queue_name_of(entity.key) or beside_groups
    of_group = () if group is None or not group.is_whole else group.waiting
    waiting = Waiting(
        queue=name,
        since=_wall(clock, entity.timestamp),
        attempts=queued.attempts,
        gating_plugin=entity.gating_plugin,
        scheduling_gates=tuple(gate.name for gate in queued.pod.spec.scheduling_gates),
        rejected_by=tuple(sorted(queued.rejectors or _rejectors(of_group))),
    )
    if name == "gated":
        waiting.gated_because = _gated_because(
            scheduler.profiles.get(queued.pod.spec.scheduler_name), waiting.gating_plugin, queued
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
            for plugin, event in queue.events_for(entity)
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


def _gated_because(profile: Profile | None, plugin: str, queued: QueuedPodInfo) -> str:
    """Return what the gating plugin says of a pod; "" if that is not known."""
    plugins = () if profile is None else profile.pre_enqueue
    for one in plugins:
        if one.name == plugin:
            try:
                point = "PreEnqueue"
                answer = call_plugin(one, point, CycleState(), one.pre_enqueue, queued.info)
                status = as_status(one, point, answer)
            except PluginError as error:
                return str(error)
            return "" if status is None else status.message
    return ""


class WaitReasons:
    """Why pods of the queue wait: the plugins that reject or gate them, or other words.

    The pods of a group are rejected by what rejects any of them.
    """

    def __init__(self, queue: SchedulingQueue, records: KeptRecords | None = None) -> None:
        self._records = records
        self._of_group: dict[str, set[str]] = defaultdict(set)
        groups = queue.pod_groups
        self._missing = {queued.uid for queued in groups.incomplete} if groups else set()
        for pods in queue.pods_by_queue().values():
            for queued in pods:
                if key := pod_group_key(queued.pod):
                    self._of_group[key] |= _reasons(queued)

    def of(self, queued: QueuedPodInfo) -> frozenset[str]:
        """Return why a pod waits."""
        if queued.uid in self._missing:
            return frozenset({NO_POD_GROUP})
        found = _reasons(queued) or self._of_group.get(pod_group_key(queued.pod))
        if found:
            return frozenset(found)
        if not queued.attempts:
            return frozenset({NOT_TRIED})
        record = None if self._records is None else self._records.latest(queued.key)
        if record is not None and record.failure is not None and record.failure.status.rejected:
            return frozenset({record.failure.message})
        return frozenset({AN_ERROR})


NO_POD_GROUP, NOT_TRIED, AN_ERROR = "no PodGroup", "not tried yet", "an error"


def _reasons(queued: QueuedPodInfo) -> set[str]:
    return set(queued.rejectors) or ({queued.gating_plugin} if queued.gating_plugin else set())


def _rejectors(pods: Iterable[QueuedPodInfo]) -> set[str]:
    return {plugin for queued in pods for plugin in queued.rejectors}


def explain_queue(
    scheduler: Scheduler, records: KeptRecords | None, clock: Clock
) -> QueueExplanation:
    """Return counts by queue and reason, the oldest pods and groups, and starving pods."""
    queue = scheduler.queue
    lists, why = queue.pods_by_queue(), WaitReasons(queue, records)
    rejected: dict[frozenset[str], list[QueuedPodInfo]] = defaultdict(list)
    for name, pods in lists.items():
        for queued in pods if name != "active" else ():
            rejected[why.of(queued)].append(queued)
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
        summary=f"Pods that wait: {in_all}. Being scheduled or bound: {queue.in_flight_count}.",
        counts=counts,
        in_flight=queue.in_flight_count,
        next=tuple(one.key for one in lists["active"][:SHOWN]),
        reasons=tuple(sorted(reasons, key=lambda one: -one.count)),
        oldest=_oldest(waiting, clock, why),
        starving=_oldest(starving, clock, why),
        groups=tuple(_groups(scheduler, waiting, records, clock)),
        records=0 if records is None else len(records),
        record_bytes=0 if records is None else records.size_bytes,
    )


def _oldest(
    pods: list[tuple[str, QueuedPodInfo]], clock: Clock, why: WaitReasons
) -> tuple[WaitingPod, ...]:
    return tuple(
        WaitingPod(
            pod=queued.key,
            queue=name,
            since=_wall(clock, first_tried(queued)),
            attempts=queued.attempts,
            rejected_by=() if name == "active" else tuple(sorted(why.of(queued))),
        )
        for name, queued in nsmallest(SHOWN, pods, key=lambda one: first_tried(one[1]))
    )


def _groups(
    scheduler: Scheduler,
    pods: list[tuple[str, QueuedPodInfo]],
    records: KeptRecords | None,
    clock: Clock,
) -> Iterator[WaitingGroup]:
    """Yield the groups of the oldest pods."""
    seen: set[str] = set()
    shown = 0
    for _, queued in nsmallest(_ASKED, pods, key=lambda one: first_tried(one[1])):
        if shown == SHOWN:
            return
        if queued.key in seen or (group := group_of(scheduler, queued.pod)) is None:
            continue
        seen.update(one.key for one in group.waiting)
        shown += 1
        yield WaitingGroup(
            group=group.state,
            since=_wall(clock, first_tried(queued)),
            waiting=len(group.waiting) or 1,
            message=group_message(group, records),
        )


def group_message(group: PodsOfGroup, records: KeptRecords | None) -> str:
    """Return why the last attempt of a group failed, as far as it is recorded."""
    if records is None:
        return ""
    found = [records.latest(queued.key) for queued in group.waiting[:_ASKED]]
    failures = [one.failure for one in found if one is not None and one.failure is not None]
    # A pod that was rejected by itself says less than one that fails with its group.
    failures.sort(key=lambda failure: bool(failure.plugins))
    return failures[0].message if failures else ""


def first_tried(queued: QueuedPodInfo) -> float:
    """Return when the first attempt for a pod began, or since when it waits for one."""
    first = queued.initial_attempt_timestamp
    return queued.timestamp if first is None else first


def _wall(clock: Clock, monotonic: float) -> float:
    """Return an instant of the monotonic clock as seconds since the epoch."""
    return clock.now() - (clock.monotonic() - monotonic)
