"""The findings of a trial in the shadow: counts, times, and examples of differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from proreus.base.metrics import Family, Histogram, SchedulerMetrics

Outcome = Literal["same", "moved", "rejected", "accepted", "failed"]
"""How the candidate decided about a pod, compared with the configuration in force.

``moved``: to another node. ``rejected``: it found no node, and a node was found in force.
``accepted``: the reverse. ``failed``: by an error of the candidate, exceeded budgets included.
"""

OUTCOMES: tuple[Outcome, ...] = ("same", "moved", "rejected", "accepted", "failed")
DIFFERENCES: tuple[Outcome, ...] = ("moved", "rejected", "accepted")

Skipped = Literal["pod group", "extenders", "time", "error in force", "not copied"]
"""Why a sampled pod was not compared: its PodGroup is scheduled as a whole (an attempt of a group
counts once); HTTP extenders decide about it too; the trial had used up its share of the time; the
attempt ended in an error in force; the pod holds text that is not valid."""

SKIPPED: tuple[Skipped, ...] = ("pod group", "extenders", "time", "error in force", "not copied")

MAX_EXAMPLES = 20
_MAX_CALLS = 20
_MAX_TEXT = 500

_Times = dict[tuple[str, str], tuple[float, int]]
"""Seconds and number of calls by plugin and extension point."""


@dataclass(frozen=True)
class Example:
    """A pod about which the candidate decided differently.

    ``in_force``, ``candidate``: the chosen node, or "". ``reason``: why there is none.
    """

    pod: str
    outcome: Outcome
    in_force: str
    candidate: str
    reason: str


@dataclass
class DecisionTimes:
    """Seconds of decisions about the same pods, of which both found a node."""

    count: int = 0
    in_force: float = 0.0
    candidate: float = 0.0
    slowest_in_force: float = 0.0
    slowest_candidate: float = 0.0

    def add(self, in_force: float, candidate: float) -> None:
        """Add the decisions about one pod."""
        self.count += 1
        self.in_force += in_force
        self.candidate += candidate
        self.slowest_in_force = max(self.slowest_in_force, in_force)
        self.slowest_candidate = max(self.slowest_candidate, candidate)

    def describe(self) -> dict[str, Any]:
        """Return averages and maxima in milliseconds."""
        count = max(self.count, 1)
        return {
            "pods": self.count,
            "inForceMilliseconds": round(1000 * self.in_force / count, 3),
            "candidateMilliseconds": round(1000 * self.candidate / count, 3),
            "slowestInForceMilliseconds": round(1000 * self.slowest_in_force, 3),
            "slowestCandidateMilliseconds": round(1000 * self.slowest_candidate, 3),
        }


@dataclass
class ShadowReport:
    """The findings of one trial.

    ``candidate``: the metrics of the candidate's plugins; ``in_force``: those of the process.
    ``ended_early``: why the trial was given up before its end; "" if it was not.
    ``preemption_not_compared``: compared pods for which one configuration or both found no node:
    what its PostFilter would do, such as preemption, is not tried.
    """

    candidate: SchedulerMetrics
    in_force: SchedulerMetrics
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    skipped: Counter[Skipped] = field(default_factory=Counter)
    preemption_not_compared: int = 0
    examples: list[Example] = field(default_factory=list)
    times: DecisionTimes = field(default_factory=DecisionTimes)
    seconds: float = 0.0
    ended_early: str = ""

    def __post_init__(self) -> None:
        self._calls_before = _call_times(self.in_force)

    @property
    def compared(self) -> int:
        """How many pods both have decided about."""
        return self.outcomes.total()

    @property
    def differing(self) -> int:
        """How many pods the candidate decided about differently."""
        return sum(self.outcomes[outcome] for outcome in DIFFERENCES)

    def add(self, example: Example) -> bool:
        """Add one compared pod; return whether it is kept as an example."""
        self.outcomes[example.outcome] += 1
        kept = example.outcome != "same" and len(self.examples) < MAX_EXAMPLES
        if kept:
            self.examples.append(example)
        return kept

    def objection(self, max_differences: float) -> str:
        """Return why the candidate must not be adopted; "" if it may.

        ``max_differences``: the share of pods that it may decide about differently.
        """
        if self.ended_early:
            return self.ended_early
        if not self.compared:
            return "no pod was compared"
        if failed := self.outcomes["failed"]:
            return f"its plugins failed for {failed} of {self.compared} pods"
        if self.differing > max_differences * self.compared:
            return (
                f"it decides differently about {self.differing} of {self.compared} pods, "
                f"allowed is a share of {max_differences:g}"
            )
        return ""

    def failures(self) -> list[dict[str, Any]]:
        """Return the failures of the candidate's plugins by extension point and reason."""
        return [
            {"plugin": plugin, "extensionPoint": point, "reason": reason, "count": int(count)}
            for (plugin, point, reason), count in self.candidate.plugin_failures_total.values()
        ]

    def calls(self) -> list[dict[str, Any]]:
        """Return microseconds a call, in force and of the candidate, slowest plugins first.

        A sample of one attempt in ten on both sides; None: not called in the sample.
        """
        in_force = _since(_call_times(self.in_force), self._calls_before)
        candidate = _call_times(self.candidate)
        keys = sorted(in_force.keys() | candidate.keys(), key=lambda key: -_cost(candidate, key))
        return [
            {
                "plugin": plugin,
                "extensionPoint": point,
                "inForceMicroseconds": _microseconds(in_force.get((plugin, point))),
                "candidateMicroseconds": _microseconds(candidate.get((plugin, point))),
            }
            for plugin, point in keys[:_MAX_CALLS]
        ]

    def counts(self) -> dict[str, int]:
        """Return the number of pods by outcome."""
        return {outcome: self.outcomes[outcome] for outcome in OUTCOMES}

    def not_compared(self) -> dict[str, int]:
        """Return the number of pods that were not compared, by reason."""
        return {reason: self.skipped[reason] for reason in SKIPPED}

    def describe(self) -> dict[str, Any]:
        """Return the findings as JSON-compatible data."""
        return {
            "compared": self.compared,
            "outcomes": self.counts(),
            "notCompared": self.not_compared(),
            "preemptionNotCompared": self.preemption_not_compared,
            "decisions": self.times.describe(),
            "calls": self.calls(),
            "failures": self.failures(),
            "examples": [asdict(example) for example in self.examples],
            "secondsUsed": round(self.seconds, 3),
        }


def shortened(text: str) -> str:
    """Return a text cut to the length that an example keeps."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def _call_times(metrics: SchedulerMetrics) -> _Times:
    # A copy of numbers: the children go on counting.
    family: Family[Histogram] = metrics.plugin_execution_duration_seconds
    series: Iterable[tuple[tuple[str, ...], Histogram]] = family.histograms()
    times: _Times = {}
    for (plugin, point, _), child in series:
        seconds, count = times.get((plugin, point), (0.0, 0))
        times[plugin, point] = seconds + child.sum, count + child.count
    return times


def _since(now: _Times, before: _Times) -> _Times:
    return {
        key: (seconds - before.get(key, (0.0, 0))[0], count - before.get(key, (0.0, 0))[1])
        for key, (seconds, count) in now.items()
        if count > before.get(key, (0.0, 0))[1]
    }


def _cost(times: _Times, key: tuple[str, str]) -> float:
    return times.get(key, (0.0, 0))[0]


def _microseconds(time: tuple[float, int] | None) -> float | None:
    return None if time is None else round(1e6 * time[0] / time[1], 1)
