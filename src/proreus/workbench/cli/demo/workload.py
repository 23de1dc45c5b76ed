"""The demo's pods: small and large ones under two profiles, some that fit on no node, and some of
another scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from proreus.config.types import Plugins
from proreus.workbench.sandbox.store import Store

NAMESPACE = "demo"
SPREAD, PACKED = "spread-out", "bin-packing"
OURS = (SPREAD, PACKED)
OTHERS = "default-scheduler"

_APPS = (
    ("web", "100m", "128Mi"),
    ("api", "250m", "512Mi"),
    ("cache", "200m", "2Gi"),
    ("worker", "1", "1Gi"),
)


def configuration(kubeconfig: str, plugins: Plugins | None = None) -> dict[str, Any]:
    """Return ``scheduler.yaml`` with this kubeconfig; ``plugins`` are enabled in both profiles."""
    config: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("scheduler.yaml").read_text())
    config["clientConnection"]["kubeconfig"] = kubeconfig
    added = (plugins or Plugins()).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for profile in config["profiles"]:
        own, more = profile["plugins"].get("multiPoint", {}), added.get("multiPoint", {})
        enabled = [*own.get("enabled", ()), *more.get("enabled", ())]
        profile["plugins"] = {**added, "multiPoint": {**more, **own, "enabled": enabled}}
    return config


def write_configuration(path: Path, kubeconfig: str, plugins: Plugins | None = None) -> Path:
    """Write the configuration as YAML and return its path."""
    path.write_text(yaml.safe_dump(configuration(kubeconfig, plugins), sort_keys=False))
    return path


def create_pods(store: Store, count: int) -> None:
    """Create the namespace and ``count`` pods in it."""
    metadata = {"name": NAMESPACE}
    store.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    for pod in pods(count):
        store.create("pods", pod)


def pods(count: int) -> Iterator[dict[str, Any]]:
    """Yield pods: 4 % of another scheduler, 1 % that fit on no node, the rest half and half."""
    for number in range(count):
        app, cpu, memory = _APPS[number // 2 % len(_APPS)]
        scheduler, selector = OURS[number % 2], None
        if number % 25 == 7:
            app, scheduler = "not-ours", OTHERS
        elif number % 200 == 50:
            app, cpu = "too-large", "64"
        elif number % 200 == 151:
            app, selector = "wants-a-disk", {"disk": "nvme"}
        yield _pod(f"{app}-{number:04d}", app, scheduler, cpu, memory, selector)


def _pod(
    name: str, app: str, scheduler: str, cpu: str, memory: str, selector: dict[str, str] | None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "containers": [
            {
                "name": app,
                "image": f"registry.example/{app}:1",
                "resources": {"requests": {"cpu": cpu, "memory": memory}},
            }
        ],
    }
    if selector:
        spec["nodeSelector"] = selector
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": app}},
        "spec": spec,
    }
