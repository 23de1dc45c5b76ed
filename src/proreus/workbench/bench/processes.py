"""Child processes that never outlive the run, and the CPU and memory that they use.

Each child leads its own process group, so that killing it kills its descendants. Children that
still run when the run exits are killed; if the run itself is killed by SIGKILL, the kernel kills
them (``setpriv --pdeathsig``).

Linux only: CPU and memory are read from /proc, and setpriv is of util-linux.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from proreus.base.errors import ProreusError

T = TypeVar("T")

CLOCK_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

_alive: set[Child] = set()


class ChildFailed(ProreusError):
    """A process exited unexpectedly, or did not get ready or exit in time."""


class Child:
    """One process with its log file. Start it from the main thread only.

    The kernel sends the parent-death signal when the thread ends that started the process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; its output is appended to the log."""
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
                start_new_session=True,
            )
        _alive.add(self)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has been started and has not exited."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, without its descendants; do nothing if it has exited."""
        assert self._process is not None, f"{self.name} was not started"
        self._process.send_signal(number)

    def wait(self, timeout_seconds: float = 30) -> int:
        """Wait for the process to exit, and return its exit code; raises ``ChildFailed``."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ChildFailed(
                f"{self.name} still runs after {timeout_seconds} s\n{self.log_tail()}"
            ) from None
        self._forget()
        return code

    def terminate(self, timeout_seconds: float = 30) -> int:
        """Send SIGTERM, and return the exit code; raises ``ChildFailed`` after the timeout."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_seconds)

    def kill(self) -> None:
        """Kill the process and its descendants, which may have outlived it."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._forget()

    def _forget(self) -> None:
        _alive.discard(self)

    def log_tail(self, lines: int = 60) -> str:
        """Return the last lines of the log, under a heading."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"--- log of {self.name} ---", *text.splitlines()[-lines:]])

    def wait_for(self, seconds: float, what: str, probe: Callable[[], T]) -> T:
        """Call ``probe`` until it returns a true value, and return that; retries on ``OSError``.

        Raises ``ChildFailed`` when the process exits, or after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        trouble = ""
        while time.monotonic() < deadline:
            if not self.running:
                raise ChildFailed(f"{self.name} ended before {what}\n{self.log_tail()}")
            try:
                if value := probe():
                    return value
            except OSError as error:
                trouble = f" (last trouble: {error})"
            time.sleep(0.05)
        raise ChildFailed(f"{self.name}: no {what} in {seconds} s{trouble}\n{self.log_tail()}")

    def cpu_seconds(self) -> float:
        """Return the user and system time used so far, in seconds, by all threads."""
        # the second field, the name in parentheses, may contain spaces
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_A_SECOND

    def rss_bytes(self) -> int:
        """Return the resident memory, in bytes."""
        return self._status_bytes("VmRSS")

    def peak_rss_bytes(self) -> int:
        """Return the peak resident memory, in bytes."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, field: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise ChildFailed(f"{self.name} has no memory any more")


def machine_cpu_seconds() -> float:
    """Return the busy time of all CPUs since boot, in seconds, for all processes."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / CLOCK_TICKS_A_SECOND


def free_ports(count: int) -> list[int]:
    """Return free TCP ports of 127.0.0.1."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def get(url: str, certificate: Path | None = None, token: str = "") -> str:
    """Return the body of an HTTPS endpoint on loopback; raises ``OSError``, for error statuses too.

    ``certificate``: the server's own; None accepts any, as those that a server makes for itself.
    """
    context = ssl.create_default_context(cafile=certificate)
    if certificate is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(request, timeout=20) as response:
        return str(response.read().decode())


@atexit.register
def end_all() -> None:
    """Kill every child that still runs."""
    for child in list(_alive):
        child.kill()
