"""What the queue tells about itself: metrics, and the recent story of each pod.

Both must cost next to nothing for each move of a pod. So children of metrics are kept, gauges that
can be counted at a scrape are, and the story is a ring of tuples that becomes text when asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from proreus.clock import Clock
from proreus.metrics import Counter, Histogram, SchedulerMetrics

HISTORY_LENGTH = 10_000
"""How many moves are remembered, of all pods together."""


class QueueRecorder:
    """Counts moves and hints, and remembers the last ``HISTORY_LENGTH`` moves."""

    def __init__(self, clock: Clock, metrics: SchedulerMetrics | None) -> None:
        self.metrics = metrics or SchedulerMetrics()
        self._clock = clock
        self._moves: deque[tuple[float, str, str, str]] = deque(maxlen=HISTORY_LENGTH)
        self._incoming: dict[tuple[str, str], Counter] = {}
        self._hint_seconds: dict[tuple[str, str, str], Histogram] = {}
        self._pre_enqueue_seconds: dict[str, Histogram] = {}

    def record_incoming(self, queue: str, label: str, key: str) -> None:
        """Note that a pod came into a queue, and why."""
        counter = self._incoming.get((queue, label))
        if counter is None:
            counter = self.metrics.queue_incoming_pods_total.labels(queue, label)
            self._incoming[queue, label] = counter
        counter.value += 1
        self._moves.append((self._clock.now(), key, queue, label))

    def note(self, key: str, what: str, detail: str = "") -> None:
        """Remember something else that happened to a pod."""
        self._moves.append((self._clock.now(), key, what, detail))

    def record_hint(self, plugin: str, label: str, answer: str, seconds: float) -> None:
        """Record what a plugin said about an event: Queue, QueueSkip or Error."""
        histogram = self._hint_seconds.get((plugin, label, answer))
        if histogram is None:
            family = self.metrics.queueing_hint_execution_duration_seconds
            histogram = self._hint_seconds[plugin, label, answer] = family.labels(
                plugin, label, answer
            )
        histogram.observe(seconds)

    def record_pre_enqueue(self, profile: str, seconds: float) -> None:
        """Record a run of the PreEnqueue plugins; kube-scheduler calls every one a success."""
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
        """Return the remembered moves of a pod in order: O(``HISTORY_LENGTH``)."""
        return [
            f"{instant:.3f} {what}" + (f" ({detail})" if detail else "")
            for instant, of, what, detail in self._moves
            if of == key
        ]
