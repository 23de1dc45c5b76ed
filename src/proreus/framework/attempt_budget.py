"""How long one attempt to schedule a pod may keep the event loop to itself.

Whoever may create pods chooses how much there is to compute for them. While an attempt computes,
nothing else happens: no other pod is decided, no event handled, no binding sent. Loops whose
length a pod decides look at the clock, and end the attempt once its time is used up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, TypeVar

from proreus.errors import BudgetExceeded

T = TypeVar("T")

_NEVER = float("inf")

ROWS_BETWEEN_LOOKS = 64
"""After so many nodes, asked one by one, a loop looks at the clock."""

Stopwatch = Callable[[], float]
"""Seconds since any moment, never going back."""


class AttemptBudget:
    """The time of one attempt: what it computes counts, what it waits for does not.

    ``seconds``: how much there is. ``exceeded``: whether ``check`` has ended the attempt.
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
        """Raise ``BudgetExceeded`` if the time is used up; the arguments say who is at work."""
        now = self._stopwatch()
        if now > self._deadline:
            self.exceeded = True
            raise BudgetExceeded(plugin, point, self.used + now - self._since, self.seconds)

    def allow(self, seconds: float) -> None:
        """Let the attempt compute for so much longer."""
        self.seconds += seconds
        self._left += seconds
        self._deadline += seconds

    def measure(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Do some of the attempt's work, without counting the time that it waits."""
        return _Measured(self, work)

    def resume(self) -> None:
        """Count from now on."""
        self._since = now = self._stopwatch()
        self._deadline = now + self._left

    def pause(self) -> None:
        """Count no more."""
        seconds = self._stopwatch() - self._since
        self.used += seconds
        self._left -= seconds
        self._deadline = _NEVER


class _Measured(Awaitable[T]):
    """Hands on what a coroutine waits for, and pauses its budget meanwhile."""

    def __init__(self, budget: AttemptBudget, work: Coroutine[Any, Any, T]) -> None:
        self._budget = budget
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        budget, work = self._budget, self._work
        error: BaseException | None = None
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
                error = raised
