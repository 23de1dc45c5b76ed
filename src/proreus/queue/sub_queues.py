"""The places where a pod waits, and its moves between them.

A pod is active, backs off, or is unschedulable, and never two of these. Before it may be popped it
passes the gates: on its way to the active pods, and on its way to back-off, from where it may be
popped at any moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proreus.clock import Clock
from proreus.framework.events import UNSCHEDULABLE_POD_ADD, UNSCHEDULABLE_POD_UPDATE
from proreus.framework.pod_info import QueuedPodInfo
from proreus.objects.pod import Pod
from proreus.queue.active import ActiveQueue
from proreus.queue.backoff import BackoffQueue
from proreus.queue.in_flight import InFlightPods
from proreus.queue.nominator import Nominator
from proreus.queue.pre_enqueue import PreEnqueuePlugins
from proreus.queue.queue_recorder import QueueRecorder
from proreus.queue.queueing_hints import QueueingStrategy
from proreus.queue.unschedulable import UnschedulablePods

_NOMINATING_LABELS = frozenset({UNSCHEDULABLE_POD_ADD.label, UNSCHEDULABLE_POD_UPDATE.label})


class SubQueues:
    """All pods that wait. ``pre_enqueue_plugins`` may be replaced when the configuration changes.

    ``pop_from_backoff`` False (feature gate SchedulerPopFromBackoffQ off): gates are passed on the
    way out of back-off, not on the way in.
    """

    # Invariant: a key is in at most one of active, backoff and unschedulable.

    def __init__(
        self,
        clock: Clock,
        sort_key: Callable[[QueuedPodInfo], Any],
        backoff: BackoffQueue,
        in_flight: InFlightPods,
        pre_enqueue_plugins: PreEnqueuePlugins,
        pod_lister: Callable[[str], Pod | None],
        recorder: QueueRecorder,
        pop_from_backoff: bool,
    ) -> None:
        early = backoff if pop_from_backoff else None
        self.active = ActiveQueue(sort_key, in_flight, early, recorder)
        self.backoff = backoff
        self.unschedulable = UnschedulablePods()
        self.nominator = Nominator(pod_lister, self.get)
        self.pre_enqueue_plugins = pre_enqueue_plugins
        self._clock = clock
        self._recorder = recorder
        self._pop_from_backoff = pop_from_backoff

    def get(self, key: str) -> QueuedPodInfo | None:
        """Return a pod that waits, by ``namespace/name``."""
        return self.active.get(key) or self.unschedulable.get(key) or self.backoff.get(key)

    def queue_of(self, key: str) -> str:
        """Return where a pod waits, in the words of kube-scheduler's log; "" = nowhere."""
        if key in self.unschedulable:
            return "unschedulable queue"
        if key in self.active:
            return "the active queue"
        return "the backoff queue" if key in self.backoff else ""

    def counts(self) -> dict[str, int]:
        """Return how many pods wait in each queue, by kube-scheduler's names of them."""
        gated = self.unschedulable.gated_count
        return {
            "active": len(self.active),
            "backoff": len(self.backoff),
            "unschedulable": len(self.unschedulable) - gated,
            "gated": gated,
        }

    def requeue(self, queued: QueuedPodInfo, strategy: QueueingStrategy, label: str) -> bool:
        """Put a pod where its strategy says; tell whether it is active or backs off now."""
        if strategy is QueueingStrategy.SKIP:
            self._add_unschedulable(queued, label)
            return False
        if strategy is QueueingStrategy.IMMEDIATELY and queued.costly:
            strategy = QueueingStrategy.AFTER_BACKOFF
        if strategy is QueueingStrategy.AFTER_BACKOFF and self.backoff.is_backing_off(queued):
            return self._move_to_backoff(queued, label)
        return self.move_to_active(queued, label)

    def move_to_active(
        self, queued: QueuedPodInfo, label: str, *, from_backoff: bool = False
    ) -> bool:
        """Make a pod active unless it is gated; tell whether it is active now.

        ``from_backoff``: it comes from back-off, and has been taken out there.
        """
        if not (from_backoff and self._pop_from_backoff) and not self._run_pre_enqueue(
            queued, label
        ):
            return False
        key = queued.key
        if queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = self._clock.now()
        self.unschedulable.discard(key)
        self.backoff.discard(key)
        self.active.put(queued)
        self.nominator.record_change(queued.uid)
        self._recorder.record_incoming("active", label, key)
        if label in _NOMINATING_LABELS:
            self.nominator.add_nominated_pod(queued.info, None)
        return True

    def _move_to_backoff(self, queued: QueuedPodInfo, label: str) -> bool:
        if self._pop_from_backoff and not self._run_pre_enqueue(queued, label):
            return False
        self.unschedulable.discard(queued.key)
        self.backoff.put(queued)
        self.nominator.record_change(queued.uid)
        self._recorder.record_incoming("backoff", label, queued.key)
        return True

    def _run_pre_enqueue(self, queued: QueuedPodInfo, label: str) -> bool:
        """Ask the gates; a pod that does not pass is kept among the unschedulable ones."""
        self.pre_enqueue_plugins.run(queued)
        if queued.gated:
            self._add_unschedulable(queued, label)
        return not queued.gated

    def _add_unschedulable(self, queued: QueuedPodInfo, label: str) -> None:
        """Keep a pod among the unschedulable ones, or bring it there, if it is nowhere else."""
        key = queued.key
        if key in self.active or key in self.backoff:
            return
        if key not in self.unschedulable:
            self._recorder.record_incoming("unschedulable", label, key)
        if queued.gated:
            self._recorder.note(key, "gated", queued.gating_plugin)
        self.unschedulable.put(queued)
        self.nominator.record_change(queued.uid)

    def validate(self) -> None:
        """Assert that each part is in order, and that no pod is in two places."""
        for part in (self.active, self.backoff, self.unschedulable, self.nominator):
            part.validate()
        pods = self.active.pods() + self.backoff.pods() + self.unschedulable.pods()
        keys = [queued.key for queued in pods]
        assert len(keys) == len(set(keys)), f"a pod is in two queues: {sorted(keys)}"
