"""Processes of ``proreus controller``, and the custom resources that it follows."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import yaml

from envtest.control_plane import ControlPlane
from envtest.kube_client import KubeClient
from envtest.waiting import eventually
from proreus.workbench.bench.processes import Child, free_ports

Json = dict[str, Any]

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
ELASTIC_QUOTAS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/elasticquotas"


def install(client: KubeClient, name: str) -> None:
    """Install one definition of deploy/crds unless it is there; wait until it is served."""
    definition = yaml.safe_load((CRDS / f"{name}.yaml").read_text())
    if client.request("GET", f"{DEFINITIONS}/{definition['metadata']['name']}").status == 404:
        client.create(DEFINITIONS, definition)
    spec = definition["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    eventually(20, f"{path} served", lambda: client.request("GET", path).status == 200)


def apply(plane: ControlPlane, binaries: dict[str, Path], flag: str, path: Path) -> None:
    """Apply a kustomization (-k) or a file (-f) as the cluster's admin."""
    command = [str(binaries["kubectl"]), f"--kubeconfig={plane.kubeconfig}", "apply", flag, path]
    applied = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert applied.returncode == 0, applied.stderr


class ControllerProcess(Child):
    """One controller process, which serves on 127.0.0.1."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        name: str = "controller",
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        [self.port] = free_ports(1)
        command = [
            *(sys.executable, "-m", "proreus", "controller"),
            f"--kubeconfig={kubeconfig}",
            f"--secure-port={self.port}",
            "--leader-elect-lease-duration=4",
            "--leader-elect-renew-deadline=3",
            "--leader-elect-retry-period=0.5",
            *("-v", "2"),
            *flags,
        ]
        super().__init__(name, command, folder / f"{name}.log", environment)

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Return status and body of one of the controller's pages."""
        context = ssl._create_unverified_context()
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=10, context=context)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()
