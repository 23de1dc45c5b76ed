"""The programs of Kubernetes on the embedded cluster: kube-scheduler, kubectl, their informers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from envtest.waiting import eventually

from proreus.workbench.bench.processes import Child

Json = dict[str, Any]

DEVICES = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpus}
spec:
  selectors:
  - cel: {expression: device.driver == "gpu.example.com"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: default}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpus}}]
"""


def pod(name: str, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default"}
    spec = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Reader:
    """Somebody with kubectl."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self._command = [str(kubectl), f"--kubeconfig={kubeconfig}"]

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *objects: Json) -> None:
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def node_of(self, name: str) -> str:
        return str(json.loads(self("get", "pod", name, "-o", "json"))["spec"].get("nodeName", ""))


@pytest.fixture
def kubeconfig(folder: Path) -> Iterator[Path]:
    """The kubeconfig of ``proreus sandbox``, in a process of its own."""
    path = folder / "sandbox.kubeconfig"
    program = [sys.executable, "-m", "proreus", "sandbox", "--nodes=3", f"--kubeconfig={path}"]
    sandbox = Child("sandbox", program, folder / "sandbox.log")
    sandbox.start()
    sandbox.wait_for(30, "kubeconfig", lambda: "schedule:" in sandbox.log.read_text())
    yield path
    sandbox.kill()


def test_kube_scheduler_and_kubectl_work_on_the_sandbox(
    binaries: dict[str, Path], kubeconfig: Path, folder: Path
) -> None:
    kubectl = Reader(binaries["kubectl"], kubeconfig)
    command = [binaries["kube-scheduler"], f"--kubeconfig={kubeconfig}", "--secure-port=0"]
    # By default it holds a Lease, speaks protobuf, and watches what a 1.37 apiserver serves.
    scheduler = Child("kube-scheduler", command, folder / "kube-scheduler.log")
    scheduler.start()
    kubectl("apply", "-f", "-", stdin=DEVICES)
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    kubectl.apply(pod("plain"), pod("too-large", "1000"), pod("with-gpu", resourceClaims=claims))
    eventually(60, "plain has a node", lambda: kubectl.node_of("plain"))
    eventually(60, "with-gpu is where its device is", lambda: kubectl.node_of("with-gpu"))
    assert kubectl.node_of("with-gpu") == "node-1"
    claim = json.loads(kubectl("get", "resourceclaim", "gpu", "-o", "json"))
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert claim["status"]["reservedFor"][0]["name"] == "with-gpu"
    eventually(30, "why", lambda: "Insufficient cpu" in kubectl("describe", "pod", "too-large"))
    assert kubectl("get", "lease", "-n", "kube-system", "kube-scheduler", "-o", "name")
    eventually(30, "Scheduled", lambda: "Scheduled" in kubectl("describe", "pod", "plain"))
    kubectl("delete", "pod", "plain")
    # Errors of client-go's informers are of this level too. One is logged at each start.
    log = scheduler.log.read_text().splitlines()
    scheduler.kill()
    errors = [line for line in log if line.startswith("E") and "manifest file is empty" not in line]
    assert errors == []
