"""``proreus controller --colocation-period`` on a real apiserver, with its manifests' rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from envtest import objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.controllers import CRDS, ControllerProcess, apply
from envtest.kube_client import ApiFailure, KubeClient
from envtest.metrics_api import UsageMetrics, serve_metrics
from envtest.waiting import eventually

Json = dict[str, Any]

PODS = objects.PODS.format("default")
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


def offline_pod(name: str, node: str) -> Json:
    pod = objects.pod(name, "offline")
    amounts = {BATCH[0]: "1000", BATCH[1]: "64Mi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    pod["spec"]["nodeName"] = node
    return pod


def test_numbers_follow_the_use_and_offline_pods_leave_when_it_grows(
    control_plane: ControlPlane, binaries: dict[str, Path], folder: Path
) -> None:
    client, deploy = control_plane.client, CRDS.parent
    apply(control_plane, binaries, "-k", deploy / "controller-colocation")
    apply(control_plane, binaries, "-f", deploy / "controller-rebalancing" / "evictions.yaml")
    serve_metrics(client)
    node = objects.node(7, cpu="10", memory="10Gi")
    name = node["metadata"]["name"]
    client.create(objects.NODES, node)
    client.create(PODS, offline_pod("batch", name))
    client.patch(f"{PODS}/batch/status", {"status": {"phase": "Running"}})
    metrics = UsageMetrics(client)
    metrics.measure(name, "4", batch="1")
    token = control_plane.service_account_token("proreus", "proreus-controller")
    kubeconfig = control_plane.write_kubeconfig(folder / "colocation.kubeconfig", token=token)
    flags = ["--leader-elect-resource-namespace=proreus", "--colocation-period=1", "--no-status"]
    process = ControllerProcess(kubeconfig, folder, "colocation", [*flags, "--evict-offline"])

    def batch_cpu() -> str:
        found: str = client.get(f"{objects.NODES}/{name}")["status"]["allocatable"].get(BATCH[0])
        return found

    def leaves() -> bool:
        pod = client.request("GET", f"{PODS}/batch")
        return pod.status == 404 or "deletionTimestamp" in client.get(f"{PODS}/batch")["metadata"]

    process.start()
    try:
        # 10 CPUs less a margin of 3, and 3 that others use.
        eventually(40, "numbers on the node", lambda: batch_cpu() == "4k")
        shown = client.get(f"{objects.NODES}/{name}")
        assert shown["status"]["capacity"][BATCH[0]] == "4k"
        assert shown["metadata"]["annotations"]["colocation.proreus.dev/measured-at"]
        metrics.measure(name, "9", batch="1")
        eventually(20, "nothing left", lambda: batch_cpu() == "0")
        assert not leaves()
        metrics.measure(name, "9", batch="1")
        eventually(20, "an eviction", leaves)
        text = process.get("/metrics", ADMIN_TOKEN)[1]
        assert 'code="403"' not in text
        assert 'colocation_nodes{state="measured"} 1' in text
        assert process.terminate(20) == 0
    finally:
        process.kill()
    own = KubeClient.from_kubeconfig(kubeconfig)
    with pytest.raises(ApiFailure) as refused:
        own.patch(f"{objects.NODES}/{name}", {})
    assert refused.value.status == 403
    own.close()
