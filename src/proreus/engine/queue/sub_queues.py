"""The queues that a pod waits in, and its moves between them.

                    ┌── AFTER_BACKOFF, still backing off ─► PreEnqueue ─► backoff
    requeue(pod) ───┼── AFTER_BACKOFF, IMMEDIATELY ───────► PreEnqueue ─► active
                    └── SKIP ────────────────────────────────────────────► unschedulable
                                             gated by PreEnqueue ────────► unschedulable (gated)

A pod is in exactly one of the three. PreEnqueue runs on the way into ``active`` and, since a pod
may be popped from back-off at any moment (KEP-5142), on the way into ``backoff``; not again from
there to ``active``. kube-scheduler's ``moveToActiveQ`` and ``moveToBackoffQ``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from proreus.base.clock import Clock
from proreus.engine.queue.active import ActiveQueue
from proreus.engine.queue.backoff import BackoffQueue
from proreus.engine.queue.in_flight import InFlightPods
from proreus.engine.queue.nominator import Nominator
from proreus.engine.queue.pre_enqueue import PreEnqueuePlugins
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.engine.queue.queueing_hints import QueueingStrategy
from proreus.engine.queue.unschedulable import UnschedulablePods
from proreus.framework.pod_events import DEFAULT_POD_EVENTS, PodEvents
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo
from proreus.objects.pod import Pod

_QUEUE_OF = {
    QueueingStrategy.SKIP: "unschedulable",
    QueueingStrategy.AFTER_BACKOFF: "backoff",
    QueueingStrategy.IMMEDIATELY: "active",
}
"""The queue that a decision names, in the words of the metrics."""


class QueueOptions(Struct, frozen=True):
    """Time limits and feature gates of a scheduling queue.

    ``pop_from_backoff``: gate SchedulerPopFromBackoffQ. ``generic_workload``: gate GenericWorkload.
    ``flushes_gated_pods``: see ``Change.GATED_PODS_IN_FLUSH``. ``bookkeeping_of_1_37``: see
    ``Change.QUEUE_BOOKKEEPING_OF_1_37``. ``first_gated_pod_gates``: see
    ``Change.FIRST_GATED_POD_GATES``. ``named_pods_by_plugin``: see
    ``Change.NAMED_PODS_BY_PLUGIN``. ``pre_queueing_hints``: gate SchedulerPreQueueingHints.
    ``deferred_resizes``: gate InPlacePodVerticalScalingSchedulerPreemption. ``events``: the names
    of pod events.
    """

    initial_backoff_seconds: float = 1
    max_backoff_seconds: float = 10
    unschedulable_timeout_seconds: float = 300
    pop_from_backoff: bool = True
    generic_workload: bool = False
    flushes_gated_pods: bool = False
    bookkeeping_of_1_37: bool = False
    first_gated_pod_gates: bool = False
    named_pods_by_plugin: bool = False
    pre_queueing_hints: bool = False
    deferred_resizes: bool = False
    events: PodEvents = DEFAULT_POD_EVENTS


class SubQueues:
    """All pods that wait.

    With gate SchedulerPopFromBackoffQ off, PreEnqueue runs on the way out of back-off, not in.
    """

    # Invariant: a key is in at most one of active, backoff and unschedulable.

    def __init__(
        self,
        clock: Clock,
        sort_key: Callable[[Any], Any],
        in_flight: InFlightPods,
        pre_enqueue_plugins: PreEnqueuePlugins,
        pod_lister: Callable[[str], Pod | None],
        recorder: QueueRecorder,
        options: QueueOptions,
    ) -> None:
        self._pop_from_backoff = options.pop_from_backoff
        added, first_update = options.events.unscheduled_add, options.events.first_update
        # From 1.37 on, ``SchedulingQueue.add`` registers nominations, moves do not.
        self._nominating_labels = (
            () if options.bookkeeping_of_1_37 else (added.label, first_update.label)
        )
        self.backoff = BackoffQueue(
            clock,
            sort_key,
            options.initial_backoff_seconds,
            options.max_backoff_seconds,
            options.pop_from_backoff,
        )
        early = self.backoff if options.pop_from_backoff else None
        self.group_pods: dict[str, QueuedPodInfo] = {}
        """All pods of groups that wait, by ``namespace/name`` (kept by ``pod_group_queue``)."""
        self.unfinished_groups: dict[str, QueuedPodGroupInfo] = {}
        """Groups by key that have tried some of their placements (kept by ``pod_group_queue``);
        among them may be some that do not wait any more."""
        self.active = ActiveQueue(sort_key, in_flight, early, recorder, self.group_pods)
        self.unschedulable = UnschedulablePods()
        self.nominator = Nominator(
            pod_lister, self.get, keeps_nowhere=not options.bookkeeping_of_1_37
        )
        self.pre_enqueue_plugins = pre_enqueue_plugins
        self._clock = clock
        self._recorder = recorder

    def get(self, key: str) -> QueuedPodInfo | None:
        """Return a pod that waits, by ``namespace/name``."""
        queued = self.get_entity(key) or self.group_pods.get(key)
        return queued if isinstance(queued, QueuedPodInfo) else None

    def get_entity(self, key: str) -> QueuedEntityInfo | None:
        """Return a pod (``namespace/name``) or group that waits, by key."""
        return self.active.get(key) or self.unschedulable.get(key) or self.backoff.get(key)

    def take(self, key: str) -> tuple[QueuedEntityInfo | None, QueueingStrategy]:
        """Remove a pod or group; return it, with the strategy that puts it back where it was."""
        if (queued := self.active.discard(key)) is not None:
            return queued, QueueingStrategy.IMMEDIATELY
        if (queued := self.backoff.discard(key)) is not None:
            return queued, QueueingStrategy.AFTER_BACKOFF
        return self.unschedulable.discard(key), QueueingStrategy.SKIP

    def queue_of(self, key: str) -> str:
        """Return where a pod waits, in the words of kube-scheduler's log; "" = nowhere."""
        if key in self.unschedulable:
            return "unschedulable queue"
        if key in self.active:
            return "the active queue"
        return "the backoff queue" if key in self.backoff else ""

    def keys(self) -> list[str]:
        """Return the ``namespace/name`` of all pods that wait, in no particular order."""
        keys = [*self.active.keys(), *self.backoff.keys(), *self.unschedulable.keys()]
        if self.group_pods:
            keys = [key for key in keys if not is_group_key(key)]
        return [*keys, *self.group_pods]

    def counts(self) -> dict[str, int]:
        """Return the number of waiting pods by kube-scheduler's queue names."""
        return {
            queue: sum(one.size for one in entities)
            for queue, entities in self._entities_by_queue().items()
        }

    def entity_counts(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of waiting pods and groups by queue and type."""
        types = self._recorder.metrics.entity_types
        return Counter(
            (queue, types[one.type])
            for queue, entities in self._entities_by_queue().items()
            for one in entities
        )

    def _entities_by_queue(self) -> dict[str, list[QueuedEntityInfo]]:
        waiting = self.unschedulable.pods()
        return {
            "active": self.active.pods(),
            "backoff": self.backoff.pods(),
            "unschedulable": [one for one in waiting if not one.gated],
            "gated": [one for one in waiting if one.gated],
        }

    def requeue(
        self,
        queued: QueuedEntityInfo,
        strategy: QueueingStrategy,
        label: str,
        *,
        is_new: bool = False,
    ) -> bool:
        """Put a pod where its strategy says; return whether it is active or backs off now.

        ``is_new``: it counts as an entity that enters the queue, wherever it goes.
        """
        # Named before a costly pod is sent to back-off: kube-scheduler has no such pods.
        decided = "" if is_new else _QUEUE_OF[strategy]
        if strategy is QueueingStrategy.SKIP:
            self._add_unschedulable(queued, label, decided)
            return False
        # A pod whose attempts hold up all others must not skip its back-off, however often the
        # event that it is pending on occurs.
        if strategy is QueueingStrategy.IMMEDIATELY and queued.costly:
            strategy = QueueingStrategy.AFTER_BACKOFF
        if strategy is QueueingStrategy.AFTER_BACKOFF and self.backoff.is_backing_off(queued):
            return self._move_to_backoff(queued, label, decided)
        return self.move_to_active(queued, label, decided)

    def move_to_active(
        self, queued: QueuedEntityInfo, label: str, decided: str = "", *, from_backoff: bool = False
    ) -> bool:
        """Make a pod active unless it is gated; return whether it is active now.

        ``decided``: the queue that a decision to requeue it named. ``from_backoff``: the caller has
        just removed it from back-off.
        """
        # It passed PreEnqueue on the way into back-off already.
        if not (from_backoff and self._pop_from_backoff) and not self._run_pre_enqueue(
            queued, label, decided
        ):
            return False
        key = queued.key
        # pod_scheduling_sli_duration_seconds counts from here: time spent gated is not included.
        if queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = self._clock.monotonic()
        self.unschedulable.discard(key)
        self.backoff.discard(key)
        self.active.put(queued)
        self._moved(queued, "active", label, decided)
        if isinstance(queued, QueuedPodGroupInfo):
            queued.set_initial_attempt_timestamp(self._clock.monotonic())
            return True
        # The status of a new pod may name a node that an earlier process nominated.
        if label in self._nominating_labels:
            self.nominator.add_nominated_pod(queued.info, None)
        return True

    def group_changed(
        self,
        group: QueuedPodGroupInfo,
        looked_at: Iterable[QueuedPodInfo],
        label: str,
    ) -> None:
        """Sort a group anew that is active or backs off, and has gained or lost a pod.

        Its other pods have passed PreEnqueue on the way in, which runs for those ``looked_at``.
        """
        queue = self.active if group.key in self.active else self.backoff
        name = "active" if queue is self.active else "backoff"
        self.pre_enqueue_plugins.run_for(group, looked_at)
        if group.gated:
            queue.discard(group.key)
            group.set_was_flushed_from_unschedulable(False)
            self._add_unschedulable(group, label, name)
            return
        if queue is self.active:
            group.set_initial_attempt_timestamp(self._clock.monotonic(), looked_at)
        queue.put(group)
        self._moved(group, name, label, name)

    def unschedulable_group_changed(
        self, group: QueuedPodGroupInfo, queued: QueuedPodInfo, label: str
    ) -> None:
        """Index a group anew that is unschedulable, and has lost a pod."""
        self.unschedulable.pod_left(group, queued)
        name = "unschedulable"
        self._moved(group, name, label, name, gated=group.gated)

    def _moved(
        self,
        queued: QueuedEntityInfo,
        queue: str,
        label: str,
        decided: str,
        *,
        gated: bool = False,
    ) -> None:
        """Record that a pod or group has entered a queue."""
        self._recorder.record_incoming(queued, queue, label, decided, gated=gated)
        # A nominated pod that is queued counts with its requests, one that is not as an empty stub
        # (Nominator.nominated_pods): every move changes what Filter sees of its node.
        if not isinstance(queued, QueuedPodGroupInfo):
            self.nominator.record_change(queued.uid)

    def _move_to_backoff(self, queued: QueuedEntityInfo, label: str, decided: str) -> bool:
        if self._pop_from_backoff and not self._run_pre_enqueue(queued, label, decided):
            return False
        self.unschedulable.discard(queued.key)
        self.backoff.put(queued)
        self._moved(queued, "backoff", label, decided)
        return True

    def _run_pre_enqueue(self, queued: QueuedEntityInfo, label: str, decided: str) -> bool:
        """Run PreEnqueue; a pod that it gates goes to the unschedulable pods."""
        self.pre_enqueue_plugins.run(queued)
        if not queued.gated:
            return True
        # It is not tried now, so a later attempt is not due to the flush.
        queued.set_was_flushed_from_unschedulable(False)
        self._add_unschedulable(queued, label, decided)
        return False

    def _add_unschedulable(self, queued: QueuedEntityInfo, label: str, decided: str) -> None:
        """Put a pod among the unschedulable ones unless it is active or backs off."""
        key, gated = queued.key, queued.gated
        if key in self.active or key in self.backoff:
            return
        if key not in self.unschedulable:
            self._moved(queued, "unschedulable", label, decided, gated=gated)
        if gated:
            self._recorder.record_gated(queued)
        self.unschedulable.put(queued)

    def validate(self) -> None:
        """Assert that each queue is consistent and that no pod is in two of them."""
        for part in (self.active, self.backoff, self.unschedulable, self.nominator):
            part.validate()
        pods = self.active.pods() + self.backoff.pods() + self.unschedulable.pods()
        keys = [queued.key for queued in pods]
        assert len(keys) == len(set(keys)), f"a pod is in two queues: {sorted(keys)}"


def is_group_key(key: str) -> bool:
    """Return whether a key in the queue is that of a pod group, not of a pod."""
    return key.count("/") > 1
