"""How the plugins of a profile behave: failures are logged, counted, reported, and may be skipped.

A plugin that fails, or takes longer than its budget, so many times in a row is reported. By policy
``skip``, one that was brought along is then left out of its profile for a while (a circuit breaker)
and tried again; plugins that come with proreus never are. What being left out means at each point,
and how calls are watched, is in ``guard``.

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
from proreus.framework.conduct import Conduct, Reason
from proreus.logs import logger
from proreus.metrics import SchedulerMetrics

log = logger(__name__)

Policy = Literal["fail", "skip"]

Tell = Callable[[str, str, str], None]
"""Tells the operators, by an Event: its type, its reason and a sentence."""

_LOG_AGAIN_SECONDS = 600.0


@dataclass(frozen=True)
class Rules:
    """What a plugin may do.

    ``budget_seconds``: for all calls of a point in one attempt. ``failures``: so many in a row are
    too many. ``pause_seconds``: how long a plugin is first left out; each time that it fails again
    at once the pause doubles, up to ``longest_pause_seconds``.
    """

    policy: Policy = "fail"
    budget_seconds: float = 0.1
    failures: int = 5
    pause_seconds: float = 30.0
    longest_pause_seconds: float = 480.0


USUAL = Rules()


class Tracebacks:
    """Logs what plugins raise: each kind of failure once, and again after ten minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str, str, str], tuple[float, int]] = {}

    def tell(self, plugin: str, point: str, error: BaseException) -> None:
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
class Meter:
    """One extension point of one plugin. ``streak``: how often it failed in a row.

    ``seconds``, ``failed``: of the attempt that is going on; not of a point that waits.
    """

    point: str
    waits: bool = False
    streak: int = 0
    seconds: float = 0.0
    failed: bool = False


def nobody_told(event_type: str, reason: str, note: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Supervision:
    """What the conducts of all plugins of a process have in common."""

    clock: Clock
    metrics: SchedulerMetrics
    rules: Rules = USUAL
    tell: Tell = nobody_told
    tracebacks: Tracebacks = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tracebacks", Tracebacks(self.clock))


class PluginConduct(Conduct):
    """Keeps watch over one plugin of one profile. ``brought``: it did not come with proreus.

    ``skipping``: it is left out at this time. That begins and ends between attempts, so that no
    attempt has it at one point and not at the next.
    """

    def __init__(self, plugin: str, profile: str, brought: bool, supervision: Supervision) -> None:
        self.plugin = plugin
        self.profile = profile
        self.brought = brought
        self.skipping = False
        self.budget_seconds = supervision.rules.budget_seconds
        self._supervision = supervision
        self._meters: dict[str, Meter] = {}
        self._culprit: Meter | None = None
        """The point because of which the plugin is, or was until just now, left out."""
        self._due = False
        self._on_trial = False
        self._pause = supervision.rules.pause_seconds
        self._until = 0.0
        if brought:
            self._skipped = supervision.metrics.plugin_skipped.labels(plugin, profile)

    def meter(self, point: str, waits: bool = False) -> Meter:
        """Return the meter of a point, made at the first call."""
        if point not in self._meters:
            self._meters[point] = Meter(point, waits)
        return self._meters[point]

    # ---- what happens --------------------------------------------------------------------------

    def note(self, point: str, reason: Reason, error: BaseException | None = None) -> None:
        """Count a failure, log what was raised, and see whether it is one too many."""
        supervision = self._supervision
        supervision.metrics.plugin_failures_total.labels(self.plugin, point, reason).inc()
        if error is not None:
            supervision.tracebacks.tell(self.plugin, point, error)
        if not self.brought:
            return
        meter = self.meter(point)
        if meter.failed and not meter.waits:
            return
        meter.failed = True
        meter.streak += 1
        if self._due or self.skipping:
            return
        if meter.streak == supervision.rules.failures or self._on_trial:
            self._too_many(meter, reason)

    def succeeded(self, meter: Meter) -> None:
        """Take note that a point did well."""
        meter.streak = 0
        if self._on_trial and meter is self._culprit:
            self._on_trial = False
            self._pause = self._supervision.rules.pause_seconds
            self._report("Normal", "PluginResumed", "does well again and is asked as before")

    def begin_attempt(self) -> None:
        """Judge the attempt before; begin or end to leave the plugin out. Called once a pod."""
        for meter in self._meters.values():
            if meter.waits or not (meter.seconds or meter.failed):
                continue
            if meter.seconds > self.budget_seconds:
                self.note(meter.point, "slow")
            if not meter.failed:
                self.succeeded(meter)
            meter.seconds, meter.failed = 0.0, False
        if self._due:
            self._leave_out()
        elif self.skipping and self._supervision.clock.now() >= self._until:
            self._try_again()

    def tick(self) -> bool:
        """Do the same by the clock for a plugin that gates pods: perhaps it lets none be tried.

        Tell whether it is left out from now on, so that the pods it gated are to be asked about
        again. Called once a second.
        """
        if self._culprit is None or self._culprit.point != "PreEnqueue":
            return False
        if self._due:
            self._leave_out()
            return True
        if self.skipping and self._supervision.clock.now() >= self._until:
            self._try_again()
        return False

    # ---- what comes of it ----------------------------------------------------------------------

    def _too_many(self, meter: Meter, reason: Reason) -> None:
        if self.brought and self._supervision.rules.policy == "skip":
            self._culprit, self._due = meter, True
            return
        words = {
            "raised": "raised an exception",
            "error": "answered with an error",
            "invalid_answer": "gave an answer that the point does not allow",
            "slow": f"took longer than {self.budget_seconds * 1000:g}ms",
        }
        told = f"{words[reason]} at {meter.point} {meter.streak} times in a row"
        self._report("Warning", "PluginFailing", told)

    def _leave_out(self) -> None:
        assert self._culprit is not None
        self._due = False
        if self._on_trial:
            longest = self._supervision.rules.longest_pause_seconds
            self._pause = min(2 * self._pause, longest)
        self._on_trial, self.skipping = False, True
        self._until = self._supervision.clock.now() + self._pause
        self._skipped.set(1)
        point = self._culprit.point
        told = f"is left out for {self._pause:g}s: it failed at {point} too often in a row"
        self._report("Warning", "PluginSkipped", told)

    def _try_again(self) -> None:
        self.skipping, self._on_trial = False, True
        self._skipped.set(0)
        for meter in self._meters.values():
            meter.streak = 0
        log.info("Plugin is tried again", plugin=self.plugin, profile=self.profile)

    def _report(self, event_type: str, reason: str, told: str) -> None:
        note = f"plugin {self.plugin} of profile {self.profile} {told}"
        if event_type == "Warning":
            log.error("Plugin misbehaves", err=note, reason=reason)
        else:
            log.info("Plugin behaves again", note=note, reason=reason)
        self._supervision.tell(event_type, reason, note)

    def describe(self) -> dict[str, Any]:
        """Return the state of affairs as plain data, for people."""
        now = self._supervision.clock.now()
        return {
            "plugin": self.plugin,
            "profile": self.profile,
            "skipped": self.skipping,
            "triedAgainInSeconds": round(max(self._until - now, 0.0), 1) if self.skipping else None,
            "failuresInARow": {
                meter.point: meter.streak for meter in self._meters.values() if meter.streak
            },
        }
