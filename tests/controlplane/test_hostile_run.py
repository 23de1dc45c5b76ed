"""Hostile objects of every kind affect no plain pod: see ``hostile_run``.

Some hundred objects here; ``make hostile-real`` creates thousands among 5,000 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from envtest.control_plane import ControlPlane
from envtest.progress import say
from envtest.schedulers import RunScheduler
from hostile.allocator import allocator_environment
from hostile_run.figures import (
    MAX_ADDED_SECONDS,
    MAX_CYCLE_SECONDS,
    MAX_GROWTH,
    MAX_LAG_SECONDS,
)
from hostile_run.run import APISERVER_FLAGS, HostileRun

FULL = 100
"""From how many objects of a kind on times and memory are judged: the machine is quiet then."""


@pytest.fixture
def plane(binaries: dict[str, Path], folder: Path) -> Iterator[ControlPlane]:
    made = ControlPlane(binaries, folder / "hostile-run", audit=False, flags=APISERVER_FLAGS)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_hostile_objects_affect_no_plain_pod(
    plane: ControlPlane, run_scheduler: RunScheduler, pytestconfig: pytest.Config
) -> None:
    count = int(pytestconfig.getoption("--hostile-objects"))
    nodes = int(pytestconfig.getoption("--hostile-nodes"))
    seed = int(pytestconfig.getoption("--hostile-seed"))
    if logs := pytestconfig.getoption("--hostile-logs"):
        logs.mkdir(parents=True, exist_ok=True)
    full = count >= FULL
    settle = {} if full else {"settle_seconds": 0.0}
    run = HostileRun(plane, run_scheduler, count=count, nodes=nodes, seed=seed, logs=logs, **settle)
    figures = run.run()
    for line in figures.lines():
        say(line)
    assert not figures.lost
    assert not figures.left
    assert figures.transitions == 0
    assert figures.tracebacks == 0
    assert figures.handler_failures == 0
    few = {k for k, stored in figures.stored.items() if stored < figures.refused.get(k, 0)}
    assert not few, "most of these were refused"
    if full:
        assert figures.longest_cycle <= MAX_CYCLE_SECONDS
        assert figures.longest_lag <= MAX_LAG_SECONDS
        assert figures.added_seconds <= MAX_ADDED_SECONDS
        assert not allocator_environment() or figures.growth <= MAX_GROWTH
