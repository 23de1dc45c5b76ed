"""How long one attempt to schedule a pod may block the event loop.

Whoever may create pods decides how much there is to compute for them. While an attempt computes,
nothing else happens: no other pod is scheduled, no event handled, no binding sent. Loops whose
length a pod decides check the budget, and the attempt ends once it is used up.

Example (1 s): an attempt computes 0.4 s, waits 5 s for an extender and computes 0.7 s more. At its
next check it has used 1.1 s and ``BudgetExceeded`` ends it; the 5 s do not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter, thread_time
from typing import Any, TypeVar

from proreus.base.errors import BudgetExceeded

T = TypeVar("T")

_NEVER = float("inf")

ROWS_BETWEEN_CHECKS = 64
"""How many per-node calls a loop makes between two checks of the budget."""

Stopwatch = Callable[[], float]
"""Seconds since any moment, never going back."""

_NOTE_INTERVAL_SECONDS = 0.01
_LEAST_SHARE = 0.02
"""An attempt with less CPU time than that did not compute: it was kept from it."""


class CpuTime:
    """The CPU time of the thread that calls this, noted now and then.

    A process that is stopped (SIGSTOP, a virtual machine that is paused or moved) or gets no CPU
    for seconds must not make the pod at hand pay for it.
    """

    __slots__ = ("_noted", "_noted_at", "_read")

    def __init__(self, read: Stopwatch = thread_time) -> None:
        self._read = read
        self._noted = read()
        self._noted_at = -_NEVER

    def note(self, now: float) -> None:
        """Note the CPU time, at most a hundred times a second; ``now``: on any steady clock."""
        # To read it is a system call, which at every attempt would be measurable.
        if now - self._noted_at > _NOTE_INTERVAL_SECONDS:
            self._noted_at = now
            self._noted = self._read()

    def did_not_compute(self, seconds: float) -> bool:
        """Return whether the thread hardly had CPU time for the last ``seconds``.

        Only for many times the interval of notes, and where one came just before them.
        """
        return self._read() - self._noted < _LEAST_SHARE * seconds


class AttemptBudget:
    """The computing time of one attempt; time spent waiting does not count.

    ``seconds``: the whole budget. ``exceeded``: whether ``check`` has ended the attempt.
    ``cpu_time``: tells computing from being kept from it; with None all time counts.
    """

    __slots__ = (
        "_cpu_time",
        "_deadline",
        "_left",
        "_since",
        "_stopwatch",
        "exceeded",
        "seconds",
        "used",
    )

    def __init__(
        self,
        seconds: float,
        stopwatch: Stopwatch = perf_counter,
        cpu_time: CpuTime | None = None,
    ) -> None:
        self.seconds = seconds
        self.exceeded = False
        self.used = 0.0
        """Seconds that the attempt has computed, up to when it last waited or ended."""
        self._stopwatch = stopwatch
        self._cpu_time = cpu_time
        self._left = seconds
        self._since = 0.0
        self._deadline = _NEVER

    def check(self, plugin: str, point: str) -> None:
        """Raise ``BudgetExceeded`` if the time is used up; the arguments name the caller."""
        # One comparison with a deadline: a subtraction and an addition a check would be measurable
        # in loops over nodes. While paused the deadline is never.
        now = self._stopwatch()
        if now > self._deadline:
            if self._kept_from_computing(now - self._since):
                self._since = now
                self._deadline = now + self._left
                return
            self.exceeded = True
            raise BudgetExceeded(plugin, point, self.used + now - self._since, self.seconds)

    def seconds_used(self) -> float:
        """Return the seconds that the attempt has computed; it stands still while it waits."""
        if self._deadline == _NEVER:
            return self.used
        return self.used + self._stopwatch() - self._since

    def allow(self, seconds: float) -> None:
        """Extend the budget by ``seconds``."""
        self.seconds += seconds
        self._left += seconds
        self._deadline += seconds

    def measure(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Await some of the attempt's work without counting the time that it waits."""
        return Steps(work, self.resume, self.pause)

    def resume(self) -> None:
        """Start counting."""
        self._since = now = self._stopwatch()
        self._deadline = now + self._left
        if self._cpu_time is not None:
            self._cpu_time.note(now)

    def pause(self) -> None:
        """Stop counting: the attempt waits."""
        seconds = self._stopwatch() - self._since
        if seconds > _NOTE_INTERVAL_SECONDS and self._kept_from_computing(seconds):
            seconds = 0.0
        self.used += seconds
        self._left -= seconds
        self._deadline = _NEVER

    def _kept_from_computing(self, seconds: float) -> bool:
        return self._cpu_time is not None and self._cpu_time.did_not_compute(seconds)


class Steps(Awaitable[T]):
    """Drives a coroutine step by step: ``begin`` is called before each step, ``end`` after it."""

    def __init__(
        self, work: Coroutine[Any, Any, T], begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._work, self._begin, self._end = work, begin, end

    def __await__(self) -> Generator[Any, Any, T]:
        work, begin, finish = self._work, self._begin, self._end
        error: BaseException | None = None
        # A wall-clock timeout would charge the attempt for an extender's latency, and for other
        # tasks that the loop runs meanwhile. Driving the coroutine by hand shows each suspension.
        while True:
            begin()
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                finish()
            try:
                yield awaited
                error = None
            except BaseException as raised:
                # The result of the wait, a cancellation for instance, belongs to the coroutine: it
                # is thrown into it at the next step.
                error = raised
