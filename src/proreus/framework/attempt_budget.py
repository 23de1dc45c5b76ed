"""How long one attempt to schedule a pod may block the event loop.

Whoever may create pods decides how much there is to compute for them. While an attempt computes,
nothing else happens: no other pod is scheduled, no event handled, no binding sent. Loops whose
length a pod decides check the budget, and the attempt ends once it is used up.

Example (1 s): an attempt computes 0.4 s, waits 5 s for an extender and computes 0.7 s more. At its
next check it has used 1.1 s and ``BudgetExceeded`` ends it; the 5 s do not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, TypeVar

from proreus.errors import BudgetExceeded

T = TypeVar("T")

_NEVER = float("inf")

ROWS_BETWEEN_CHECKS = 64
"""How many per-node calls a loop makes between two checks of the budget."""

Stopwatch = Callable[[], float]
"""Seconds since any moment, never going back."""


class AttemptBudget:
    """The computing time of one attempt; time spent waiting does not count.

    ``seconds``: the whole budget. ``exceeded``: whether ``check`` has ended the attempt.
    """

    __slots__ = ("_deadline", "_left", "_since", "_stopwatch", "exceeded", "seconds", "used")

    def __init__(self, seconds: float, stopwatch: Stopwatch = perf_counter) -> None:
        self.seconds = seconds
        self.exceeded = False
        self.used = 0.0
        """Seconds that the attempt has computed, up to when it last waited or ended."""
        self._stopwatch = stopwatch
        self._left = seconds
        self._since = 0.0
        self._deadline = _NEVER

    def check(self, plugin: str, point: str) -> None:
        """Raise ``BudgetExceeded`` if the time is used up; the arguments name the caller."""
        # One comparison with a deadline: a subtraction and an addition a check would be measurable
        # in loops over nodes. While paused the deadline is never.
        now = self._stopwatch()
        if now > self._deadline:
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
        return _Measured(self, work)

    def resume(self) -> None:
        """Start counting."""
        self._since = now = self._stopwatch()
        self._deadline = now + self._left

    def pause(self) -> None:
        """Stop counting: the attempt waits."""
        seconds = self._stopwatch() - self._since
        self.used += seconds
        self._left -= seconds
        self._deadline = _NEVER


class _Measured(Awaitable[T]):
    """Drives a coroutine step by step and pauses the budget while it waits."""

    def __init__(self, budget: AttemptBudget, work: Coroutine[Any, Any, T]) -> None:
        self._budget = budget
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        budget, work = self._budget, self._work
        error: BaseException | None = None
        # A wall-clock timeout would charge the attempt for an extender's latency, and for other
        # tasks that the loop runs meanwhile. Driving the coroutine by hand shows each suspension.
        while True:
            budget.resume()
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                budget.pause()
            try:
                yield awaited
                error = None
            except BaseException as raised:
                # The result of the wait, a cancellation for instance, belongs to the coroutine: it
                # is thrown into it at the next step, with the budget counting again.
                error = raised
