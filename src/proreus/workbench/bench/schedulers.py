"""The schedulers under test: processes with the same configuration, flags and token.

``bare`` is not a scheduler but an upper bound: it binds pods to nodes in turn and does nothing
else, so its rate is what the apiserver can bind at all.

To build a backlog, the bench holds the Lease while the scheduler, with warm caches, stands by.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from proreus.base.errors import ConfigError
from proreus.base.feature_gate_table import gates_of, gates_of_other_components
from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    KubernetesVersion,
)
from proreus.config.reading import read
from proreus.workbench.bench.api import Api
from proreus.workbench.bench.control_plane import find_programs
from proreus.workbench.bench.processes import Child, ChildFailed, free_ports, get

PROREUS, BARE = "proreus", "bare"

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = "proreus-bench"

_ELECTION = {
    "leaderElect": True,
    "resourceName": LEASE,
    "resourceNamespace": "kube-system",
    "leaseDuration": "15s",
    "renewDeadline": "10s",
    "retryPeriod": "1s",
}
_START_SECONDS = 120.0
_LEADER_SECONDS = 60.0
_LEADER_POLL_SECONDS = 0.01
_IDLE_CPU_SHARE = 0.05
"""A process that uses less than this share of a CPU counts as idle."""

_ERROR_LINE = re.compile(r"E\d{4} |panic:|Traceback ")
_IGNORED_ERROR_LINES = ("The manifest file is empty, ignoring",)
"""Lines that kube-scheduler logs as errors at every start."""


@dataclass(frozen=True)
class SchedulerUnderTest:
    """A scheduler: its name in the table, and its program (None for proreus)."""

    name: str
    program: Path | None = None


def schedulers_under_test(choice: str, bare: bool, assets: Path | None) -> list[SchedulerUnderTest]:
    """Return the schedulers of ``--scheduler``, and the bare client if asked to.

    ``choice``: ``proreus``, the path of a program, or ``both``, with kube-scheduler from ``assets``
    (``find_programs``). Raises ``ConfigError`` if there is no such program.
    """
    found = [SchedulerUnderTest(PROREUS)]
    if choice == "both":
        program = find_programs(["kube-scheduler"], assets)["kube-scheduler"]
        found.insert(0, SchedulerUnderTest("kube-scheduler", program))
    elif choice != PROREUS:
        path = Path(choice)
        if not path.is_file():
            raise ConfigError(
                f"--scheduler {choice}: must be proreus, both, or the path of a kube-scheduler "
                "binary"
            )
        found = [SchedulerUnderTest(path.name, path.resolve())]
    return [*found, SchedulerUnderTest(BARE)] if bare else found


def configuration(base: Path | None, kubeconfig: Path, *, elects: bool) -> dict[str, Any]:
    """Return the KubeSchedulerConfiguration: that of the workload, without a client rate limit.

    ``base``: the workload's file, None for the default. ``elects``: with leader election. Raises
    ``ConfigError`` if the file cannot be read.
    """
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    if base is not None:
        try:
            config = dict(read(base.read_bytes()).data)
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(f"schedulerConfigPath {base}: {error}") from error
    connection = {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000}
    return config | {
        "clientConnection": {**config.get("clientConnection", {}), **connection},
        "leaderElection": _ELECTION if elects else {"leaderElect": False},
    }


def settable_gates(
    gates: Mapping[str, bool], version: KubernetesVersion
) -> tuple[dict[str, bool], list[str]]:
    """Return the gates that can be set in a version, and a note on each that cannot.

    Those are the locked ones, and those of another version. Nothing is known about gates that are
    in no version that proreus can emulate: they are set.
    """
    version = nearest_supported(version)
    free: dict[str, bool] = {}
    notes = []
    for name, value in gates.items():
        gate = gates_of(version).get(name)
        setting = f"{name}={str(value).lower()}"
        if gate is not None and gate.lock_to_default and gate.default != value:
            notes.append(f"{setting} is not set: the gate is locked in {version}")
        elif not _is_gate_of(name, version) and any(
            _is_gate_of(name, other) for other in SUPPORTED_VERSIONS
        ):
            notes.append(f"{setting} is not set: {version} has no such gate")
        else:
            free[name] = value
    return free, notes


def _is_gate_of(name: str, version: KubernetesVersion) -> bool:
    return name in gates_of(version) or name in gates_of_other_components(version)


def nearest_supported(version: KubernetesVersion) -> KubernetesVersion:
    """Return the version, or the nearest one that proreus can emulate."""
    return min(max(version, SUPPORTED_VERSIONS[0]), DEFAULT_VERSION)


class SchedulerProcess(Child):
    """One scheduler, or the bare client, as a process. ``version`` is the one that proreus
    emulates.
    """

    def __init__(
        self,
        under_test: SchedulerUnderTest,
        config: dict[str, Any],
        gates: Mapping[str, bool],
        version: KubernetesVersion,
        folder: Path,
        name: str,
    ) -> None:
        self.under_test = under_test
        self.errors: list[str] = []
        """Errors in its log from before it was stopped."""
        [self._port] = free_ports(1)
        config_file = folder / f"{name}.yaml"
        config_file.write_text(yaml.safe_dump(config))
        kubeconfig = config["clientConnection"]["kubeconfig"]
        if under_test.name == BARE:
            command: list[str | Path] = [
                sys.executable,
                "-m",
                "proreus.workbench.bench.bare",
                kubeconfig,
            ]
            if config["leaderElection"]["leaderElect"]:
                command.append(f"{LEASES}/{LEASE}")
        else:
            run = [under_test.program or sys.executable]
            command = [
                *(run if under_test.program else [*run, "-m", "proreus", "run"]),
                f"--config={config_file}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
                "--bind-address=127.0.0.1",
                f"--secure-port={self._port}",
                "-v=0",
                *(() if under_test.program else (f"--emulated-version={version}",)),
            ]
            if gates:
                settings = ",".join(f"{gate}={str(on).lower()}" for gate, on in gates.items())
                command.append(f"--feature-gates={settings}")
        super().__init__(under_test.name, command, folder / f"{name}.log")

    @property
    def has_metrics(self) -> bool:
        """Whether the process serves /metrics."""
        return self.under_test.name != BARE

    async def run(self) -> None:
        """Start the process and wait until it is ready; raises ``ChildFailed``."""
        self.start()
        if self.has_metrics:
            await asyncio.to_thread(
                self.wait_for, _START_SECONDS, "readyz", lambda: self.get("/readyz") == "ok"
            )

    async def metrics(self) -> str:
        """Return the body of /metrics; empty for a process without it."""
        return await asyncio.to_thread(self.get, "/metrics") if self.has_metrics else ""

    def get(self, path: str) -> str:
        """Return the body of one of the process's endpoints; raises ``OSError``."""
        return get(f"https://127.0.0.1:{self._port}{path}")

    async def finish(self) -> None:
        """Stop the process, and set ``errors``; that it exited by itself is an error too."""
        if not self.running:
            self.errors = [*self._error_lines(), f"{self.name} ended by itself\n{self.log_tail(5)}"]
        else:
            self.errors = self._error_lines()
            try:
                await asyncio.to_thread(self.terminate, 15)
            except ChildFailed:
                self.kill()

    def _error_lines(self) -> list[str]:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [
            line
            for line in lines
            if _ERROR_LINE.match(line)
            and not any(remark in line for remark in _IGNORED_ERROR_LINES)
        ]


async def wait_until_idle(child: Child, timeout_seconds: float) -> None:
    """Wait until a process uses next to no CPU, at most ``timeout_seconds``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    before, at = child.cpu_seconds(), loop.time()
    while loop.time() < deadline:
        await asyncio.sleep(0.5)
        now = child.cpu_seconds()
        if now - before <= _IDLE_CPU_SHARE * (loop.time() - at):
            return
        before, at = now, loop.time()


async def hold_lease(api: Api) -> None:
    """Take the Lease, so that no scheduler can become the leader."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "bench",
        "leaseDurationSeconds": 3600,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 0,
    }
    await api.delete(f"{LEASES}/{LEASE}")
    await api.create(LEASES, {"metadata": {"name": LEASE}, "spec": spec})


async def release_lease(api: Api) -> None:
    """Give the Lease up, so that the standby scheduler becomes the leader."""
    await api.patch(f"{LEASES}/{LEASE}", {"spec": {"holderIdentity": ""}})


async def wait_for_leader(api: Api) -> None:
    """Wait until a scheduler holds the Lease; raises ``ChildFailed`` if none has taken it."""
    deadline = time.perf_counter() + _LEADER_SECONDS
    while not (await api.get(f"{LEASES}/{LEASE}"))["spec"].get("holderIdentity"):
        if time.perf_counter() > deadline:
            raise ChildFailed(f"no scheduler took the Lease within {_LEADER_SECONDS:.0f} s")
        await asyncio.sleep(_LEADER_POLL_SECONDS)
