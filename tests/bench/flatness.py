"""Whether measures of a long run stay flat: slopes, a table, and a plot.

The slope is Theil and Sen's, the median of the slopes between all pairs of samples: single samples
that lie far out (a garbage collection, a busy machine) do not change it. The beginning of a run
does not count: caches fill then, that of Events (16,384) and those of results and terms, and the
record of decisions, and the process reaches its high-water mark.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

WARM_UP_SECONDS = 300.0


def warm_up(duration: float) -> float:
    """Return how many seconds of a run do not count: a quarter, or 300 s, but at most half."""
    return min(max(duration / 4, WARM_UP_SECONDS), duration / 2)


@dataclass(frozen=True)
class Measure:
    """What may grow: by ``share`` of its median, or by ``amount`` if that is more."""

    name: str
    title: str
    share: float
    amount: float


MEASURES = (
    Measure("rss_mib", "RSS, MiB", 0.02, 2.0),
    Measure("open_files", "open files", 0.0, 3.0),
    Measure("tasks", "asyncio tasks", 0.25, 10.0),
    Measure("loop_lag_ms", "loop lag, mean, ms", 0.5, 2.0),
    Measure("series", "time series", 0.01, 5.0),
)


@dataclass(frozen=True)
class Sample:
    """All measures at a second of the run."""

    second: float
    values: dict[str, float]


def growth(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much a measure grows over the run, by its median slope."""
    slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(points, 2) if x1 > x0]
    return statistics.median(slopes) * (points[-1][0] - points[0][0]) if slopes else 0.0


def counted(samples: Sequence[Sample], measure: Measure) -> list[tuple[float, float]]:
    """Return second and value of the samples after the warm-up."""
    begin = warm_up(samples[-1].second)
    return [(one.second, one.values[measure.name]) for one in samples if one.second >= begin]


def report(samples: Sequence[Sample]) -> list[str]:
    """Print a line for each measure; return the names of those that grew too much."""
    grown = []
    print(f"{'':<22}{'median':>10}{'least':>10}{'most':>10}{'growth':>10}{'allowed':>10}")
    for measure in MEASURES:
        points = counted(samples, measure)
        values = [value for _, value in points]
        median, by = statistics.median(values), growth(points)
        allowed = max(measure.amount, measure.share * median)
        flat = by <= allowed
        if not flat:
            grown.append(measure.name)
        figures = "".join(f"{x:>10.2f}" for x in (median, min(values), max(values), by, allowed))
        print(f"{measure.title:<22}{figures}{'' if flat else '  grows'}")
    return grown


def draw(path: Path, samples: Sequence[Sample]) -> None:
    """Draw all measures over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8), layout="constrained")
    for axes, measure in zip(figure.subplots(len(MEASURES), 1, sharex=True), MEASURES, strict=True):
        points = [(one.second / 60, one.values[measure.name]) for one in samples]
        axes.plot(*zip(*points, strict=True))
        axes.axvspan(0, warm_up(samples[-1].second) / 60, color="0.93")
        axes.set_ylabel(measure.title)
        axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes")
    figure.savefig(path)
