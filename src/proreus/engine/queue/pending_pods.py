"""The read side of the scheduling queue: its pods by queue, and its gauges.

kube-scheduler's ``PendingPods``, ``PodsInActiveQ`` and the like.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.engine.queue.in_flight import InFlightPods
from proreus.engine.queue.pod_group_queue import PodGroupQueue
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.engine.queue.sub_queues import SubQueues
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo


class PendingPods:
    """Reads the pods that wait and the pods in flight; changes nothing."""

    def __init__(
        self,
        sub_queues: SubQueues,
        in_flight: InFlightPods,
        recorder: QueueRecorder,
        pod_groups: PodGroupQueue | None,
    ) -> None:
        self._sub_queues = sub_queues
        self._active = sub_queues.active
        self._backoff = sub_queues.backoff
        self._unschedulable = sub_queues.unschedulable
        self._in_flight = in_flight
        self._recorder = recorder
        self.nominator = sub_queues.nominator
        self.pod_groups = pod_groups
        """The pods of groups; None if pods are queued one by one."""
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
            lambda: {**dict.fromkeys(self._recorder.entered, 0), **self._sub_queues.entity_counts()}
        )
        metrics.inflight_events.set_function(
            lambda: {(label,): count for label, count in self._in_flight.counts().items()}
        )

    @property
    def scheduling_cycle(self) -> int:
        """How many pods and groups have been popped."""
        return self._active.scheduling_cycle

    @property
    def poppable(self) -> bool:
        """Whether ``pop`` would return a pod or a group."""
        return self._active.poppable

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

    def pods_by_queue(self) -> dict[str, list[QueuedPodInfo]]:
        """Return the pods that wait at this moment, by kube-scheduler's queue names."""
        pods = {
            "active": self.active_pods(),
            "backoff": self.backoff_pods(),
            "unschedulable": self.unschedulable_pods(),
            "gated": self.gated_pods(),
        }
        if (groups := self.pod_groups) is not None:
            pods |= {"incomplete": list(groups.incomplete), "pending": list(groups.pending)}
        return pods

    def pending_counts(self) -> dict[str, int]:
        """Return the number of waiting pods by kube-scheduler's queue names."""
        counts = self._sub_queues.counts()
        if (groups := self.pod_groups) is not None:
            counts |= {"incomplete": len(groups.incomplete), "pending": len(groups.pending)}
        return counts

    @property
    def in_flight_count(self) -> int:
        """How many pods are being scheduled, or bound."""
        return len(self._in_flight)

    def entity_of(self, queued: QueuedPodInfo) -> QueuedEntityInfo:
        """Return the queued entity of a pod: the pod itself, or its group."""
        if self._sub_queues.get_entity(queued.key) is queued:
            return queued
        if self.pod_groups is not None:
            return self.pod_groups.group_of(queued.pod) or queued
        for group in (*self._active.pods(), *self._backoff.pods(), *self._unschedulable.pods()):
            if any(pod is queued for pod in group.queued_pods):
                return group
        return queued

    def queue_name_of(self, key: str) -> str:
        """Return where a pod or group waits: active, backoff, unschedulable, gated or ""."""
        if (waiting := self._unschedulable.get(key)) is not None:
            return "gated" if waiting.gated else "unschedulable"
        if key in self._active:
            return "active"
        return "backoff" if key in self._backoff else ""

    def backoff_expiration(self, queued: QueuedEntityInfo) -> float:
        """Return the end of a back-off, in seconds of ``Clock.monotonic``."""
        return self._backoff.expiration(queued)

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
