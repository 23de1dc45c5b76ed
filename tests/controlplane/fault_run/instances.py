"""The schedulers of a fault run: each has a port of its own at the proxy; we start them again."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from envtest import pod_groups
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import RunScheduler, SchedulerProcess, configuration, profile

from fault_run.pod_kinds import ASKING_A_PLUGIN, SCHEDULER

Json = dict[str, Any]

LEASE = {
    "leaderElect": True,
    "leaseDuration": "8s",
    "renewDeadline": "6s",
    "retryPeriod": "500ms",
    "resourceName": "fault-run",
}
LEASE_SECONDS = 8.0

APISERVER_FLAGS = [*pod_groups.flags_of(), *pod_groups.APISERVER_FLAGS]
"""The flags of an apiserver that has all kinds of pods."""

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
"""Debian's package libfaketime."""

_SHARED_MEMORY = Path("/dev/shm")
_START_SECONDS = 120
"""On a machine that does other things as well, libfaketime makes a start several times as long."""


def scheduler_configuration(
    plane: ControlPlane, folder: Path, name: str, server: str, extender: Json, plugin: str
) -> Json:
    """Return the configuration of a scheduler that reaches the apiserver as ``server``."""
    kubeconfig = plane.write_kubeconfig(folder / f"{name}.kubeconfig", token=ADMIN_TOKEN)
    kubeconfig.write_text(kubeconfig.read_text().replace(plane.server, server))
    asking = profile(ASKING_A_PLUGIN)
    if plugin:
        asking["plugins"] = {"multiPoint": {"enabled": [{"name": plugin}]}}
    config = configuration([profile(SCHEDULER), asking], kubeconfig, LEASE)
    config["clientConnection"]["contentType"] = "application/json"
    config["extenders"] = [extender]
    # the longest wait of a pod that failed because of a fault
    config |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2}
    return config


class Instance:
    """One scheduler. ``supervise`` starts it again when it has ended, as a kubelet would."""

    def __init__(self, name: str, process: SchedulerProcess) -> None:
        self.name = name
        self.process = process
        self.suspended = False
        self.exits: Counter[int] = Counter()
        self._start_at: float | None = None

    def supervise(self, now: float) -> None:
        """Notice the end of the process, and start it again a moment later."""
        if self.process.running:
            return
        if self._start_at is None:
            remove_files_of_faketime()
            self.exits[self.process.wait(1)] += 1
            self.suspended = False
            self._start_at = now + 0.3
        elif now >= self._start_at:
            self._start_at = None
            self.process.start()

    @property
    def ready(self) -> bool:
        """Whether it runs and answers /readyz."""
        with contextlib.suppress(OSError):
            return self.process.running and self.process.get("/readyz")[0] == 200
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs; from any thread."""
        self.process.signal(number)

    def suspend(self) -> None:
        """Stop the process as SIGSTOP does."""
        self.suspended = True
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.suspended = False
        self.signal(signal.SIGCONT)

    def limit_log(self, full: bool) -> None:
        """Let writes to its log fail, as on a full disk, or succeed again."""
        size = self.process.log.stat().st_size if full else resource.RLIM_INFINITY
        with contextlib.suppress(ProcessLookupError, PermissionError):
            _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def faketime(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return a file that sets the clock of a process, and its environment; {} without libfaketime.

    Only the clock that can jump is changed, never the monotonic one.
    """
    offset = folder / "clock-offset"
    offset.write_text("+0s")
    if not FAKETIME.exists():
        return offset, {}
    return offset, {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",  # its name in older versions
        # times of files as they are: a start asks for thousands
        "NO_FAKE_STAT": "1",
    }


def remove_files_of_faketime() -> None:
    """Remove what libfaketime keeps in shared memory for processes that were killed.

    Each has a semaphore by its process id. One that was killed while it held it leaves it locked,
    and the next process with that id would wait for it for ever.
    """
    for file in _SHARED_MEMORY.glob("*faketime_s*_*"):
        number = file.name.rpartition("_")[2]
        if number.isdecimal() and not Path("/proc", number).exists():
            file.unlink(missing_ok=True)


def start_instances(
    run: RunScheduler,
    configs: dict[str, Json],
    flags: list[str],
    clock: dict[str, str],
    folder: Path,
) -> dict[str, Instance]:
    """Start them and wait until all are ready; the second one has the clock that can be moved.

    ``folder``: for Python's bytecode.
    """
    remove_files_of_faketime()
    # as in an image: otherwise each start compiles all modules again
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    made = {}
    for number, (name, config) in enumerate(configs.items()):
        environment = {**compiled, **(clock if number == 1 else {})}
        process = run(config, flags=flags, environment=environment, ready=False)
        made[name] = Instance(name, process)
    deadline = time.monotonic() + _START_SECONDS
    for each in made.values():
        while not each.ready:
            assert time.monotonic() < deadline, f"not ready\n{each.process.log_tail()}"
            time.sleep(0.2)
    return made
