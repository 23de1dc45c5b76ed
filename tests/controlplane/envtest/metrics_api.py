"""metrics.k8s.io, served by definitions: no aggregated apiserver, but the same to who reads it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from envtest.controllers import DEFINITIONS
from envtest.kube_client import KubeClient
from envtest.waiting import eventually

Json = dict[str, Any]

METRICS = "/apis/metrics.k8s.io/v1beta1"


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


class UsageMetrics:
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
