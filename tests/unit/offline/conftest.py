"""Offline clusters of the default configuration."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **spec},
    }


class Kit:
    """Builders of offline clusters and their objects."""

    node = staticmethod(node)
    pod = staticmethod(pod)

    @staticmethod
    def cluster(*objects: dict[str, Any], **options: Any) -> OfflineCluster:
        gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
        config = default_configuration(registry, gates)
        cluster = OfflineCluster(config, registry, gates, OfflineOptions(**options))
        for obj in objects:
            cluster.api.add(obj)
        return cluster


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit
