"""The queue's metrics, and the recent history of each pod.

Both must cost next to nothing a move. So children of metrics are kept, gauges are computed at a
scrape where possible, and the history is a ring of tuples that becomes text on request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from proreus.clock import Clock
from proreus.metrics import Counter, Histogram, SchedulerMetrics

HISTORY_LENGTH = 10_000
"""How many moves are kept, of all pods together."""


class QueueRecorder:
    """Counts moves and hints, and keeps the last ``HISTORY_LENGTH`` moves."""

    def __init__(self, clock: Clock, metrics: SchedulerMetrics | None) -> None:
        self.metrics = metrics or SchedulerMetrics()
        self._clock = clock
        self._moves: deque[tuple[float, str, str, str]] = deque(maxlen=HISTORY_LENGTH)
        self._incoming: dict[tuple[str, str], Counter] = {}
        self._hint_seconds: dict[tuple[str, str, str], Histogram] = {}
        self._pre_enqueue_seconds: dict[str, Histogram] = {}

    def record_incoming(self, queue: str, label: str, key: str) -> None:
        """Record that a pod entered a queue, and by which event."""
        counter = self._incoming.get((queue, label))
        if counter is None:
            counter = self.metrics.queue_incoming_pods_total.labels(queue, label)
            self._incoming[queue, label] = counter
        # A slot, not ``inc()``: this runs for each of thousands of pods that one event moves.
        counter.value += 1
        self._moves.append((self._clock.now(), key, queue, label))

    def note(self, key: str, what: str, detail: str = "") -> None:
        """Record another step of a pod, e.g. its pop."""
        self._moves.append((self._clock.now(), key, what, detail))

    def record_hint(self, plugin: str, label: str, result: str, seconds: float) -> None:
        """Record the result of a hint: Queue, QueueSkip or Error."""
        histogram = self._hint_seconds.get((plugin, label, result))
        if histogram is None:
            family = self.metrics.queueing_hint_execution_duration_seconds
            histogram = self._hint_seconds[plugin, label, result] = family.labels(
                plugin, label, result
            )
        histogram.observe(seconds)

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
        """Take back what ``add_unschedulable_reasons`` counted."""
        for plugin in plugins:
            self.metrics.unschedulable_pods.labels(plugin, profile).value -= 1

    def history(self, key: str) -> list[str]:
        """Return the recorded moves of a pod in order: O(``HISTORY_LENGTH``)."""
        return [
            f"{instant:.3f} {what}" + (f" ({detail})" if detail else "")
            for instant, of, what, detail in self._moves
            if of == key
        ]
