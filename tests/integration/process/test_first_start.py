"""The first start of a new user: what is printed is run, and the log has nothing to worry about."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

from proreus.workbench.sandbox import Sandbox
from proreus.workbench.sandbox.manifests import apply_file

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
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpus
        selectors:
        - cel: {expression: 'device.driver.startsWith("gpu")'}
"""


def is_starved(line: str) -> bool:
    """Return whether the loop stood still since other processes had the CPU."""
    blocked = re.search(r'"The event loop is blocked".* cpu="([\d.]+)s"', line)
    return blocked is not None and float(blocked[1]) < 0.25


async def test_the_log_of_a_first_start_has_no_warning_and_no_error(
    start: Any, sandbox: Sandbox, kubeconfig: str, live: Any, tmp_path: Path
) -> None:
    process = await start(
        *(f"--kubeconfig={kubeconfig}", f"--secure-port={live.port()}", "--bind-address=127.0.0.1"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )

    def node_of(name: str) -> Any:
        return sandbox.store.get("pods", name, "default").object()["spec"].get("nodeName")

    sandbox.store.create("pods", live.pod("plain"))
    await live.until(lambda: node_of("plain"))
    # The first devices of a cluster come while pods are scheduled.
    (tmp_path / "devices.yaml").write_text(DEVICES)
    apply_file(sandbox.store, tmp_path / "devices.yaml")
    pod = live.pod("with-gpu")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    sandbox.store.create("pods", pod)
    await live.until(lambda: node_of("with-gpu"))
    await asyncio.sleep(1)
    process.send_signal(signal.SIGTERM)
    code, err = await live.ended(process)
    assert code == 0
    lines = [line for line in err.splitlines() if not line.startswith("I")]
    assert [line for line in lines if not is_starved(line)] == []
