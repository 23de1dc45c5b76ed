"""Child processes of a run."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from proreus.workbench.bench.processes import Child


def test_signal_reaches_a_running_process_and_not_one_that_has_exited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(
        "sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log"
    )
    child.start()
    child.signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM

    def kill(*_: object) -> None:
        pytest.fail("its number may be another process' by now")

    monkeypatch.setattr(os, "kill", kill)
    child.signal(signal.SIGKILL)
