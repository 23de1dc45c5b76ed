"""Nodes and pods for an offline cluster, as the API has them."""

from __future__ import annotations

from typing import Any


def node(name: str, cpu: str = "4", taints: Any = (), **labels: str) -> Any:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name: str, cpu: str = "100m", labels: Any = None, **spec: Any) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}, **spec.pop("c", {})}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels or {}},
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **spec},
    }
