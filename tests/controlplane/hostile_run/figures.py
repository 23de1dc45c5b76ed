"""The figures of a run, and how they are read from the schedulers' metrics."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from prometheus_client import Metric

MAX_CYCLE_SECONDS = 1.024
"""A bound of the histogram's buckets."""
MAX_LAG_SECONDS = 0.128
"""Likewise: more than this the event loop never came late."""
MAX_GROWTH = 1.03
"""From the end of the first wave to the end of any later one."""
MAX_ADDED_SECONDS = 0.1


@dataclass
class Figures:
    """The outcome of a run."""

    seconds: float = 0.0
    stored: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    quiet_waits: list[float] = field(default_factory=list)
    """Those of plain pods before there were hostile objects."""
    least: list[float] = field(default_factory=list)
    """The waits of pods that ``BindAtOnce`` binds, at the same time as ``waits``."""
    quiet_least: list[float] = field(default_factory=list)
    cycles: dict[float, float] = field(default_factory=dict)
    """The number of scheduling cycles by the upper bound of their seconds."""
    lags: dict[float, float] = field(default_factory=dict)
    """The number of times that the leader's event loop came late, likewise."""
    rss_before: dict[str, float] = field(default_factory=dict)
    """Mebibytes by scheduler."""
    rss_after: list[dict[str, float]] = field(default_factory=list)
    """After each wave."""
    transitions: int = 0
    unreadable: float = 0.0
    handler_failures: float = 0.0
    tracebacks: int = 0
    log_bytes: int = 0

    @property
    def longest_cycle(self) -> float:
        """The bound of the longest cycle, seconds."""
        return max((bound for bound, count in self.cycles.items() if count), default=0.0)

    @property
    def longest_lag(self) -> float:
        """The bound of the longest lag of the event loop, seconds."""
        return max((bound for bound, count in self.lags.items() if count), default=0.0)

    @property
    def growth(self) -> float:
        """The resident memory of a scheduler after a later wave, by that after the first; the
        largest."""
        first, *later = self.rss_after
        return max(wave[name] / first[name] for wave in later for name in first)

    @property
    def added_seconds(self) -> float:
        """How much longer plain pods waited than pods that were bound at once, by the median."""
        return statistics.median(self.waits) - statistics.median(self.least)

    def lines(self) -> list[str]:
        """Return the figures as lines of text."""
        total = sum(self.stored.values())
        return [
            f"{total} objects stored in {self.seconds:.0f} s: {self.stored}",
            f"refused {sum(self.refused.values())}: {self.refused}",
            *(f"  {kind}: {text}" for kind, text in self.refusals.items()),
            f"bytes of the largest ones: {self.largest}",
            f"not deleted: {self.left}",
            f"plain pods waited {_spread(self.quiet_waits)} before, "
            f"{_spread(self.waits)} next to them; lost: {self.lost}",
            f"pods bound at once waited {_spread(self.quiet_least)} before, "
            f"{_spread(self.least)} next to them",
            f"scheduling cycles by seconds: {_counts(self.cycles)}",
            f"lags of the event loop by seconds: {_counts(self.lags)}",
            f"RSS before {_rounded(self.rss_before)} MiB, "
            f"after each wave {'; '.join(map(_rounded, self.rss_after))} MiB",
            f"Lease transitions {self.transitions}, objects unreadable {self.unreadable:g}, "
            f"handlers that raised {self.handler_failures:g}",
            f"log {self.log_bytes} bytes, tracebacks {self.tracebacks}",
        ]


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"{statistics.median(ordered):.3f} s (median of {len(ordered)}; "
        f"95th percentile {statistics.quantiles(ordered, n=20)[-1]:.3f}, "
        f"longest {', '.join(f'{one:.2f}' for one in ordered[-5:])})"
    )


def _counts(histogram: dict[float, float]) -> str:
    return ", ".join(f"{bound:g}: {count:g}" for bound, count in histogram.items() if count)


def _rounded(values: dict[str, float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values.values())


def count_between(
    after: dict[str, Metric], before: dict[str, Metric], name: str
) -> dict[float, float]:
    """Return what a histogram has counted meanwhile, by upper bound."""
    counts, lower = {}, 0.0
    earlier = _cumulative(before[name])
    for bound, count in sorted(_cumulative(after[name]).items()):
        meanwhile = count - earlier.get(bound, 0.0)
        counts[bound], lower = meanwhile - lower, meanwhile
    return counts


def _cumulative(family: Metric) -> dict[float, float]:
    return {
        float(sample.labels["le"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }


def total(metrics: dict[str, Metric], name: str) -> float:
    """Return the sum of a counter over its labels."""
    family = metrics.get(name)
    return sum(s.value for s in family.samples if s.name.endswith("_total")) if family else 0.0
