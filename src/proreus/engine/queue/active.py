"""The pods to be tried next, and the pop: kube-scheduler's ``activeQueue``.

When no pod is active, the next one comes from back-off before its time is over: an idle scheduler
has no reason to let a pod wait (KEP-5142).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from proreus.base import logs
from proreus.engine.queue.backoff import BackoffQueue
from proreus.engine.queue.binary_heap import BinaryHeap, resorted
from proreus.engine.queue.in_flight import InFlightPods
from proreus.engine.queue.keyed_heap import KeyedHeap
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.framework.events import POP_FROM_BACKOFF
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo

log = logs.logger(__name__)


class ActiveQueue:
    """Pods in the order of the queueSort plugin. With ``backoff`` None none is popped from there.

    ``scheduling_cycle`` counts pops. ``last_popped_group``: the key of the pod group that was
    popped last, "" once its attempt has ended. ``group_pods``: the pods of groups that wait, by
    ``namespace/name``; those of a popped group are removed.
    """

    def __init__(
        self,
        sort_key: Callable[[Any], Any],
        in_flight: InFlightPods,
        backoff: BackoffQueue | None,
        recorder: QueueRecorder,
        group_pods: dict[str, QueuedPodInfo],
    ) -> None:
        self._heap: KeyedHeap[QueuedEntityInfo] | BinaryHeap[QueuedEntityInfo]
        self._heap = KeyedHeap(sort_key)
        self._in_flight = in_flight
        self._backoff = backoff
        self._recorder = recorder
        self._group_pods = group_pods
        self.scheduling_cycle = 0
        self.last_popped_group = ""

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, key: object) -> bool:
        return key in self._heap

    @property
    def poppable(self) -> bool:
        """Whether ``pop`` would find a pod."""
        return bool(self._heap) or (self._backoff is not None and self._backoff.poppable > 0)

    def get(self, key: str) -> QueuedEntityInfo | None:
        """Return a pod (``namespace/name``) or group by key, if it is here."""
        return self._heap.get(key)

    def put(self, queued: QueuedEntityInfo) -> None:
        """Add a pod, or re-sort it after a change."""
        self._heap.put(queued.key, queued)

    def discard(self, key: str) -> QueuedEntityInfo | None:
        """Remove and return a pod, if it is here."""
        return self._heap.discard(key)

    def pop(self) -> QueuedEntityInfo | None:
        """Remove the next pod or group and put it in flight; None when there is none."""
        # A pod that is in flight already is dropped, and the next one is tried.
        while (queued := self._take()) is not None:
            if self._begin(queued):
                return queued
        return None

    def pop_specific(self, key: str) -> QueuedEntityInfo | None:
        """Remove a pod by ``namespace/name`` out of turn, and put it in flight."""
        queued = self._heap.discard(key)
        return queued if queued is not None and self._begin(queued) else None

    def _begin(self, queued: QueuedEntityInfo) -> bool:
        if isinstance(queued, QueuedPodGroupInfo):
            return self._begin_group(queued)
        queued.attempts += 1
        # Two attempts for one pod at a time would assume it twice.
        if not self._in_flight.begin(queued.info):
            log.error("Pod is being scheduled already, so it is discarded", pod=queued.key)
            return False
        self.scheduling_cycle += 1
        self._begun(queued)
        return True

    def _begin_group(self, group: QueuedPodGroupInfo) -> bool:
        group.begin_attempt()
        for queued in group.queued_pods:
            # Discarded or in flight, it waits no longer.
            self._group_pods.pop(queued.key, None)
            if not self._in_flight.begin(queued.info):
                log.error("Pod is being scheduled already, so it is discarded", pod=queued.key)
                group.remove_pod(queued)
        if not group.pods_by_group:
            log.error("All pods of the pod group are being scheduled already", podGroup=group.key)
            return False
        self.scheduling_cycle += 1
        self.last_popped_group = group.key
        for queued in group.queued_pods:
            self._begun(queued)
        return True

    def _begun(self, queued: QueuedPodInfo) -> None:
        # The rejectors themselves stay until this attempt fails and replaces them; only the gauge
        # of unschedulable pods no longer counts the pod.
        if queued.unschedulable_plugins or queued.pending_plugins:
            self._recorder.remove_unschedulable_reasons(
                queued.pod.spec.scheduler_name, queued.rejectors
            )
        self._recorder.note(queued.key, "popped")

    def _take(self) -> QueuedEntityInfo | None:
        queued = self._heap.pop()
        if queued is None and self._backoff is not None:
            queued = self._backoff.pop()
            if queued is not None:
                self._recorder.record_incoming(queued, "active", POP_FROM_BACKOFF)
        return queued

    def keys(self) -> Iterable[str]:
        """Return the ``namespace/name`` of all pods."""
        return self._heap.keys()

    def pods(self) -> list[QueuedEntityInfo]:
        """Return all pods and groups in the order of their pops."""
        return self._heap.items()

    def set_sort_key(self, sort_key: Callable[[Any], Any], *, changing: bool = False) -> None:
        """Order by another queueSort plugin; ``changing``: see ``QueueSortPlugin``."""
        self._heap = resorted(self._heap, sort_key, changing)

    def validate(self) -> None:
        """Assert that the heap is in order and holds no gated pod."""
        self._heap.validate()
        for queued in self._heap.items():
            assert not queued.gated, f"{queued.key} is gated and active"
            assert queued.initial_attempt_timestamp is not None, f"{queued.key} never became active"
