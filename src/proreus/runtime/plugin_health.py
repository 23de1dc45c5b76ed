"""How the plugins of a profile behave: failures are logged, counted, reported, and may be skipped.

A plugin that fails, or takes longer than its budget, so many times in a row is reported. By policy
``skip``, one that was brought along is then left out of its profile for a while (a circuit breaker)
and tried again; plugins that come with proreus never are. What being left out means at each point,
and how calls are watched, is in ``instrument``.

An extension point that belongs to the scheduling cycle has failed or not once an attempt, however
often it is called in it: for one row or for 5,000. Its time is the sum of those calls. Points of
the binding cycle, and what the queue asks, are looked at call by call. The time of those that wait
(PreBind, Bind, PostFilter) is not limited here: they may have good reasons, and others work then.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from proreus.clock import Clock
from proreus.framework.plugin_health import PluginHealth, Reason
from proreus.logs import logger
from proreus.metrics import SchedulerMetrics

log = logger(__name__)

FailurePolicy = Literal["fail", "skip"]

EventSink = Callable[[str, str, str], None]
"""Tells the operators, by an Event: its type, its reason and a sentence."""

_LOG_AGAIN_SECONDS = 600.0


@dataclass(frozen=True)
class FailureRules:
    """What a plugin may do, and all plugins together.

    ``budget_seconds``: for all calls of a point in one attempt. ``failures``: so many in a row are
    too many. ``disable_seconds``: how long a plugin is first left out; each time that it fails
    again at once the pause doubles, up to ``max_disable_seconds``. ``attempt_seconds``: how long
    all of them may compute in one attempt; 0: as long as they like.
    """

    policy: FailurePolicy = "fail"
    budget_seconds: float = 0.1
    failures: int = 5
    disable_seconds: float = 30.0
    max_disable_seconds: float = 480.0
    attempt_seconds: float = 0.0


DEFAULT_RULES = FailureRules()


class TracebackLog:
    """Logs what plugins raise: each kind of failure once, and again after ten minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str, str, str], tuple[float, int]] = {}

    def record_event(self, plugin: str, point: str, error: BaseException) -> None:
        """Log an error with its traceback, or count it if that was done a while ago."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        key = (plugin, point, place, type(error).__name__)
        now = self._clock.now()
        at, more = self._seen.get(key, (-_LOG_AGAIN_SECONDS, 0))
        if now - at < _LOG_AGAIN_SECONDS:
            self._seen[key] = (at, more + 1)
            return
        self._seen[key] = (now, 0)
        text = "".join(traceback.format_exception(error))
        log.error(
            "Plugin raised", err=error, plugin=plugin, point=point, unlogged=more, traceback=text
        )


@dataclass(slots=True)
class PointHealth:
    """One extension point of one plugin. ``consecutive_failures``: how often it failed in a row.

    ``seconds``, ``failed``: of the attempt that is going on; not of a point that waits.
    """

    point: str
    waits: bool = False
    consecutive_failures: int = 0
    seconds: float = 0.0
    failed: bool = False


def discard_event(event_type: str, reason: str, note: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class HealthContext:
    """What the health_monitors of all plugins of a process have in common."""

    clock: Clock
    metrics: SchedulerMetrics
    rules: FailureRules = DEFAULT_RULES
    record_event: EventSink = discard_event
    tracebacks: TracebackLog = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tracebacks", TracebackLog(self.clock))


class PluginHealthMonitor(PluginHealth):
    """Keeps watch over one plugin of one profile. ``out_of_tree``: it did not come with proreus.

    ``disabled``: it is left out at this time. That begins and ends between attempts, so that no
    attempt has it at one point and not at the next.
    """

    def __init__(
        self, plugin: str, profile: str, out_of_tree: bool, health_context: HealthContext
    ) -> None:
        self.plugin = plugin
        self.profile = profile
        self.out_of_tree = out_of_tree
        self.disabled = False
        self.budget_seconds = health_context.rules.budget_seconds
        self._health_context = health_context
        self._points: dict[str, PointHealth] = {}
        self._failing_point: PointHealth | None = None
        """The point because of which the plugin is, or was until just now, left out."""
        self._disable_pending = False
        self._half_open = False
        self._disabled_seconds = health_context.rules.disable_seconds
        self._disabled_until = 0.0
        if out_of_tree:
            self._skipped = health_context.metrics.plugin_skipped.labels(plugin, profile)

    def point_health(self, point: str, waits: bool = False) -> PointHealth:
        """Return the meter of a point, made at the first call."""
        if point not in self._points:
            self._points[point] = PointHealth(point, waits)
        return self._points[point]

    # ---- what happens --------------------------------------------------------------------------

    def note(self, point: str, reason: Reason, error: BaseException | None = None) -> None:
        """Count a failure, log what was raised, and see whether it is one too many."""
        health_context = self._health_context
        health_context.metrics.plugin_failures_total.labels(self.plugin, point, reason).inc()
        if error is not None:
            health_context.tracebacks.record_event(self.plugin, point, error)
        if not self.out_of_tree:
            return
        point_health = self.point_health(point)
        if point_health.failed and not point_health.waits:
            return
        point_health.failed = True
        point_health.consecutive_failures += 1
        if self._disable_pending or self.disabled:
            return
        if point_health.consecutive_failures == health_context.rules.failures or self._half_open:
            self._on_failure_limit(point_health, reason)

    def succeeded(self, point_health: PointHealth) -> None:
        """Take note that a point did well."""
        point_health.consecutive_failures = 0
        if self._half_open and point_health is self._failing_point:
            self._half_open = False
            self._disabled_seconds = self._health_context.rules.disable_seconds
            self._report("Normal", "PluginResumed", "does well again and is asked as before")

    def begin_attempt(self) -> None:
        """Judge the attempt before; begin or end to leave the plugin out. Called once a pod."""
        for point_health in self._points.values():
            if point_health.waits or not (point_health.seconds or point_health.failed):
                continue
            if point_health.seconds > self.budget_seconds:
                self.note(point_health.point, "slow")
            if not point_health.failed:
                self.succeeded(point_health)
            point_health.seconds, point_health.failed = 0.0, False
        if self._disable_pending:
            self._disable()
        elif self.disabled and self._health_context.clock.now() >= self._disabled_until:
            self._enter_half_open()

    def tick(self) -> bool:
        """Do the same by the clock for a plugin that gates pods: perhaps it lets none be tried.

        Tell whether it is left out from now on, so that the pods it gated are to be asked about
        again. Called once a second.
        """
        if self._failing_point is None or self._failing_point.point != "PreEnqueue":
            return False
        if self._disable_pending:
            self._disable()
            return True
        if self.disabled and self._health_context.clock.now() >= self._disabled_until:
            self._enter_half_open()
        return False

    # ---- what comes of it ----------------------------------------------------------------------

    def _on_failure_limit(self, point_health: PointHealth, reason: Reason) -> None:
        if self.out_of_tree and self._health_context.rules.policy == "skip":
            self._failing_point, self._disable_pending = point_health, True
            return
        words = {
            "raised": "raised an exception",
            "error": "answered with an error",
            "invalid_answer": "gave an answer that the point does not allow",
            "slow": f"took longer than {self.budget_seconds * 1000:g}ms",
        }
        times = point_health.consecutive_failures
        message = f"{words[reason]} at {point_health.point} {times} times in a row"
        self._report("Warning", "PluginFailing", message)

    def _disable(self) -> None:
        assert self._failing_point is not None
        self._disable_pending = False
        if self._half_open:
            longest = self._health_context.rules.max_disable_seconds
            self._disabled_seconds = min(2 * self._disabled_seconds, longest)
        self._half_open, self.disabled = False, True
        self._disabled_until = self._health_context.clock.now() + self._disabled_seconds
        self._skipped.set(1)
        point = self._failing_point.point
        told = (
            f"is left out for {self._disabled_seconds:g}s: it failed at {point} too often in a row"
        )
        self._report("Warning", "PluginSkipped", told)

    def _enter_half_open(self) -> None:
        self.disabled, self._half_open = False, True
        self._skipped.set(0)
        for point_health in self._points.values():
            point_health.consecutive_failures = 0
        log.info("Plugin is tried again", plugin=self.plugin, profile=self.profile)

    def _report(self, event_type: str, reason: str, told: str) -> None:
        note = f"plugin {self.plugin} of profile {self.profile} {told}"
        if event_type == "Warning":
            log.error("Plugin misbehaves", err=note, reason=reason)
        else:
            log.info("Plugin behaves again", note=note, reason=reason)
        self._health_context.record_event(event_type, reason, note)

    def describe(self) -> dict[str, Any]:
        """Return the state of affairs as plain data, for people."""
        now = self._health_context.clock.now()
        return {
            "plugin": self.plugin,
            "profile": self.profile,
            "skipped": self.disabled,
            "triedAgainInSeconds": round(max(self._disabled_until - now, 0.0), 1)
            if self.disabled
            else None,
            "failuresInARow": {
                point_health.point: point_health.consecutive_failures
                for point_health in self._points.values()
                if point_health.consecutive_failures
            },
        }
