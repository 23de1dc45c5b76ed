"""The queue's metrics, and the recent history of each pod.

Both must cost next to nothing a move. So children of metrics are kept, gauges are computed at a
scrape where possible, and the history is tuples that become text on request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from proreus.base import logs
from proreus.base.clock import Clock
from proreus.base.metrics import Counter, Histogram, SchedulerMetrics
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo

log = logs.logger(__name__)

HISTORY_LENGTH = 10_000
"""How many moves are kept, of all pods together."""

_MOVES = 5
"""The level at which moves are logged, as in kube-scheduler."""
_BECAUSE_GATED = ", because it is gated"
_NAMES = {"active": "Active", "backoff": "Backoff", "unschedulable": "Unschedulable"}
"""kube-scheduler's names of the queues in its log."""

Move = tuple[float, str, str, str]
"""Time, key of the pod, step, and a detail."""


class _Incoming(Struct, frozen=True):
    """The counters of one kind of entry: of pods, and of entities if the version counts them."""

    pods: Counter
    entities: Counter


class QueueRecorder:
    """Counts moves and hints, and keeps the last ``HISTORY_LENGTH`` moves."""

    def __init__(self, clock: Clock, metrics: SchedulerMetrics | None) -> None:
        self.metrics = metrics or SchedulerMetrics()
        self._clock = clock
        self._moves: deque[Move] = deque(maxlen=HISTORY_LENGTH)
        self._incoming: dict[tuple[str, str, str, bool, str], _Incoming] = {}
        self.entered: set[tuple[str, str]] = set()
        """Queue and type of all entities ever queued, if the version counts entities."""
        self._pre_enqueue_seconds: dict[str, Histogram] = {}

    def record_incoming(
        self,
        queued: QueuedEntityInfo,
        queue: str,
        label: str,
        decided_queue: str = "",
        *,
        gated: bool = False,
    ) -> None:
        """Record that a pod or group entered a queue, and by which event.

        ``decided_queue``: where the decision to requeue it sent it; as an entity, it only counts if
        that was another queue.
        """
        kind = (queue, label, decided_queue, gated, queued.type)
        incoming = self._incoming.get(kind)
        if incoming is None:
            incoming = self._incoming[kind] = self._counters_of(*kind)
        # Slots, not ``inc()``: this runs for each of thousands of pods that one event moves.
        incoming.pods.value += queued.size
        incoming.entities.value += 1
        self.note(queued.key, queue, label)
        if log.threshold >= _MOVES:
            text = "Entity moved to an internal scheduling queue" + _BECAUSE_GATED * gated
            log.v(_MOVES).info(
                text, type=queued.type, entity=queued.key, event=label, queue=_NAMES[queue]
            )

    def _counters_of(
        self, queue: str, label: str, decided_queue: str, gated: bool, entity: str
    ) -> _Incoming:
        metrics, entities = self.metrics, Counter()
        entity = metrics.entity_types[entity]
        if metrics.counts_entities:
            self.entered.add(("gated" if gated else queue, entity))
            if queue != decided_queue:
                entities = metrics.queue_incoming_entities_total.labels(queue, label, entity)
        return _Incoming(metrics.queue_incoming_pods_total.labels(queue, label), entities)

    def record_incoming_pods(self, queue: str, label: str, group: QueuedPodGroupInfo) -> None:
        """Record that the pods of a group entered a queue that their group is in already."""
        self.metrics.queue_incoming_pods_total.labels(queue, label).value += group.size
        self.note(group.key, queue, label)

    def record_gated(self, queued: QueuedEntityInfo) -> None:
        """Record that a pod or group is gated."""
        self.note(queued.key, "gated", queued.gating_plugin)
        self.entered.add(("gated", self.metrics.entity_types[queued.type]))

    def note(self, key: str, what: str, detail: str = "") -> None:
        """Record another step of a pod, e.g. its pop."""
        self._moves.append((self._clock.now(), key, what, detail))

    def record_hint(self, plugin: str, label: str, result: str, seconds: float) -> None:
        """Record the result of a hint: Queue, QueueSkip or Error."""
        family = self.metrics.queueing_hint_execution_duration_seconds
        family.labels(plugin, label, result).observe(seconds)

    def record_pre_queueing_hint(self, plugin: str, result: str) -> None:
        """Record that a plugin named pods (``narrowed``), or could not (``all_pods``)."""
        self.metrics.pre_queueing_hint_evaluations_total.labels(plugin, result).inc()

    def record_pre_enqueue(self, profile: str, seconds: float) -> None:
        """Record a run of the PreEnqueue plugins, always as Success, as in kube-scheduler."""
        histogram = self._pre_enqueue_seconds.get(profile)
        if histogram is None:
            family = self.metrics.framework_extension_point_duration_seconds
            histogram = family.labels("PreEnqueue", "Success", profile)
            self._pre_enqueue_seconds[profile] = histogram
        histogram.observe(seconds)

    def add_unschedulable_reasons(self, profile: str, plugins: Iterable[str]) -> None:
        """Count a pod for each plugin that keeps it waiting."""
        for plugin in plugins:
            self.metrics.unschedulable_pods.labels(plugin, profile).value += 1

    def remove_unschedulable_reasons(self, profile: str, plugins: Iterable[str]) -> None:
        """Undo ``add_unschedulable_reasons``."""
        for plugin in plugins:
            self.metrics.unschedulable_pods.labels(plugin, profile).value -= 1

    def history(self, key: str) -> list[str]:
        """Return the recorded moves of a pod in order: O(``HISTORY_LENGTH``)."""
        return [
            f"{instant:.3f} {what}" + (f" ({detail})" if detail else "")
            for instant, of, what, detail in self._moves
            if of == key
        ]
