"""Figures of the last quarter of an hour, a sample a second, read from the metrics.

Rates and quantiles are of what was added between two samples; a reset of the metrics (``DELETE
/metrics``) makes one sample without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from proreus.base.clock import Clock
from proreus.base.metrics import SchedulerMetrics
from proreus.base.metrics.families import Histogram, quantile
from proreus.engine.queue.scheduling_queue import SchedulingQueue

INTERVAL_SECONDS = 1.0
KEPT = 900
RESULTS = ("scheduled", "unschedulable", "error")
QUEUES = ("active", "backoff", "unschedulable", "gated")


class Sample(msgspec.Struct, rename="camel"):
    """The figures of one second. Rates are per second, latencies in seconds; None means nothing to
    measure.

    ``at``: seconds since the epoch. ``queues``, ``attempts``: in the order of ``QUEUES`` and
    ``RESULTS``. ``attempt_p50``, ``attempt_p99``: of attempts that ended since the sample before.
    ``api_failures``: of the requests to the apiserver those without a good answer.
    """

    at: float
    queues: list[int]
    in_flight: int
    attempts: list[float]
    attempt_p50: float | None
    attempt_p99: float | None
    api_requests: float
    api_failures: float
    api_p99: float | None


@dataclass
class _Totals:
    """Counts up to now."""

    at: float
    attempts: list[float]
    attempt_counts: list[int]
    api_requests: float
    api_failures: float
    api_counts: list[int]


@dataclass
class Samples:
    """The samples of one scheduler, oldest first; ``take`` adds one."""

    metrics: SchedulerMetrics
    queue: SchedulingQueue
    clock: Clock
    kept: deque[Sample] = field(default_factory=lambda: deque(maxlen=KEPT))

    def __post_init__(self) -> None:
        self._before = self._totals()

    def take(self) -> Sample | None:
        """Add a sample of the time since the last one; None if there was no time in between."""
        before, now = self._before, self._totals()
        seconds = now.at - before.at
        if seconds <= 0:
            return None
        self._before = now
        waiting = self.queue.pending_counts()
        attempts = _added(now.attempt_counts, before.attempt_counts)
        requests = _added(now.api_counts, before.api_counts)
        bounds = self.metrics.scheduling_attempt_duration_seconds.description.buckets
        api_bounds = self.metrics.rest_client_request_duration_seconds.description.buckets
        sample = Sample(
            at=self.clock.now(),
            queues=[waiting.get(name, 0) for name in QUEUES],
            in_flight=self.queue.in_flight_count,
            attempts=[
                max(new - old, 0.0) / seconds
                for new, old in zip(now.attempts, before.attempts, strict=True)
            ],
            attempt_p50=quantile(0.5, bounds, attempts),
            attempt_p99=quantile(0.99, bounds, attempts),
            api_requests=max(now.api_requests - before.api_requests, 0.0) / seconds,
            api_failures=max(now.api_failures - before.api_failures, 0.0) / seconds,
            api_p99=quantile(0.99, api_bounds, requests),
        )
        self.kept.append(sample)
        return sample

    def since(self, at: float) -> list[Sample]:
        """Return the samples later than ``at``, oldest first."""
        return [sample for sample in self.kept if sample.at > at]

    def _totals(self) -> _Totals:
        metrics = self.metrics
        attempts = dict.fromkeys(RESULTS, 0.0)
        for (result, _), count in metrics.schedule_attempts_total.values():
            attempts[result] = attempts.get(result, 0.0) + count
        requests = failures = 0.0
        for (code, _, _), count in metrics.rest_client_requests_total.values():
            requests += count
            failures += count if failed(code) else 0.0
        return _Totals(
            self.clock.monotonic(),
            [attempts[result] for result in RESULTS],
            _counts(child for _, child in metrics.scheduling_attempt_duration_seconds.histograms()),
            requests,
            failures,
            _counts(
                child for _, child in metrics.rest_client_request_duration_seconds.histograms()
            ),
        )


def failed(code: str) -> bool:
    """Return whether an apiserver that answers so is in trouble: 429, 5xx, or no answer.

    A conflict or an object that is gone is an answer.
    """
    return not code.isdecimal() or code == "429" or code.startswith("5")


def _counts(children: Iterable[Histogram]) -> list[int]:
    """Return the counts of several histograms with the same bounds, added up."""
    columns = zip(*(child.counts for child in children), strict=True)
    return [sum(column) for column in columns]


def _added(now: list[int], before: list[int]) -> list[int]:
    """Return the growth of each bucket; nothing where a reset made one smaller."""
    if not before:
        return now
    gained = [new - old for new, old in zip(now, before, strict=True)] if now else []
    return [] if any(one < 0 for one in gained) else gained
