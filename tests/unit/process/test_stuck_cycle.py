"""When scheduling counts as stuck."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proreus.process.loop_watchdog import StuckCycle


def stuck(cycle: float = 0.0, silent: float = 0.0, limit: float = 60.0) -> StuckCycle:
    scheduler: Any = SimpleNamespace(cycle_seconds=cycle)
    watchdog: Any = SimpleNamespace(silent_seconds=silent)
    return StuckCycle(scheduler, watchdog, limit)


@pytest.mark.parametrize(
    ("cycle", "silent", "problem"),
    [
        (0, 0.1, None),
        (20, 20, None),  # a search that takes long, and blocks the loop meanwhile
        (60, 60, None),
        (61, 0.1, "a scheduling cycle has been running for 61 s"),  # it awaits what never comes
        (61, 61, "a scheduling cycle has been running for 61 s"),
        (0, 61, "the event loop has been blocked for 61 s"),
    ],
)
def test_a_stuck_cycle_is_a_problem(cycle, silent, problem) -> None:
    assert stuck(cycle, silent).problem() == problem


def test_nothing_takes_too_long_without_a_limit() -> None:
    assert stuck(1e6, 1e6, 0).problem() is None
