"""``proreus controller --colocation-period`` on a real apiserver, with the rights of its manifests.

metrics.k8s.io is served by definitions in place of an aggregated apiserver: what the controller
reads is the same.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from envtest import objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.controllers import CRDS, DEFINITIONS, ControllerProcess, apply
from envtest.kube_client import ApiFailure, KubeClient
from envtest.waiting import eventually

Json = dict[str, Any]

PODS = objects.PODS.format("default")
METRICS = "/apis/metrics.k8s.io/v1beta1"
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


def serve_metrics(client: KubeClient) -> None:
    """Let the apiserver serve metrics of nodes and pods."""
    for plural, kind, scope in (
        ("nodes", "NodeMetrics", "Cluster"),
        ("pods", "PodMetrics", "Namespaced"),
    ):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.metrics.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {
                "group": "metrics.k8s.io",
                "scope": scope,
                "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
                "versions": [{"name": "v1beta1", **served}],
            },
        }
        client.create(DEFINITIONS, definition)
    for path in (f"{METRICS}/nodes", f"{METRICS}/pods"):
        eventually(20, f"{path} served", partial(is_served, client, path))


def is_served(client: KubeClient, path: str) -> bool:
    return client.request("GET", path).status == 200


class Metrics:
    """Metrics of one node and of pods, each measured later than those before."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._at = time.time() - 60

    def measure(self, node: str, cpu: str, **pods: str) -> None:
        """Write what the node uses, and pods of the namespace ``default``."""
        self._at += 2
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._at))
        api = {"apiVersion": "metrics.k8s.io/v1beta1", "timestamp": stamp, "window": "15s"}
        usage = {"cpu": cpu, "memory": "1Gi"}
        for name, used in pods.items():
            containers = [{"name": "main", "usage": {"cpu": used, "memory": "64Mi"}}]
            one = {**api, "kind": "PodMetrics", "containers": containers}
            self._put(f"{METRICS}/namespaces/default/pods", name, one)
        self._put(f"{METRICS}/nodes", node, {**api, "kind": "NodeMetrics", "usage": usage})

    def _put(self, path: str, name: str, body: Json) -> None:
        body["metadata"] = {"name": name}
        if self._client.request("GET", f"{path}/{name}").status == 404:
            self._client.create(path, body)
        else:
            self._client.patch(f"{path}/{name}", body)


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
    metrics = Metrics(client)
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
