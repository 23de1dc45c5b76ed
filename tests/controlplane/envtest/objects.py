"""Builders of nodes, pods and workloads, as plain dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

ZONES = ("zone-a", "zone-b", "zone-c")

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/{}/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"


def node(
    index: int,
    *,
    cpu: str = "32",
    memory: str = "256Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (),
    unschedulable: bool = False,
) -> Json:
    """Return a ready node; zones alternate by index."""
    name = f"node-{index:05}"
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "200Gi"}
    spec: Json = {"taints": list(taints)} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
                **(labels or {}),
            },
        },
        "spec": spec,
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod_template(
    scheduler: str,
    *,
    cpu: str = "500m",
    memory: str = "512Mi",
    host_port: int | None = None,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Json:
    """Return metadata and spec of a pod with one container."""
    container: Json = {
        "name": "main",
        "image": "pause:3.10",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    if host_port:
        container["ports"] = [{"containerPort": host_port, "hostPort": host_port}]
    return {
        "metadata": {"labels": dict(labels or {})},
        "spec": {"schedulerName": scheduler, "containers": [container], **(spec or {})},
    }


def pod(name: str, scheduler: str, namespace: str = "default", **options: Any) -> Json:
    """Return a bare pod; ``options`` as for ``pod_template``."""
    template = pod_template(scheduler, **options)
    template["metadata"] |= {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **template}


def deployment(
    name: str, scheduler: str, replicas: int, namespace: str = "default", **options: Any
) -> Json:
    """Return a Deployment whose pods have the label app=<name>."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": pod_template(scheduler, labels=labels, **options),
        },
    }


def job(
    name: str, scheduler: str, completions: int, namespace: str = "default", **options: Any
) -> Json:
    """Return a Job that runs all of its pods in parallel."""
    template = pod_template(scheduler, **options)
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"completions": completions, "parallelism": completions, "template": template},
    }
