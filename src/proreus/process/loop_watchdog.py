"""Detects an event loop that does not turn, names the plugin that it is in, and ends the process.

Scheduling happens on one thread: a plugin that sleeps, computes for long or does network I/O
without ``await`` stops all scheduling. The loop sets a time stamp ten times a second, and the
runner notes the plugin that it calls (``CurrentCall``); a thread looks at both.

    0.25 s   ``report_seconds``: the thread logs the plugin and its line      (default limits)
    15 s     ``exit_seconds``: the plugin is noted for the next start (``blocked_plugins``), writes
             are stopped, the Lease is released, and the process ends with 1

Only an out-of-tree plugin ends the process so; ``StuckCycle`` has the limit of everything else. C
code that holds the interpreter lock stops the thread as well: then the Lease runs out, and the
probe of /livez fails since nobody answers it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

from msgspec import Struct

from proreus.base import logs
from proreus.base.metrics import SchedulerMetrics
from proreus.base.source_location import thread_location
from proreus.engine.runtime.plugin_health import CurrentCall, PluginCall
from proreus.engine.scheduler import Scheduler
from proreus.process.blocked_plugins import BlockedPlugins

log = logs.logger(__name__)

_BEAT_SECONDS = 0.1
_LOOK_SECONDS = 0.1
_LOG_AGAIN_SECONDS = 60.0


class LoopWatchdog:
    """Watches the loop that ``run`` runs in, within ``with``. Create it on the loop's thread.

    ``report_seconds``, ``exit_seconds``: 0 = never. ``release``: stops writes and gives the Lease
    up; from any thread, within seconds. ``now`` returns the seconds of a monotonic clock.
    ``exit_process`` ends the process with an exit code, at once.
    """

    def __init__(
        self,
        report_seconds: float,
        exit_seconds: float,
        blocked_plugins: BlockedPlugins,
        *,
        exit_process: Callable[[int], object] = os._exit,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.current_call = CurrentCall()
        self.blocked_plugins = blocked_plugins
        self.release: Callable[[], None] = lambda: None
        self._report_seconds = report_seconds
        self._exit_seconds = exit_seconds
        self._exit_process = exit_process
        self._now = now
        self._look_seconds = min(_LOOK_SECONDS, report_seconds / 2 or _LOOK_SECONDS)
        self._last_beat = now(), time.thread_time()
        """When it was, and how much CPU time the loop's thread had used by then."""
        self._reports = False
        self._blocked_by: str | None = None
        """The plugin that blocks the loop, "" for none, from the report until the next beat."""
        self._logged: dict[tuple[str, str], float] = {}
        self._seen: tuple[object, object] = (None, None)
        """The beat and the call that the last look found."""
        self._looks = 0
        """The number of successive looks that have found these."""
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop watchdog", daemon=True)

    def __enter__(self) -> LoopWatchdog:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    # ---- on the loop ---------------------------------------------------------------------------

    async def run(self, metrics: SchedulerMetrics) -> None:
        """Set time stamps until cancelled; count how late they are, and the plugins to blame."""
        while True:
            due = self._now() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            self.beat(metrics, due)

    def report(self) -> None:
        """Report blocked loops from now on; at the start, the first lists block it."""
        self._last_beat = self._now(), time.thread_time()
        self._reports = self._report_seconds > 0

    def beat(self, metrics: SchedulerMetrics, due: float) -> None:
        """Set the time stamp; count the lag since ``due``, and the plugin that caused it."""
        now = self._now()
        blocked_by, self._blocked_by = self._blocked_by, None
        self._last_beat = now, time.thread_time()
        if self._reports:
            metrics.loop_lag_seconds.observe(max(now - due, 0.0))
        if blocked_by is not None:
            metrics.loop_blocked_total.labels(blocked_by).inc()

    @property
    def silent_seconds(self) -> float:
        """For how long the loop has not turned, to a tenth of a second; from any thread."""
        return self._now() - self._last_beat[0]

    # ---- in the thread -------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ended.wait(self._look_seconds):
            self.look()

    def look(self) -> None:
        """Report a blocked loop, and end the process if a plugin blocks it for too long."""
        call, beat = self.current_call.call, self._last_beat
        if self._seen != (beat, call):
            self._seen, self._looks = (beat, call), 0
        self._looks += 1
        late = self.silent_seconds > _BEAT_SECONDS + self._report_seconds
        if late and self._reports and self._blocked_by is None:
            self._report(call)
        # Looks are counted, not the clock: a process that was stopped (SIGSTOP, a machine that was
        # suspended) finds a plugin in a call that began minutes ago, and need not blame it.
        blocked = self._looks * self._look_seconds
        if call is not None and 0 < self._exit_seconds < blocked:
            self._end_process(call)

    def _report(self, call: PluginCall | None) -> None:
        self._blocked_by = call.plugin if call else ""
        key = (call.plugin, call.point) if call else ("", "")
        beat_at, cpu_at_beat = self._last_beat
        now = self._now()
        if now - self._logged.get(key, -_LOG_AGAIN_SECONDS) < _LOG_AGAIN_SECONDS:
            return
        self._logged[key] = now
        cpu_seconds = time.clock_gettime(time.pthread_getcpuclockid(self._loop_thread))
        blocked, cpu = f"{now - beat_at:.3f}s", f"{cpu_seconds - cpu_at_beat:.3f}s"
        place = self._place(call)
        if call is None:
            log.warning("The event loop is blocked", place=place, blocked=blocked, cpu=cpu)
            return
        log.error(
            "A plugin blocks the event loop",
            err="no pod is scheduled meanwhile; a plugin must neither wait nor compute for long",
            plugin=call.plugin,
            point=call.point,
            place=place,
            blocked=blocked,
            cpu=cpu,
        )

    def _end_process(self, call: PluginCall) -> None:
        place = self._place(call)
        noted = self.blocked_plugins.record(call)
        self.release()
        log.error(
            "A plugin blocks the event loop; the process ends",
            err=f"blocked for {self._exit_seconds:g}s (--plugin-blocked-exit-timeout)",
            plugin=call.plugin,
            point=call.point,
            place=place,
            notedIn=str(self.blocked_plugins.path) if noted else "",
        )
        self._exit_process(1)

    def _place(self, call: PluginCall | None) -> str:
        package = call.owner.__module__.partition(".")[0] if call and call.owner else ""
        return thread_location(
            self._loop_thread,
            lambda frame: str(frame.f_globals.get("__name__", "")).partition(".")[0] == package,
        )


class StuckCycle(Struct, frozen=True):
    """Whether scheduling is stuck, for /livez and the Lease; ``limit_seconds`` 0: never.

    There are two ways to be stuck. A cycle that awaits something for ever leaves the loop turning;
    one that computes for ever blocks it, as anything else on the loop might.
    """

    scheduler: Scheduler
    watchdog: LoopWatchdog
    limit_seconds: float

    def problem(self) -> str | None:
        """Return a text about the part that takes too long, or None; callable from any thread."""
        if not self.limit_seconds:
            return None
        if (seconds := self.scheduler.cycle_seconds) > self.limit_seconds:
            return f"a scheduling cycle has been running for {seconds:.0f} s"
        if (seconds := self.watchdog.silent_seconds) > self.limit_seconds:
            return f"the event loop has been blocked for {seconds:.0f} s"
        return None
