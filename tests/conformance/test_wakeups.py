"""No pod is left behind: one that waits for an event would be rejected again if it were tried.

Random scripts of all that is watched are played, and after each step every waiting pod is tried
without effect (``wakeups``). ``make wakeups`` plays as many as it is told to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from conformance.wakeups.play import play
from conformance.wakeups.run import script
from conformance.wakeups.worlds import CORE_WORLDS
from proreus.engine.queue.queueing_hints import QueueingHints

SEED, SCRIPTS = "ci", 12


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Odd objects would log a lot."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("world", CORE_WORLDS)
def test_no_pod_is_left_behind(world: str) -> None:
    check(world)


def check(world: str) -> None:
    """Play the scripts of a world; fails for a pod that is left behind."""
    for number in range(SCRIPTS):
        finding = play(script(world, SEED, number))
        replay = f"python -m conformance.wakeups.run {world} --seed {SEED} --scripts {number + 1}"
        assert finding is None, f"{finding}; to have it reduced: PYTHONPATH=tests {replay}"


def test_a_missed_event_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueingHints, "_run_hint", lambda *_: False)

    assert any(play(script("core", SEED, number)) for number in range(SCRIPTS))
