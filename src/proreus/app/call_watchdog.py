"""Ends calls of out-of-tree plugins that block the event loop, and the process if that fails.

    0 s      a plugin's method is called                          (default limits)
    5 s      ``interrupt_seconds``: the thread sends a signal to the loop's thread, again and again;
             the handler raises in the plugin's code (``runtime/running_call``): the attempt fails
    20 s     and ``exit_seconds`` more: the plugin is recorded (``blocked_plugins``), writes are
             stopped, the Lease is released, and the process ends with 1

The last step is for what no signal ends: C code that computes, or a plugin that catches every
exception. C code that holds the interpreter lock stops this thread too: then two timers expire
that the thread puts off while it runs. One sends the signal, the other ends the process
(``stack_dump``).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any

from msgspec import Struct

from proreus import logs
from proreus.app.blocked_plugins import BlockedPlugins
from proreus.app.loop_watchdog import find_blocking_call
from proreus.runtime.running_call import PluginCall, RunningCall

log = logs.logger(__name__)

_SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGUSR1)
"""Nobody else's: proreus, Python and the libraries that we use leave real-time signals alone."""

_LOOK_SECONDS = 0.1
_LAST_WORDS_SECONDS = 8.0
_TERMINATION_SECONDS = 20.0
"""How long a plugin may block after SIGTERM, whatever the limits: as long as bindings may take."""


class CallLimits(Struct, frozen=True):
    """How long a call may block the loop, and how long it may after it was interrupted.

    0: for ever; without the first limit there is no second.
    """

    interrupt_seconds: float = 5.0
    exit_seconds: float = 15.0


class CallWatchdog:
    """Watches ``running_call``, within ``with``, which the loop's thread enters: the main thread.

    ``release``: stops writes and gives the Lease up; from any thread, within seconds.
    ``exit_process``: ends the process with an exit code, at once.
    """

    def __init__(
        self,
        limits: CallLimits,
        blocked_plugins: BlockedPlugins,
        *,
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        self.running_call = RunningCall()
        self.blocked_plugins = blocked_plugins
        self.release: Callable[[], None] = lambda: None
        self._limits = limits
        self._exit_process = exit_process
        self._loop_thread = 0
        self._started = 0.0
        """Start of the call that was seen last: it identifies the call."""
        self._seconds = 0.0
        """For how long that call has been seen."""
        self._terminating = False
        self._terminating_seconds = 0.0
        """For how long of that the process has been asked to end."""
        self._interrupting = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._handlers_before: dict[int, Any] = {}

    def __enter__(self) -> CallWatchdog:
        self._loop_thread = threading.get_ident()
        self._handlers_before = {
            number: signal.signal(number, self._on_signal) for number in (_SIGNAL, signal.SIGVTALRM)
        }
        self._put_timers_off()
        self._thread = threading.Thread(target=self._watch, name="call watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self.blocked_plugins.stack_dump.close()

    def termination_requested(self) -> None:
        """Note that the process is to end: in 20 s it does, even if a plugin still blocks then."""
        self._terminating = True

    # ---- in the loop's thread ------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.running_call.interrupt(self._limits.interrupt_seconds, frame)

    # ---- in the watchdog's thread --------------------------------------------------------------

    def _watch(self) -> None:
        looked_at = perf_counter()
        while not self._ended.wait(_LOOK_SECONDS):
            now = perf_counter()
            self._put_timers_off()
            self.look(now - looked_at)
            looked_at = now

    def _put_timers_off(self) -> None:
        """Let timers of the kernel's expire if this thread does not run again for long.

        They count CPU time, so that a process that was stopped meanwhile is not ended.
        """
        limits = self._limits
        if not limits.interrupt_seconds:
            return
        # C code may hold the interpreter lock and yet look for signals: regular expressions do.
        signal.setitimer(signal.ITIMER_VIRTUAL, limits.interrupt_seconds, _LOOK_SECONDS)
        if limits.exit_seconds and self.blocked_plugins.stack_dump.ready:
            last = limits.interrupt_seconds + limits.exit_seconds
            signal.setitimer(signal.ITIMER_PROF, last)

    def look(self, seconds: float) -> None:
        """Look at the call in progress; ``seconds``: since the last look."""
        call = self.running_call.current
        if call is None or call.started != self._started:
            self._started = 0.0 if call is None else call.started
            self._seconds = self._terminating_seconds = 0.0
            self._interrupting = False
            return
        # Looks are counted, not the clock: a process that was stopped (SIGSTOP, a machine that was
        # suspended) finds a plugin in a call that began minutes ago, and need not blame it.
        seconds = min(seconds, 2 * _LOOK_SECONDS)
        self._seconds += seconds
        if self._terminating:
            self._terminating_seconds += seconds
        limits = self._limits
        if self._terminating_seconds > _TERMINATION_SECONDS:
            self._end_process(call, terminating=True)
        elif limits.interrupt_seconds and self._seconds > limits.interrupt_seconds:
            self._interrupt(call)
            last = limits.interrupt_seconds + limits.exit_seconds
            if limits.exit_seconds and self._seconds > last:
                self._end_process(call, terminating=False)

    def _interrupt(self, call: PluginCall) -> None:
        # At every look: the plugin may have caught the last one, or may have been in our code.
        signal.pthread_kill(self._loop_thread, _SIGNAL)
        if not self._interrupting:
            self._interrupting = True
            blocked = f"{self._seconds:.3f}s"
            log.error(
                "A plugin's call is interrupted",
                err="it blocks the event loop",
                plugin=call.plugin,
                point=call.point,
                blocked=blocked,
            )

    def _end_process(self, call: PluginCall, *, terminating: bool) -> None:
        # What follows waits for disks and locks, which the plugin may hold.
        last_words = threading.Timer(_LAST_WORDS_SECONDS, self._exit_process, (1,))
        last_words.daemon = True
        last_words.start()
        place = self._place()
        recorded = not terminating and self.blocked_plugins.record(call.owner, call.point, place)
        self.release()
        why = "the process was asked to end" if terminating else "it cannot be interrupted"
        log.error(
            "A plugin blocks the event loop; the process ends",
            err=why,
            plugin=call.plugin,
            point=call.point,
            place=place,
            blocked=f"{self._seconds:.3f}s",
            recordedIn=str(self.blocked_plugins.path) if recorded else "",
        )
        self._exit_process(1)
        last_words.cancel()

    def _place(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "" if frame is None else find_blocking_call(frame).place
