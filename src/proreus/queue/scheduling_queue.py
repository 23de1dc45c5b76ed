"""The scheduling queue: where pods wait, and what moves them.

    add / update ─► PreEnqueue ─► active ─► pop ─► in flight ─► done
                        │gated      ▲ ▲ ▲                │add_unschedulable
                        ▼           │ │ └── backoff ◄────┤ an error, or an event that helps
                  unschedulable ────┘ │        ▲         ▼
                        └──────────── move ────┴── unschedulable

A state machine without I/O: every method is sync, the clock is an argument, and the only outside
code that it calls is ``on_ready`` and plugins. Its behaviour is that of kube-scheduler's
PriorityQueue; ``sub_queues`` has the moves themselves, ``queueing_hints`` decides which pods an
event concerns, ``in_flight`` keeps the events that a popped pod has yet to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proreus import logs
from proreus.clock import Clock
from proreus.framework.event_registrations import QueueProfile
from proreus.framework.events import (
    ALL,
    ANY,
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
)
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo
from proreus.framework.workload_forest import WorkloadForest
from proreus.metrics import SchedulerMetrics
from proreus.objects.pod import Pod
from proreus.queue.active import ActiveQueue
from proreus.queue.backoff import BackoffQueue
from proreus.queue.in_flight import InFlightPods
from proreus.queue.pod_group_queue import PodGroupQueue
from proreus.queue.pre_enqueue import PreEnqueuePlugins
from proreus.queue.pre_queueing_hints import NamedPods
from proreus.queue.queue_recorder import QueueRecorder
from proreus.queue.queueing_hints import NO_MATCHES, QueueingHints, QueueingStrategy
from proreus.queue.sub_queues import QueueOptions, SubQueues

log = logs.logger(__name__)

LEFT_OVER_FLUSH_SECONDS = 30
PROFILES_CHANGED = ClusterEvent(ANY, ALL, label="ProfilesChanged")

NO_PROFILES: Mapping[str, QueueProfile] = MappingProxyType({})
DEFAULT_OPTIONS = QueueOptions()


def _by_arrival(queued: QueuedPodInfo) -> float:
    return queued.timestamp


class SchedulingQueue:
    """All pods of our profiles that are neither bound nor assumed.

    ``sort_key``: of the queueSort plugin. ``profiles``: by schedulerName. ``use_profiles`` replaces
    both. ``pod_lister``: returns the pod of a ``namespace/name`` as the informer knows it.
    ``on_ready`` is called after a change that leaves a pod to pop; the caller of ``pop`` sets it.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        pod_lister: Callable[[str], Pod | None],
        sort_key: Callable[[Any], Any] = _by_arrival,
        profiles: Mapping[str, QueueProfile] = NO_PROFILES,
        options: QueueOptions = DEFAULT_OPTIONS,
        metrics: SchedulerMetrics | None = None,
        forest: WorkloadForest | None = None,
    ) -> None:
        """``forest``: the pod groups, which are queued as a whole; None: pods are queued alone."""
        self._clock = clock
        self._unschedulable_timeout = options.unschedulable_timeout_seconds
        self._generic_workload = options.generic_workload
        self._events = options.events
        self._pre_queueing_hints = options.pre_queueing_hints
        self._bookkeeping_of_1_37 = options.bookkeeping_of_1_37
        self._flushes_gated_pods = options.flushes_gated_pods
        self._recorder = QueueRecorder(clock, metrics)
        self._hints = QueueingHints(profiles, self._recorder)
        self._in_flight = InFlightPods()
        self._sub_queues = SubQueues(
            clock,
            sort_key,
            self._in_flight,
            PreEnqueuePlugins(profiles, self._recorder),
            pod_lister,
            self._recorder,
            options,
        )
        self._active = self._sub_queues.active
        self._backoff = self._sub_queues.backoff
        self._unschedulable = self._sub_queues.unschedulable
        self.nominator = self._sub_queues.nominator
        self.pod_groups = (
            None
            if forest is None
            else PodGroupQueue(
                self._sub_queues,
                forest,
                self._recorder,
                clock,
                options.events,
                self._notify_ready,
            )
        )
        """The pods of groups; None: pods are queued one by one."""
        self.on_ready: Callable[[], None] = lambda: None
        self._next_left_over_flush = clock.monotonic()
        self._expose_gauges()

    def _expose_gauges(self) -> None:
        metrics = self._recorder.metrics
        # From 1.37 on, two states of pods of pod groups have a series in any case.
        of_groups = {"incomplete": 0, "pending": 0} if metrics.counts_entities else {}
        metrics.pending_pods.set_function(
            lambda: {
                (queue,): count for queue, count in (of_groups | self.pending_counts()).items()
            }
        )
        metrics.queued_entities.set_function(
            lambda: {
                entity: count
                for entity, count in self._sub_queues.entity_counts().items()
                if entity in self._recorder.entered
            }
        )
        metrics.inflight_events.set_function(
            lambda: {(label,): count for label, count in self._in_flight.counts().items()}
        )

    # ---- from the watch ------------------------------------------------------------------------

    def add(self, pod: PodInfo) -> None:
        """Add a new pod that has no node."""
        self._add(pod, self._events.unscheduled_add)
        self._notify_ready()

    def _add(self, pod: PodInfo, event: ClusterEvent) -> None:
        # Before the move, which makes the pod that is to be tried next.
        if self._bookkeeping_of_1_37:
            self.nominator.add_nominated_pod(pod, None)
        queued = QueuedPodInfo(pod, self._clock.monotonic())
        if self._is_group_pod(pod.pod):
            assert self.pod_groups is not None
            self.pod_groups.add(queued)
        else:
            self._sub_queues.move_to_active(queued, event.label)

    def update(self, old: PodInfo | None, new: PodInfo, events: Sequence[ClusterEvent]) -> None:
        """Apply an update of a pod that has no node; ``events``: what changed.

        Hints decide whether the update is a reason to retry an unschedulable pod.
        """
        before, after = None if old is None else old.pod, new.pod
        if new.uid in self._in_flight:
            # The failure handler requeues the informer's version of the pod, so only the events
            # are kept: the update may have removed the reason of the failure.
            for event in events:
                self._in_flight.record(event, before, after)
            return
        if self._bookkeeping_of_1_37:
            self._forget_namesake(new)
        if self._is_group_pod(after):
            self._update_group_pod(old, new, events)
            return
        # A pod that is tried soon anyway is only sorted anew: its labels or priority may differ.
        queue: ActiveQueue | BackoffQueue
        for queue in (self._active, self._backoff):
            found = queue.get(new.key)
            if isinstance(found, QueuedPodInfo):
                found.info = new
                queue.put(found)
                self.nominator.update(old, new)
                return
        queued = self._unschedulable.get(new.key)
        if not isinstance(queued, QueuedPodInfo):
            self._add(new, self._events.first_update)
        else:
            queued.info = new
            self.nominator.update(old, new)
            for event in events:
                strategy = self._hints.queueing_strategy(queued, event, before, after)
                if self._sub_queues.requeue(queued, strategy, event.label):
                    break
        self._notify_ready()

    def _forget_namesake(self, pod: PodInfo) -> None:
        """Forget a pod of the same name with another UID: this one starts anew."""
        known = self.get(pod.key)
        if known is not None and known.uid != pod.uid:
            self.delete(known.info)

    def _is_group_pod(self, pod: Pod) -> bool:
        return self.pod_groups is not None and pod.spec.scheduling_group is not None

    def _update_group_pod(
        self, old: PodInfo | None, new: PodInfo, events: Sequence[ClusterEvent]
    ) -> None:
        assert self.pod_groups is not None
        queued = self.pod_groups.get(new.key)
        if queued is None:
            self.add(new)
            return
        queued.info = new
        self.nominator.update(old, new)
        group = self.pod_groups.group_of(new.pod)
        if group is None or group.key not in self._unschedulable:
            return
        before = None if old is None else old.pod
        for event in events:
            strategy = self._hints.queueing_strategy(group, event, before, new.pod)
            if self._sub_queues.requeue(group, strategy, event.label):
                break
        self._notify_ready()

    def delete(self, pod: PodInfo) -> None:
        """Forget a pod that is gone, or has a node now."""
        self.nominator.delete_nominated_pod(pod.uid)
        key = pod.key
        if self._is_group_pod(pod.pod):
            assert self.pod_groups is not None
            self.pod_groups.delete(pod.pod, key)
            self._recorder.note(key, "deleted")
            return
        tried_soon = self._active.discard(key) or self._backoff.discard(key)
        # Up to 1.36, the rejectors of a pod that is to be tried soon go on counting.
        queued = tried_soon if self._bookkeeping_of_1_37 else None
        if tried_soon is None:
            queued = self._unschedulable.discard(key)
        if queued is not None:
            self._recorder.remove_unschedulable_reasons(
                queued.pod.spec.scheduler_name, queued.rejectors
            )
        self._recorder.note(key, "deleted")

    def move_all_to_active_or_backoff(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        precheck: Callable[[QueuedPodInfo], bool] | None = None,
    ) -> None:
        """Move the pods that an event may help; ``precheck`` may exclude some.

        Visits only pods whose rejectors registered such an event. Hints see ``old`` and ``new``.
        """
        # Not even pods in flight can need it: whatever rejects them did not register it.
        if not event.wildcard and self._hints.matches_of(event) is NO_MATCHES:
            return
        candidates = self._hints.candidates_for(self._unschedulable, event, old, new)
        named = self._hints.named_pods(event, old, new) if self._pre_queueing_hints else None
        if named is not None:
            candidates = [queued for queued in candidates if queued.key in named.candidates]
        if precheck is not None:
            candidates = [one for one in candidates if any(map(precheck, one.queued_pods))]
        self._move(candidates, event, old, new, named)
        # Replayed, it concerns any pod: what is named now may not be what is named then.
        self._in_flight.record(event, old, new)
        self._notify_ready()

    def _move(
        self,
        candidates: Iterable[QueuedEntityInfo],
        event: ClusterEvent,
        old: Any,
        new: Any,
        named: NamedPods | None = None,
    ) -> None:
        for queued in candidates:
            # A gated pod has not passed PreEnqueue: other plugins' events do not concern it yet.
            if (
                queued.gated
                and not (event.wildcard and self._flushes_gated_pods)
                and not self._hints.gating_plugin_registered(queued, event)
            ):
                continue
            strategy = self._hints.queueing_strategy(queued, event, old, new, named)
            if strategy is not QueueingStrategy.SKIP:
                self._unschedulable.discard(queued.key)
                self._sub_queues.requeue(queued, strategy, event.label)

    # ---- from the scheduling loop --------------------------------------------------------------

    @property
    def scheduling_cycle(self) -> int:
        """How many pods have been popped."""
        return self._active.scheduling_cycle

    @property
    def poppable(self) -> bool:
        """Whether ``pop`` would return a pod or a group."""
        return self._active.poppable

    def pop(self) -> QueuedEntityInfo | None:
        """Return the next pod and put it in flight, until ``done``; None when there is none.

        A pod group comes with all its pods that wait; ``add_attempted`` ends its attempt.
        """
        queued = self._active.pop()
        if queued is not None:
            if isinstance(queued, QueuedPodGroupInfo):
                assert self.pod_groups is not None
                self.pod_groups.popped(queued)
            for pod in queued.queued_pods:
                self.nominator.record_change(pod.uid)
        return queued

    def pop_specific(self, key: str) -> QueuedPodInfo | None:
        """Pop a pod (``namespace/name``) out of turn; None when it is not here, or is gated."""
        # activate would note a pod in flight for another attempt, which is not meant here.
        if self.get(key) is None:
            return None
        self.activate((key,))
        queued = self._active.pop_specific(key)
        if not isinstance(queued, QueuedPodInfo):
            return None
        self.nominator.record_change(queued.uid)
        return queued

    def done(self, uid: str) -> None:
        """End an attempt: the pod is bound, gone, or back in the queue."""
        self._in_flight.done(uid)

    def add_unschedulable(self, queued: QueuedPodInfo) -> None:
        """Requeue a pod whose attempt failed, and end the attempt (AddUnschedulableIfNotPresent).

        Its ``unschedulable_plugins`` and ``pending_plugins`` are its rejectors; with neither, the
        attempt ended in an error and is repeated after a back-off.
        """
        try:
            queue_name = self._sub_queues.queue_of(queued.key)
            if queue_name:
                log.error(f"Pod {queued.key} is already present in {queue_name}")
                return
            self._note_failure(queued)
            if self._is_group_pod(queued.pod):
                assert self.pod_groups is not None
                # First: its group, to which it returns, may be popped at once.
                self._in_flight.done(queued.uid)
                self.pod_groups.add(queued)
                return
            self._sub_queues.requeue(queued, self._after_failure(queued), SCHEDULE_ATTEMPT_FAILURE)
        finally:
            # Last, for the events since the pop decide where the pod goes.
            self._in_flight.done(queued.uid)
        self._notify_ready()

    def _note_failure(self, queued: QueuedPodInfo) -> None:
        rejectors = queued.rejectors
        # Errors back off by their own count, and a rejection shows that the apiserver works again.
        if rejectors:
            queued.unschedulable_count += 1
            queued.consecutive_errors_count = 0
            self._recorder.add_unschedulable_reasons(queued.pod.spec.scheduler_name, rejectors)
        else:
            queued.consecutive_errors_count += 1
        queued.timestamp = self._clock.monotonic()
        queued.backoff_expiration = None
        queued.was_flushed_from_unschedulable = False
        queued.flush_timestamp = 0.0

    def _after_failure(self, queued: QueuedPodInfo) -> QueueingStrategy:
        # The pods of a group are retried together: an event that helps one of them says little.
        if self._generic_workload and queued.pod.spec.scheduling_group is not None:
            return QueueingStrategy.AFTER_BACKOFF
        return self._hints.strategy_after_failure(
            queued, self._in_flight.events_since_pop(queued.uid)
        )

    def activate(self, keys: Iterable[str]) -> None:
        """Make pods (``namespace/name``) active now, without back-off.

        A pod in flight is retried if its attempt fails; unknown pods are ignored.
        """
        in_flight: Mapping[str, PodInfo] | None = None
        for key in keys:
            if self.pod_groups is not None and (pod := self.pod_groups.get(key)) is not None:
                group = self.pod_groups.group_of(pod.pod)
                key = key if group is None else group.key
            queued = self._unschedulable.get(key)
            if queued is not None:
                self._sub_queues.move_to_active(queued, FORCE_ACTIVATE.label)
            elif (queued := self._backoff.discard(key)) is not None:
                self._sub_queues.move_to_active(queued, FORCE_ACTIVATE.label, from_backoff=True)
            elif key not in self._active:
                # Rare, so that the index by key is made only when it is needed.
                if in_flight is None:
                    in_flight = self._in_flight.by_key()
                if key in in_flight:
                    self._in_flight.record(FORCE_ACTIVATE, None, in_flight[key].pod)
        self._notify_ready()

    # ---- from the timer ------------------------------------------------------------------------

    def flush(self) -> None:
        """Flush what is due. To be called at every whole second of the clock."""
        self.flush_backoff_completed()
        now = self._clock.monotonic()
        if now >= self._next_left_over_flush:
            self._next_left_over_flush = now + LEFT_OVER_FLUSH_SECONDS
            self.flush_unschedulable_left_over()

    def flush_backoff_completed(self) -> None:
        """Make the pods active whose back-off is over. To be called at every whole second."""
        completed = self._backoff.pop_completed()
        for queued in completed:
            self._sub_queues.move_to_active(queued, BACKOFF_COMPLETE, from_backoff=True)
        if completed:
            self._notify_ready()

    def flush_unschedulable_left_over(self) -> None:
        """Move pods that have waited too long for an event. To be called every 30 seconds."""
        # A safety net for hints that miss an event. kube-scheduler counts the pods that needed it
        # (pod_scheduled_after_flush_total).
        now = self._clock.monotonic()
        latest = now - self._unschedulable_timeout
        # A pod that stays, because it is gated again, is flushed again after the same time. Up to
        # 1.36 such pods were not flushed.
        left_over = [
            queued
            for queued in self._unschedulable.pods()
            if max(queued.timestamp, queued.flush_timestamp) < latest
        ]
        for queued in left_over:
            queued.was_flushed_from_unschedulable = True
            for pod in queued.queued_pods:
                pod.was_flushed_from_unschedulable = True
            if self._flushes_gated_pods:
                queued.flush_timestamp = now
        if left_over:
            self._move(left_over, UNSCHEDULABLE_TIMEOUT, None, None)
            self._in_flight.record(UNSCHEDULABLE_TIMEOUT, None, None)
            self._notify_ready()

    # ---- changed configuration -----------------------------------------------------------------

    def use_profiles(
        self, profiles: Mapping[str, QueueProfile], sort_key: Callable[[Any], Any]
    ) -> None:
        """Use the plugins of a changed configuration from now on.

        All pods are tried again, as after a restart: their rejectors may be disabled now.
        """
        self._sub_queues.pre_enqueue_plugins = PreEnqueuePlugins(profiles, self._recorder)
        self._hints = QueueingHints(profiles, self._recorder)
        self._active.set_sort_key(sort_key)
        self._backoff.set_sort_key(sort_key)
        for queued in self._unschedulable.pods():
            strategy = (
                QueueingStrategy.IMMEDIATELY if queued.gated else QueueingStrategy.AFTER_BACKOFF
            )
            self._sub_queues.requeue(queued, strategy, PROFILES_CHANGED.label)
        self._in_flight.record(PROFILES_CHANGED, None, None)
        self._notify_ready()

    def use_backoff(self, initial_seconds: float, max_seconds: float) -> None:
        """Use other limits for future back-offs, in seconds."""
        self._backoff.set_limits(initial_seconds, max_seconds)

    def _notify_ready(self) -> None:
        if self._active.poppable:
            self.on_ready()

    # ---- inspection ----------------------------------------------------------------------------

    def get(self, key: str) -> QueuedPodInfo | None:
        """Return a waiting pod by ``namespace/name``."""
        return self._sub_queues.get(key)

    def active_pods(self) -> list[QueuedPodInfo]:
        """Return the active pods in the order of their pops."""
        return _pods_of(self._active.pods())

    def backoff_pods(self) -> list[QueuedPodInfo]:
        """Return the pods that back off: rejected ones by expiration, then the others."""
        return _pods_of(self._backoff.pods())

    def unschedulable_pods(self) -> list[QueuedPodInfo]:
        """Return the pods that wait for an event, without gated ones."""
        return _pods_of(queued for queued in self._unschedulable.pods() if not queued.gated)

    def gated_pods(self) -> list[QueuedPodInfo]:
        """Return the pods that a PreEnqueue plugin gates."""
        return _pods_of(queued for queued in self._unschedulable.pods() if queued.gated)

    def pending_counts(self) -> dict[str, int]:
        """Return how many pods wait in each queue, by kube-scheduler's queue names."""
        counts = self._sub_queues.counts()
        if (groups := self.pod_groups) is not None:
            counts |= {"incomplete": len(groups.incomplete), "pending": len(groups.pending)}
        return counts

    @property
    def in_flight_count(self) -> int:
        """How many pods are being scheduled, or bound."""
        return len(self._in_flight)

    def keys(self) -> list[str]:
        """Return the ``namespace/name`` of all pods that wait: O(n)."""
        return self._sub_queues.keys()

    def is_in_flight(self, uid: str) -> bool:
        """Return whether a pod was popped and its attempt has not ended."""
        return uid in self._in_flight

    def in_flight_keys(self) -> Iterable[str]:
        """Return the ``namespace/name`` of each: O(n)."""
        return self._in_flight.by_key().keys()

    def history(self, key: str) -> list[str]:
        """Return the recent history of a pod in the queue, oldest first."""
        return self._recorder.history(key)

    def validate(self) -> None:
        """Assert all invariants; for tests."""
        self._sub_queues.validate()
        self._in_flight.validate()
        if self.pod_groups is not None:
            self.pod_groups.validate()


def _pods_of(entities: Iterable[QueuedEntityInfo]) -> list[QueuedPodInfo]:
    return [pod for queued in entities for pod in queued.queued_pods]
