"""Scheduler processes: proreus, and kube-scheduler alongside it or in its place.

Both read the same configuration file and serve the same endpoints, so the same tests run against
either: what passes with kube-scheduler and not with proreus is a fault of proreus.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Literal

import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from envtest.binaries import emulated_version
from proreus.workbench.bench.processes import Child, free_ports

Kind = Literal["proreus", "kube-scheduler"]

SHARED_PLUGINS = (
    "SchedulingGates",
    "PrioritySort",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "DefaultBinder",
)
"""Profiles of these plugins make the same decisions in both schedulers, with the same messages."""

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/proreus"
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "4s",
    "renewDeadline": "3s",
    "retryPeriod": "500ms",
    "resourceName": "proreus",
}
"""A leader election that is over in seconds, for its Lease."""


def profile(
    name: str,
    strategy: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated",
    plugins: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a profile that spreads or packs pods; ``plugins``: the only enabled ones, if given."""
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    fit = {"scoringStrategy": {"type": strategy, "resources": resources}}
    made: dict[str, Any] = {
        "schedulerName": name,
        "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}],
    }
    if plugins:
        enabled = [{"name": plugin} for plugin in plugins]
        made["plugins"] = {"multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}]}}
    return made


def configuration(
    profiles: Sequence[dict[str, Any]],
    kubeconfig: Path,
    leader_election: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration, without rate limit and by default without election."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False} | dict(leader_election or {}),
        "profiles": list(profiles),
    }


class SchedulerProcess(Child):
    """A scheduler process of a ``kind``; everything else is the same for both kinds.

    proreus emulates the version of the control plane, whatever its default is.
    """

    def __init__(
        self,
        kind: Kind,
        program: Path,
        config: dict[str, Any],
        folder: Path,
        name: str = "",
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.config = config
        [self.port] = free_ports(1)
        name = name or kind
        config_file = folder / f"{name}.yaml"
        config_file.write_text(yaml.safe_dump(config))
        kubeconfig = config["clientConnection"]["kubeconfig"]
        command = [
            *([program] if kind == "kube-scheduler" else [program, "-m", "proreus", "run"]),
            f"--config={config_file}",
            *([f"--kubeconfig={kubeconfig}"] if kind == "proreus" else ()),
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            *([f"--emulated-version={emulated_version()}"] if kind == "proreus" else ()),
            "-v=2",
            *flags,
        ]
        super().__init__(name, command, folder / f"{name}.log", environment)

    @property
    def exit_code_of_sigterm(self) -> int:
        """The exit code after SIGTERM: 0, or kube-scheduler's 1 without leader election."""
        elects = self.config["leaderElection"].get("leaderElect", True)
        return 1 if self.kind == "kube-scheduler" and not elects else 0

    def run(self) -> SchedulerProcess:
        """Start the process, wait until it is ready, and return it."""
        self.start()
        self.wait_for(60, "readyz", lambda: self.get("/readyz")[0] == 200)
        return self

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Return status and body of one of the scheduler's endpoints."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # the certificate is self-signed, so there is no authority to verify it against
        connection = HTTPSConnection(
            "127.0.0.1", self.port, timeout=10, context=ssl._create_unverified_context()
        )
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metrics(self, token: str) -> dict[str, Metric]:
        """Return the families of /metrics by name, parsed by prometheus-client."""
        status, text = self.get("/metrics", token)
        assert status == 200, f"/metrics of {self.name}: {status} {text}"
        return {family.name: family for family in text_string_to_metric_families(text)}

    def is_leader(self, token: str) -> bool:
        """Return whether its metrics say that it is the leader."""
        family = self.metrics(token).get("leader_election_master_status")
        return family is not None and any(sample.value == 1 for sample in family.samples)

    def finish(self) -> None:
        """Send SIGTERM, and assert the exit code and that there was no traceback."""
        code = self.terminate()
        expected = self.exit_code_of_sigterm
        assert code == expected, f"{self.name} ended with {code}, not {expected}\n{self.log_tail()}"
        assert "Traceback" not in self.log.read_text(), (
            f"a bug in {self.name}\n{self.log_tail(200)}"
        )


class RunScheduler:
    """Starts schedulers, of the kind under test or of another."""

    def __init__(self, binaries: Mapping[str, Path], under_test: Kind, folder: Path) -> None:
        self.started: list[SchedulerProcess] = []
        self._binaries = binaries
        self._under_test: Kind = under_test
        self._folder = folder

    def __call__(
        self,
        config: dict[str, Any],
        *,
        kind: Kind | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> SchedulerProcess:
        """Start a scheduler, by default of the kind under test; with ``ready`` wait for /readyz."""
        kind = kind or self._under_test
        # proreus is installed where the tests run from
        program = Path(sys.executable) if kind == "proreus" else self._binaries[kind]
        name = f"{kind}-{len(self.started)}"
        process = SchedulerProcess(kind, program, config, self._folder, name, flags, environment)
        self.started.append(process)
        if ready:
            process.run()
        else:
            process.start()
        return process

    def end(self) -> None:
        """Kill all that still run."""
        for process in self.started:
            process.kill()
