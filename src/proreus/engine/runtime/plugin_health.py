"""The health of a profile's plugins: failures are logged, counted, reported; repeated ones disable.

A plugin that fails, or exceeds its time budget, several times in a row is reported. By the policy
``skip`` an out-of-tree plugin is then disabled for a while (a circuit breaker); in-tree plugins
never are. What a disabled plugin returns at each point is in ``instrumentation``.

A point of the scheduling cycle fails or succeeds once an attempt, however often it is called in it
(once or for 5,000 rows), and its time is the sum of those calls. Points of the binding cycle and
calls by the queue count call by call. The budget does not hold for points that wait (PreBind, Bind,
PostFilter): they have deadlines (``await_deadline``).

Example (5 failures, 30 s): Filter of a plugin raises in 5 attempts in a row. From the 6th on it is
disabled for 30 s, then half-open: a failure disables it for 60 s, a success resumes it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from proreus.base.clock import Clock
from proreus.base.logs import logger, traceback_text
from proreus.base.metrics import SchedulerMetrics
from proreus.framework.plugin import Plugin
from proreus.framework.plugin_health import PluginHealth, Reason

log = logger(__name__)

T = TypeVar("T")

FailurePolicy = Literal["fail", "skip"]

EventSink = Callable[[str, str, str], None]
"""``sink(type, reason, note)`` records an Event for the operators."""

_LOG_AGAIN_SECONDS = 600.0


class FailureRules(Struct, frozen=True):
    """The limits of a plugin, and of all plugins together.

    ``budget_seconds``: for all calls of a point in one attempt. ``end_at_budget``: beyond it, a
    plugin that is called node by node is not called for further nodes, and the attempt fails.
    ``failures``: how many in a row are the limit. ``disable_seconds``: how long a plugin is
    disabled at first; it doubles with each failure right after that time, up to
    ``max_disable_seconds``. ``attempt_seconds``: how long all plugins may compute in one attempt.
    ``await_seconds``: how long one call may wait in the scheduling cycle; ``bind_seconds``: in
    PreBind or Bind. 0: no limit.
    """

    policy: FailurePolicy = "fail"
    budget_seconds: float = 0.1
    # Off where results must not depend on how busy the machine is: offline, and in tests.
    end_at_budget: bool = False
    failures: int = 5
    disable_seconds: float = 30.0
    max_disable_seconds: float = 480.0
    attempt_seconds: float = 0.0
    await_seconds: float = 0.0
    bind_seconds: float = 0.0


DEFAULT_RULES = FailureRules()


class PluginCall(NamedTuple):
    """A place where an out-of-tree plugin is called. ``owner``: its class, None if unknown."""

    plugin: str
    point: str
    owner: type[Plugin] | None = None


class PointHealth(Struct):
    """One extension point of one plugin. ``consecutive_failures``: how often it failed in a row.

    ``seconds``, ``failed``: of the current attempt; of all calls if the point ``waits``.
    ``cut_off``: the budget has ended the attempt, and ``seconds`` are counted as a failure already.
    """

    point: str
    waits: bool = False
    consecutive_failures: int = 0
    seconds: float = 0.0
    failed: bool = False
    cut_off: bool = False


class CurrentCall:
    """Where the event loop is: in a ``call`` of an out-of-tree plugin, or in none.

    The runner writes it, on the loop's thread; the watchdog reads it from its own.
    """

    __slots__ = ("call",)

    def __init__(self) -> None:
        self.call: PluginCall | None = None

    def noting(
        self, call: PluginCall, function: Callable[..., T], health: PointHealth | None = None
    ) -> Callable[..., T]:
        """Return a function during which ``call`` is the current one; ``health`` gets its time."""
        point_health = health or PointHealth(call.point)

        def run(*args: Any) -> T:
            outer, self.call = self.call, call
            started = perf_counter()
            try:
                return function(*args)
            finally:  # also a call that raises has used its time
                self.call = outer
                point_health.seconds += perf_counter() - started

        return run


class TracebackLog:
    """Logs exceptions of plugins with tracebacks: each kind of failure once in ten minutes."""

    def __init__(self, clock: Clock, subject: str = "Plugin") -> None:
        self.on_error: Callable[[BaseException, Iterable[str]], None] = _ignore
        """Called with each exception, logged or not, and with what raised it."""
        self._clock = clock
        self._subject = subject
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def record_event(self, plugin: str, point: str, error: BaseException) -> None:
        """Log an exception at an extension point, or count it if its kind was logged lately."""
        self.record(f"{self._subject} raised", error, plugin=plugin, point=point)

    def record(self, message: str, error: BaseException, **where: Any) -> None:
        """Log an exception with its traceback, or count it if its kind was logged lately.

        ``where``: what raised, as pairs of the log line; with ``message`` and the line of code, it
        makes the kind.
        """
        self.on_error(error, where.values())
        # Keyed by the line that raised, not by the text: a text with the pod's name in it would be
        # a new kind for every pod, and a failing Filter raises thousands of times a second.
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        key = (message, *where.values(), place, type(error).__name__)
        now = self._clock.monotonic()
        at, more = self._seen.get(key, (-_LOG_AGAIN_SECONDS, 0))
        if now - at < _LOG_AGAIN_SECONDS:
            self._seen[key] = (at, more + 1)
            return
        self._seen[key] = (now, 0)
        text = traceback_text(error)
        log.error(message, err=error, **where, unlogged=more, traceback=text)


def _ignore(error: BaseException, where: Iterable[str]) -> None:
    pass


def discard_event(event_type: str, reason: str, note: str) -> None:
    """Discard the event: an ``EventSink`` where there is no cluster."""


@dataclass(eq=False)
class HealthContext:
    """The context of the health monitors of all plugins of a process.

    ``subject``: what log lines call a plugin.
    """

    clock: Clock
    metrics: SchedulerMetrics
    rules: FailureRules = DEFAULT_RULES
    record_event: EventSink = discard_event
    subject: str = "Plugin"
    current_call: CurrentCall = field(default_factory=CurrentCall)

    def __post_init__(self) -> None:
        """Begin a log of tracebacks."""
        self.tracebacks = TracebackLog(self.clock, self.subject)


class PluginHealthMonitor(PluginHealth):
    """The health of one plugin in one profile. ``out_of_tree``: it is not part of proreus.

    ``disabled``: its methods are not called at present. That changes between attempts only, so that
    no attempt runs its PreFilter but not its Filter.
    """

    def __init__(
        self, plugin: str, profile: str, out_of_tree: bool, health_context: HealthContext
    ) -> None:
        self.plugin = plugin
        self.profile = profile
        self.out_of_tree = out_of_tree
        self.disabled = False
        self.disabled_because = ""
        """Why the plugin is disabled for as long as this version of it is in use; "": it is not."""
        self.budget_seconds = health_context.rules.budget_seconds
        self.end_at_budget = health_context.rules.end_at_budget
        self.current_call = health_context.current_call
        self._health_context = health_context
        self._points: dict[str, PointHealth] = {}
        self._failing_point: PointHealth | None = None
        """The point whose failures disabled the plugin, kept until it has succeeded again."""
        self._disable_pending = False
        self._half_open = False
        self._disabled_seconds = health_context.rules.disable_seconds
        self._disabled_until = 0.0
        if out_of_tree:
            self._skipped = health_context.metrics.plugin_skipped.labels(plugin, profile)

    def point_health(self, point: str, waits: bool = False) -> PointHealth:
        """Return the health of a point, created at the first call."""
        if point not in self._points:
            self._points[point] = PointHealth(point, waits)
        return self._points[point]

    def deadline_seconds(self, point: str) -> float:
        """Return how long one call at a point may wait; 0: no limit."""
        rules = self._health_context.rules
        return rules.bind_seconds if point in ("PreBind", "Bind") else rules.await_seconds

    def disable_for_good(self, because: str) -> None:
        """Disable the plugin until another version of it is loaded."""
        self.disabled, self.disabled_because = True, because
        self._disabled_until = inf
        self._skipped.set(1)

    # ---- observations --------------------------------------------------------------------------

    def note(self, point: str, reason: Reason, error: BaseException | None = None) -> None:
        """Count a failure, log the exception, and disable or report the plugin at the limit."""
        health_context = self._health_context
        self._count(point, reason)
        if error is not None:
            health_context.tracebacks.record_event(self.plugin, point, error)
        if not self.out_of_tree:
            return
        point_health = self.point_health(point)
        # A Filter that raises for each of 5,000 nodes has failed once: its cause is one.
        if point_health.failed and not point_health.waits:
            return
        point_health.failed = True
        point_health.consecutive_failures += 1
        # A disabled plugin is still called for Unreserve, which may fail; no limit applies to that.
        if self._disable_pending or self.disabled:
            return
        # ``==``, not ``>=``: the policy ``fail`` keeps calling the plugin, and one report a series
        # of failures is enough. Half-open, a single failure disables it again.
        if point_health.consecutive_failures == health_context.rules.failures or self._half_open:
            self._on_failure_limit(point_health, reason)

    def log(self, point: str, error: BaseException) -> None:
        """Log and count an exception that is no reason to disable the plugin."""
        self._count(point, "raised")
        self._health_context.tracebacks.record_event(self.plugin, point, error)

    def _count(self, point: str, reason: Reason) -> None:
        failures = self._health_context.metrics.plugin_failures_total
        failures.labels(self.plugin, point, reason).inc()

    def succeeded(self, point_health: PointHealth) -> None:
        """End the point's series of failures; resume the plugin if that point had disabled it."""
        if self.disabled:  # then something stands for its results
            return
        point_health.consecutive_failures = 0
        # Success at another point proves nothing: PreFilter may work while Filter still fails.
        if self._half_open and point_health is self._failing_point:
            self._half_open = False
            self._disabled_seconds = self._health_context.rules.disable_seconds
            self._report("Normal", "PluginResumed", "succeeds again and is called as before")

    def begin_attempt(self) -> None:
        """Evaluate the last attempt; disable or half-open the plugin. Called once a pod."""
        for point_health in self._points.values():
            # No time and no failure: the point was not reached in that attempt.
            if point_health.waits or not (point_health.seconds or point_health.failed):
                continue
            if point_health.seconds > self.budget_seconds and not point_health.cut_off:
                self.note(point_health.point, "slow")
            if not point_health.failed:
                self.succeeded(point_health)
            point_health.seconds, point_health.failed = 0.0, False
            point_health.cut_off = False
        if self._disable_pending:
            self._disable()
        elif self.disabled and self._health_context.clock.monotonic() >= self._disabled_until:
            self._enter_half_open()

    def tick(self) -> bool:
        """Disable or half-open a plugin that fails at PreEnqueue; called once a second.

        Return whether it has just been disabled: the queue then runs the other PreEnqueue plugins
        of the pods that it gated.
        """
        # ``begin_attempt`` needs an attempt. A PreEnqueue that fails for every pod gates them all,
        # so there may never be one again.
        if self._failing_point is None or self._failing_point.point != "PreEnqueue":
            return False
        if self._disable_pending:
            self._disable()
            return True
        if self.disabled and self._health_context.clock.monotonic() >= self._disabled_until:
            self._enter_half_open()
        return False

    # ---- consequences --------------------------------------------------------------------------

    def _on_failure_limit(self, point_health: PointHealth, reason: Reason) -> None:
        if self.out_of_tree and self._health_context.rules.policy == "skip":
            self._failing_point, self._disable_pending = point_health, True
            return
        words = {
            "raised": "raised an exception",
            "error": "returned an error",
            "invalid_answer": "returned what the point does not allow",
            "slow": f"took longer than {self.budget_seconds * 1000:g}ms",
            "timeout": f"did not return within {self.deadline_seconds(point_health.point):g}s",
        }
        times = point_health.consecutive_failures
        message = f"{words[reason]} at {point_health.point} {times} times in a row"
        self._report("Warning", "PluginFailing", message)

    def _disable(self) -> None:
        assert self._failing_point is not None
        self._disable_pending = False
        # It failed again right after a pause, so probably nothing has changed: pause longer.
        if self._half_open:
            longest = self._health_context.rules.max_disable_seconds
            self._disabled_seconds = min(2 * self._disabled_seconds, longest)
        self._half_open, self.disabled = False, True
        self._disabled_until = self._health_context.clock.monotonic() + self._disabled_seconds
        self._skipped.set(1)
        point = self._failing_point.point
        message = (
            f"is disabled for {self._disabled_seconds:g}s: it failed at {point} too often in a row"
        )
        self._report("Warning", "PluginSkipped", message)

    def _enter_half_open(self) -> None:
        self.disabled, self._half_open = False, True
        self._skipped.set(0)
        for point_health in self._points.values():
            point_health.consecutive_failures = 0
        log.info("Plugin is called again", plugin=self.plugin, profile=self.profile)

    def _report(self, event_type: str, reason: str, message: str) -> None:
        note = f"plugin {self.plugin} of profile {self.profile} {message}"
        if event_type == "Warning":
            log.error(f"{self._health_context.subject} keeps failing", err=note, reason=reason)
        else:
            log.info("Plugin has recovered", note=note, reason=reason)
        self._health_context.record_event(event_type, reason, note)

    def describe(self) -> dict[str, Any]:
        """Return the current state as JSON-compatible data, for the health endpoint."""
        now = self._health_context.clock.monotonic()
        return {
            "plugin": self.plugin,
            "profile": self.profile,
            "skipped": self.disabled,
            "skippedBecause": self.disabled_because or None,
            "triedAgainInSeconds": round(max(self._disabled_until - now, 0.0), 1)
            if self.disabled and not self.disabled_because
            else None,
            "failuresInARow": {
                point_health.point: point_health.consecutive_failures
                for point_health in self._points.values()
                if point_health.consecutive_failures
            },
        }
