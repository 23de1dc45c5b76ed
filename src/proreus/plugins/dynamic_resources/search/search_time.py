"""The time that searches for one pod's devices may keep other pods waiting.

A claim that a user may write can have more combinations of devices than can ever be tried. So a
search that takes long is cut short: the attempt ends with an error, and the pod's next attempt
goes on where this one stopped (``allocator.Checkpoint``).

Only what exceeds a moment for each search counts. With devices of their own on thousands of nodes
there is one search a node, and these are as many as the attempt's budget allows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from proreus.base.errors import BudgetExceeded, ProreusError
from proreus.framework.attempt_budget import AttemptBudget

_USUAL_SECONDS = 0.002
"""Seconds that a search may take without being counted."""
_SLICE_SECONDS = 0.05
"""Seconds that the searches of one attempt may take beyond that, together."""


class SearchSuspended(BudgetExceeded):
    """The search for devices goes on in the pod's next attempt."""

    def __init__(self, plugin: str, point: str, slices: int) -> None:
        self.plugin = plugin
        self.point = point
        ProreusError.__init__(
            self,
            f"the search for devices has taken {slices * _SLICE_SECONDS:.3g}s so far; it goes on "
            "in the next attempt",
        )


class SearchTime:
    """The time that the searches of one extension point may take for one pod.

    ``budget``: the attempt's, None for no limit. ``now``: a clock in seconds. ``timeout_seconds``:
    the limit for each search, ``filterTimeout``; None or 0 for no limit.
    """

    def __init__(
        self,
        budget: AttemptBudget | None,
        plugin: str,
        now: Callable[[], float],
        timeout_seconds: float | None,
    ) -> None:
        self._budget = budget
        self._plugin = plugin
        self._now = now
        self._timeout_seconds = timeout_seconds
        self._deadline = inf
        self._ends = 0.0
        self._left = _SLICE_SECONDS
        self._slices = 0

    def begin(self, slices: int) -> None:
        """Note that a search begins, or goes on after ``slices`` attempts."""
        if self._timeout_seconds:
            self._deadline = self._now() + self._timeout_seconds
        if self._budget is None:
            return
        self._slices = slices
        self._ends = self._budget.seconds_used() + _USUAL_SECONDS + self._left

    def end(self) -> None:
        """Note that the search has ended."""
        if self._budget is not None:
            self._left = min(self._left, self._ends - self._budget.seconds_used())

    def exceeded(self) -> bool:
        """Return whether ``filterTimeout`` is over; raises ``BudgetExceeded``."""
        budget = self._budget
        if budget is not None:
            if budget.seconds_used() > self._ends:
                # From now on the pod has used up what an attempt may take, and its waits grow.
                if (self._slices + 1) * _SLICE_SECONDS >= budget.seconds:
                    budget.exceeded = True
                raise SearchSuspended(self._plugin, "Filter", self._slices + 1)
            budget.check(self._plugin, "Filter")
        return self._deadline < inf and self._now() > self._deadline
