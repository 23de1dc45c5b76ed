"""Nothing is lost, bound twice or over-committed, whatever fails: see ``fault_run``.

A minute here; ``make chaos`` runs ten.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from envtest.control_plane import ControlPlane
from envtest.progress import say
from envtest.schedulers import Kind, RunScheduler
from fault_run.instances import APISERVER_FLAGS
from fault_run.run import FaultRun

WELL_AGAIN_SECONDS = 5.0
"""From the last fault, once a leader is there, until all pods are bound that were waiting."""

LINES_EACH = 4
"""The number of lines that a pod or a fault may cause in the logs of both schedulers."""


@pytest.fixture
def plane(binaries: dict[str, Path], folder: Path) -> Iterator[ControlPlane]:
    made = ControlPlane(binaries, folder / "fault-run", flags=APISERVER_FLAGS)
    made.start()
    yield made
    made.stop()


def test_nothing_is_lost_whatever_fails(
    plane: ControlPlane,
    run_scheduler: RunScheduler,
    folder: Path,
    under_test: Kind,
    pytestconfig: pytest.Config,
) -> None:
    seconds = float(pytestconfig.getoption("--chaos-seconds"))
    seed = int(pytestconfig.getoption("--chaos-seed") or time.time())
    if logs := pytestconfig.getoption("--chaos-logs"):
        logs.mkdir(parents=True, exist_ok=True)
    run = FaultRun(
        plane, run_scheduler, folder, kind=under_test, seed=seed, seconds=seconds, logs=logs
    )
    figures = run.run()
    for line in figures.lines():
        say(line)
    assert not figures.violations
    assert not figures.bound_twice
    assert not figures.unfenced
    assert not figures.tracebacks
    assert figures.log_lines < LINES_EACH * (figures.pods + figures.faults.total())
    # a machine that is busy with other things decides how soon: ten minutes have to show it
    if seconds >= 300:
        assert statistics.median(figures.recovery_seconds) < WELL_AGAIN_SECONDS
