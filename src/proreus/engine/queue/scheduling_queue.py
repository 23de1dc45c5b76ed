"""The scheduling queue: holds waiting pods, and moves them at events.

    add / update ─► PreEnqueue ─► active ─► pop ─► in flight ─► done
                        │gated      ▲ ▲ ▲                │add_unschedulable
                        ▼           │ │ └── backoff ◄────┤ an error, or an event that helps
                  unschedulable ────┘ │        ▲         ▼
                        └──────────── move ────┴── unschedulable

A state machine without I/O: every method is sync, the clock is an argument, and the only outside
code that it calls is ``on_ready`` and plugins. Its behaviour is that of kube-scheduler's
PriorityQueue. ``sub_queues`` has the moves themselves, ``event_moves`` those by events and time,
``queueing_hints`` decides which pods an event concerns, ``in_flight`` keeps the events that a
popped pod has yet to see, ``pod_group_queue`` the pods of groups; ``pending_pods`` shows it all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from proreus.base import logs
from proreus.base.clock import Clock
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.queue.active import ActiveQueue
from proreus.engine.queue.backoff import BackoffQueue
from proreus.engine.queue.event_moves import EventMoves, Precheck
from proreus.engine.queue.in_flight import InFlightPods
from proreus.engine.queue.pending_pods import PendingPods
from proreus.engine.queue.pod_group_queue import PodGroupQueue
from proreus.engine.queue.pre_enqueue import PreEnqueuePlugins
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.engine.queue.queueing_hints import QueueingHints, QueueingStrategy
from proreus.engine.queue.sub_queues import QueueOptions, SubQueues
from proreus.framework.event_registrations import EventRegistration, QueueProfile
from proreus.framework.events import (
    ALL,
    ANY,
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    ClusterEvent,
)
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo
from proreus.framework.workload_forest import WorkloadForest
from proreus.objects.pod import Pod
from proreus.objects.requests import is_pod_resize_deferred

log = logs.logger(__name__)

PROFILES_CHANGED = ClusterEvent(ANY, ALL, label="ProfilesChanged")

NO_PROFILES: Mapping[str, QueueProfile] = MappingProxyType({})
DEFAULT_OPTIONS = QueueOptions()


def _by_arrival(queued: QueuedPodInfo) -> float:
    return queued.timestamp


class SchedulingQueue(PendingPods):
    """All pods of our profiles that are neither bound nor assumed, and deferred resizes.

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
        """``forest``: the pod groups, which are queued as a whole; None to queue pods alone."""
        self.on_ready: Callable[[], None] = lambda: None
        self._clock = clock
        self._pod_lister = pod_lister
        self._generic_workload = options.generic_workload
        self._events = options.events
        self._deferred_resizes = options.deferred_resizes
        self.unschedulable_timeout_seconds = options.unschedulable_timeout_seconds
        """How long a pod stays unschedulable before it is retried without any event."""
        self._bookkeeping_of_1_37 = options.bookkeeping_of_1_37
        recorder, in_flight = QueueRecorder(clock, metrics), InFlightPods()
        first_gates = options.first_gated_pod_gates
        named_by_plugin = options.named_pods_by_plugin
        self._hints = QueueingHints(
            profiles, recorder, first_gates=first_gates, named_by_plugin=named_by_plugin
        )
        pre_enqueue_plugins = PreEnqueuePlugins(profiles, recorder, first_gates=first_gates)
        sub_queues = SubQueues(
            clock, sort_key, in_flight, pre_enqueue_plugins, pod_lister, recorder, options
        )
        pod_groups = (
            None
            if forest is None
            else PodGroupQueue(
                sub_queues,
                forest,
                self._hints,
                recorder,
                clock,
                options.events,
                self._notify_ready,
            )
        )
        super().__init__(sub_queues, in_flight, recorder, pod_groups)
        self._moves = EventMoves(
            sub_queues,
            in_flight,
            self._hints,
            clock,
            options,
            # Up to 1.37 kube-scheduler cannot find the root of a named pod in a tree of groups.
            names_pods=options.pre_queueing_hints
            and (named_by_plugin or forest is None or not forest.composite),
        )

    def events_for(self, queued: QueuedEntityInfo) -> list[EventRegistration]:
        """Return the events that may have a waiting pod or group tried again, by plugin."""
        plugins = {queued.gating_plugin} if queued.gated else queued.rejectors
        return self._hints.registered_by(queued.pod.spec.scheduler_name, plugins)

    # ---- from the watch ------------------------------------------------------------------------

    def add(self, pod: PodInfo) -> None:
        """Add a new pod that has no node."""
        self._add(pod, self._events.unscheduled_add)
        self._notify_ready()

    def add_again(self, pod: PodInfo) -> None:
        """Add a pod that was assumed in vain, as the informer knows it, if it has no node."""
        live = self._pod_lister(pod.key)
        if live is not None and live.metadata.uid == pod.uid and not live.spec.node_name:
            self.add(PodInfo(live, pod.resources_options, pod))

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
        """Apply an update of a pod that has no node; ``events``: of the update.

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
            assert self.pod_groups is not None
            if not self.pod_groups.update(old, new, events):
                self.add(new)
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
        """Forget a pod of the same name with another UID, or group: this one starts anew."""
        known = self.get(pod.key)
        # The apiserver lets no pod change its group; nor does a queue out of step repair itself.
        if known is not None and (
            known.uid != pod.uid or known.pod.spec.scheduling_group != pod.pod.spec.scheduling_group
        ):
            self.delete(known.info)

    def _is_group_pod(self, pod: Pod) -> bool:
        if self.pod_groups is None or pod.spec.scheduling_group is None:
            return False
        # It has its node already: whether it can grow there is no question of the group.
        return not (self._deferred_resizes and is_pod_resize_deferred(pod))

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

    @contextmanager
    def first_list(self) -> Iterator[None]:
        """Take the additions that are reported meanwhile, of a first list, for one event."""
        with self._moves.first_list():
            yield
        self._notify_ready()

    def move_all_to_active_or_backoff(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        precheck: Precheck | None = None,
    ) -> None:
        """Move the pods that an event may help; ``precheck`` may exclude some.

        Visits only pods whose rejectors registered such an event. Hints see ``old`` and ``new``.
        """
        if self._moves.move_all(event, old, new, precheck):
            self._notify_ready()

    # ---- from the scheduling loop --------------------------------------------------------------

    def move_in_portions(self, portion: int) -> None:
        """Look at so many pods at a time that an event may help, and at the others in ``pop``."""
        self._moves.portion = portion

    @property
    def is_moving(self) -> bool:
        """Whether an event has pods left that were not looked at."""
        return self._moves.is_moving

    def pop(self) -> QueuedEntityInfo | None:
        """Return the next pod and put it in flight, until ``done``; None when there is none.

        A pod group comes with all its pods that wait; ``add_attempted`` ends its attempt.
        """
        if self._moves.is_moving:
            self._moves.go_on()
        queued = self._active.pop()
        if queued is not None:
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
                missed = self._in_flight.events_since_pop(queued.uid)
                self.pod_groups.add_unschedulable(queued, missed)
                return
            strategy = self._after_failure(queued)
            self._sub_queues.requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE)
            if log.threshold >= 3:
                log.v(3).info(
                    "Pod moved to an internal scheduling queue",
                    pod=queued.key,
                    event=SCHEDULE_ATTEMPT_FAILURE,
                    queue=self._sub_queues.queue_of(queued.key),
                    schedulingCycle=self.scheduling_cycle,
                    hint=strategy.name,
                    unschedulablePlugins=sorted(queued.rejectors),
                )
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
            if self.pod_groups is not None and self.pod_groups.activate(self._pod_lister(key)):
                continue
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
        """Make the flushes that are due. To be called at every whole second of the clock."""
        self.flush_backoff_completed()
        if self._moves.flush_put_off():
            self._notify_ready()
        if self._moves.flush_left_over_is_due():
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
        if self._moves.flush_left_over():
            self._notify_ready()

    # ---- changed configuration -----------------------------------------------------------------

    def use_profiles(
        self,
        profiles: Mapping[str, QueueProfile],
        sort_key: Callable[[Any], Any],
        *,
        sort_key_changes: bool = False,
    ) -> None:
        """Use the plugins of a changed configuration from now on.

        ``sort_key_changes``: of the queueSort plugin, see there.
        All pods are tried again, as after a restart: their rejectors may be disabled now.
        """
        self._sub_queues.pre_enqueue_plugins.use_profiles(profiles)
        self._hints.use_profiles(profiles)
        self._active.set_sort_key(sort_key, changing=sort_key_changes)
        self._backoff.set_sort_key(sort_key, changing=sort_key_changes)
        for queued in self._unschedulable.pods():
            strategy = (
                QueueingStrategy.IMMEDIATELY if queued.gated else QueueingStrategy.AFTER_BACKOFF
            )
            self._sub_queues.requeue(queued, strategy, PROFILES_CHANGED.label)
        self._moves.record(PROFILES_CHANGED, None, None)
        self._notify_ready()

    def use_backoff(self, initial_seconds: float, max_seconds: float) -> None:
        """Use other limits for future back-offs, in seconds."""
        self._backoff.set_limits(initial_seconds, max_seconds)

    def _notify_ready(self) -> None:
        if self._active.poppable or self._moves.is_moving:
            self.on_ready()
