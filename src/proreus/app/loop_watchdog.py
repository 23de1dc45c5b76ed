"""Detects a blocked event loop and names the plugin that blocks it.

Scheduling happens on one thread: a plugin that sleeps, computes for long or does network I/O
without ``await`` stops all scheduling. The loop sets a time stamp ten times a second; a watchdog
thread reads it and, if it is too old, inspects the stack of the loop's thread. The thread logs what
it finds, since a loop that is blocked for ever could not; the loop counts it. Logged as well is how
much of that time the loop's thread spent on a CPU. The rest it waited: for a file, for another
thread that holds the interpreter's lock, or for a CPU.

Many short calls keep the loop as well as a long one, and it turns in between. So the thread looks
at the stack even if the loop turns in time: a plugin that half of ten seconds' looks find, called
for events and not for the pod that is scheduled, is reported.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from math import ceil
from types import FrameType

from msgspec import Struct

from proreus import logs
from proreus.framework.plugin import Plugin
from proreus.metrics import SchedulerMetrics
from proreus.runtime import calls
from proreus.runtime.calls import POINT_OF_METHOD
from proreus.runtime.frames import local_variable
from proreus.runtime.out_of_tree import is_out_of_tree
from proreus.runtime.prioritize_nodes import run_pre_score
from proreus.runtime.scheduling_points import run_pre_filter
from proreus.scheduler.scheduler import Scheduler

log = logs.logger(__name__)

_BEAT_SECONDS = 0.1
_LOG_AGAIN_SECONDS = 60.0
_BUSY_SECONDS = 10.0
_BUSY_SHARE = 0.5
_POINTS_OF_ATTEMPTS = frozenset(POINT_OF_METHOD.values()) - {"PreEnqueue", "QueueSort"}
"""Where a plugin may be most of the time: pods are scheduled then."""
_CALL_SITES = frozenset(
    function.__code__
    for function in (
        calls.call_plugin,
        calls.call_plugin_for_pods,
        calls.call_plugin_for_nodes,
        calls.await_plugin,
        run_pre_filter,
        run_pre_score,
    )
)
"""Every call of an extension point goes through one of these; their local variables name it."""


class BlockingCall(Struct, frozen=True):
    """What blocks the loop: ``plugin`` and ``point`` are "" if no plugin is running."""

    plugin: str
    point: str
    place: str


def find_blocking_call(innermost: FrameType) -> BlockingCall:
    """Return the plugin that is running on a stack, and the innermost line of its code."""
    frames = list(_outwards(innermost))
    for index, frame in enumerate(frames):
        if frame.f_code in _CALL_SITES:
            plugin, point = local_variable(frame, "plugin"), local_variable(frame, "point")
            if isinstance(plugin, Plugin):
                return BlockingCall(plugin.name, str(point), _place(frames[:index], type(plugin)))
        plugin = local_variable(frame, "self")
        if isinstance(plugin, Plugin) and not _called_further_out(frames[index:]):
            method = frame.f_code.co_name
            point = POINT_OF_METHOD.get(method, method)
            return BlockingCall(plugin.name, point, _place(frames[: index + 1], type(plugin)))
    return BlockingCall("", "", f"{innermost.f_code.co_filename}:{innermost.f_lineno}")


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _called_further_out(frames: list[FrameType]) -> bool:
    """Return whether an outer frame is a call site, perhaps of another plugin."""
    return any(frame.f_code in _CALL_SITES for frame in frames)


def _place(frames: list[FrameType], plugin: type[Plugin]) -> str:
    """Return the innermost line in a plugin's own package, else the innermost of all."""
    package = plugin.__module__.partition(".")[0]
    if not is_out_of_tree(plugin):
        package = plugin.__module__
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        if module == package or module.startswith(f"{package}."):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else ""


class LoopWatchdog:
    """Watches the loop that ``run`` runs in. Create it on the loop's thread.

    ``now`` returns the seconds of a monotonic clock.
    ``silent_seconds`` is valid while it runs; blocking calls are reported from ``watch`` on.
    """

    def __init__(
        self,
        threshold_seconds: float,
        metrics: SchedulerMetrics,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._threshold = threshold_seconds
        self._metrics = metrics
        self._now = now
        self._last_beat = now(), time.thread_time()
        """When it was, and how much CPU time the loop's thread had used by then."""
        self._seen: BlockingCall | None = None
        """The current blocking call, from its detection until the loop turns again."""
        self._logged: dict[BlockingCall, float] = {}
        self._looks: deque[tuple[str, str]] = deque(
            maxlen=ceil(_BUSY_SECONDS / (threshold_seconds / 2)) if threshold_seconds else 1
        )
        """Which plugin was found at which point by the last looks; "" for none."""
        self._keeps_busy = ""
        """The plugin that was found to keep the loop busy, until the loop has counted it."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop_thread = threading.get_ident()

    async def run(self) -> None:
        """Set time stamps until cancelled."""
        self.beat()
        try:
            while True:
                # Before ``watch``, the first lists block the loop; that lag is not counted.
                due = self._now() + _BEAT_SECONDS
                await asyncio.sleep(_BEAT_SECONDS)
                self.beat(due if self._thread is not None else None)
        finally:
            self._ended.set()
            if self._thread is not None:
                self._thread.join()

    def watch(self) -> None:
        """Report blocking calls from now on; to be called on the loop."""
        self.beat()
        self._thread = threading.Thread(target=self._watch, name="loop watchdog", daemon=True)
        self._thread.start()

    @property
    def silent_seconds(self) -> float:
        """For how long the loop has not turned, to a tenth of a second; from any thread."""
        return self._now() - self._last_beat[0]

    def beat(self, due: float | None = None) -> None:
        """Set the time stamp; count the lag since ``due``, and the blocking call that caused it."""
        now = self._now()
        blocking_call, self._seen = self._seen, None
        self._last_beat = now, time.thread_time()
        if due is not None:
            self._metrics.loop_lag_seconds.observe(max(now - due, 0.0))
        if blocking_call is not None:
            self._metrics.loop_blocked_total.labels(blocking_call.plugin).inc()
        if self._keeps_busy:
            self._metrics.loop_blocked_total.labels(self._keeps_busy).inc()
            self._keeps_busy = ""

    def _watch(self) -> None:
        while not self._ended.wait(self._threshold / 2):
            self._look_at_thread()

    def _look_at_thread(self) -> None:
        # A function of its own, so that no local variable holds the frame until the loop blocks
        # again: it, and its callers, keep everything alive that was local to them.
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return
        self.look(frame)
        if self.late:
            self.check(frame)

    def look(self, frame: FrameType) -> None:
        """Note what the loop is at; report a plugin that keeps it busy with many short calls."""
        call = find_blocking_call(frame)
        outside = call.point not in _POINTS_OF_ATTEMPTS
        self._looks.append((call.plugin, call.point) if outside else ("", ""))
        (plugin, point), found = Counter(self._looks).most_common(1)[0]
        if len(self._looks) < (self._looks.maxlen or 0) or not plugin:
            return
        if found < _BUSY_SHARE * len(self._looks):
            return
        share = f"{100 * found // len(self._looks)}%"
        self._looks.clear()
        self._keeps_busy = plugin
        busy = BlockingCall(plugin, point, "")
        now = self._now()
        if now - self._logged.get(busy, -_LOG_AGAIN_SECONDS) < _LOG_AGAIN_SECONDS:
            return
        self._logged[busy] = now
        log.error(
            "A plugin keeps the event loop busy",
            err="its calls are short, and so many that little else is done",
            plugin=plugin,
            point=point,
            share=share,
            place=call.place,
        )

    @property
    def late(self) -> bool:
        """Whether the loop has not turned for too long."""
        return self.silent_seconds > _BEAT_SECONDS + self._threshold

    def check(self, frame: FrameType) -> None:
        """Report the call that blocks the loop, once each time that it is blocked."""
        # One report for each time that the loop is blocked, not one a look.
        if self._seen is not None:
            return
        beat_at, cpu_at_beat = self._last_beat
        blocking_call = self._seen = find_blocking_call(frame)
        now = self._now()
        if now - self._logged.get(blocking_call, -_LOG_AGAIN_SECONDS) < _LOG_AGAIN_SECONDS:
            return
        self._logged[blocking_call] = now
        blocked, cpu = f"{now - beat_at:.3f}s", f"{self._cpu_seconds() - cpu_at_beat:.3f}s"
        if blocking_call.plugin:
            log.error(
                "A plugin blocks the event loop",
                err="nothing else is done while it works; it must not wait, nor compute for long",
                plugin=blocking_call.plugin,
                point=blocking_call.point,
                place=blocking_call.place,
                blocked=blocked,
                cpu=cpu,
            )
        else:
            place = blocking_call.place
            log.warning("The event loop is blocked", place=place, blocked=blocked, cpu=cpu)

    def _cpu_seconds(self) -> float:
        """Return the CPU time of the loop's thread; from any thread, while that one lives."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._loop_thread))


class StuckCycle(Struct, frozen=True):
    """Whether scheduling is stuck, for /livez and the Lease; ``limit_seconds`` 0: never.

    There are two ways to be stuck. A cycle that awaits something for ever leaves the loop turning;
    one that computes for ever blocks it, as anything else on the loop might.
    """

    scheduler: Scheduler
    watchdog: LoopWatchdog
    limit_seconds: float

    def problem(self) -> str | None:
        """Return what takes too long, None if nothing does; from any thread."""
        if not self.limit_seconds:
            return None
        if (seconds := self.scheduler.cycle_seconds) > self.limit_seconds:
            return f"a scheduling cycle has been going on for {seconds:.0f} s"
        if (seconds := self.watchdog.silent_seconds) > self.limit_seconds:
            return f"the event loop has not turned for {seconds:.0f} s"
        return None
