"""Small clusters for the tests of simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration, load
from proreus.engine.runtime.registry import Registry
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.object_files import resource_of
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.plugins import IN_TREE_PLUGINS
from proreus.workbench.simulation.results import ScenarioResult
from proreus.workbench.simulation.scenario import Scenario
from proreus.workbench.simulation.scenario_run import run_scenario
from proreus.workbench.simulation.simulated_cluster import Settings

JsonObject = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def node(name: str, cpu: str = "4", zone: str = "", **spec: Any) -> JsonObject:
    labels = {"kubernetes.io/hostname": name} | ({ZONE: zone} if zone else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }


def pod(
    name: str,
    cpu: str = "1",
    on: str = "",
    of: str = "",
    priority: int = 0,
    created: int = 0,
    **spec: Any,
) -> JsonObject:
    """``of``: kind/name of its controller. ``created``: minutes after an hour."""
    meta: JsonObject = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "labels": {"app": name.rpartition("-")[0] or name},
        "creationTimestamp": f"2026-01-01T00:{created:02}:00Z",
    }
    if of:
        kind, owner = of.split("/")
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}"}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}],
            "schedulerName": "default-scheduler",
            "priority": priority,
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def cluster(*objects: JsonObject) -> ClusterObjects:
    made = ClusterObjects()
    for obj in objects:
        resource = resource_of(obj)
        assert resource is not None, obj
        made.put(resource, decoder_for(resource.type).convert(obj))
    return made


def settings(config: JsonObject | None = None, seed: int = 0, *gates: str) -> Settings:
    registry, feature_gates = Registry(IN_TREE_PLUGINS), FeatureGates.from_list(gates)
    if config is None:
        loaded = default_configuration(registry, feature_gates)
    else:
        loaded = load(config, registry, feature_gates)
    return Settings(loaded, registry, feature_gates, seed)


def run(scenario: Scenario, **options: Any) -> ScenarioResult:
    return run_scenario(scenario, settings(**options))[0]


def nodes_of(result: ScenarioResult) -> dict[str, str]:
    return {one.pod.removeprefix("shop/"): one.node for one in result.placed}


def written(folder: Path, name: str, *objects: JsonObject) -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump_all(objects))
    return path


__all__ = ["NODES", "PODS", "ZONE", "cluster", "node", "nodes_of", "pod", "run", "settings"]
