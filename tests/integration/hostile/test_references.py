"""Nothing refers to an object for long after it is gone: no tenant can fill the memory.

A cache that is refreshed when it is next used keeps what it has until then, which may be for ever.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pytest

from proreus.base.bounded_cache import AGE_INTERVAL_SECONDS
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.plugin_results import PluginResults
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.select_host import CachedTotals
from proreus.framework.verdicts import Verdicts
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.objects.kinds import BY_KIND, NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node

from .cluster import HostileCluster
from .objects import Objects, event_line
from .references import names_of_objects, referenced

Json = dict[str, Any]

_OBJECTS = 100
_SCALE = 0.01


@pytest.mark.parametrize("kind", list(BY_KIND))
async def test_no_hostile_object_that_is_gone_is_referenced(kind: str) -> None:
    logging.getLogger("proreus").setLevel(logging.CRITICAL)
    cluster = HostileCluster(nodes=10, attempt_seconds=0)
    recorder = DecisionRecorder.of(cluster.scheduler, cluster.clock)
    objects = Objects(kind, 1, _SCALE)
    prefix = f"{kind.lower()}-"
    for number in range(_OBJECTS):
        assert await cluster.watch(kind, [event_line("ADDED", objects.make(number))])
        if number % 10 == 0:
            await cluster.wait_of_another_pod(f"{prefix}plain")
    await cluster.schedule_all()
    # Some objects have an odd name, which an apiserver would refuse.
    assert len(of_prefix((cluster, recorder), prefix)) > _OBJECTS / 2

    cluster.remove_all_of(kind, prefix)
    for _ in range(3 * AGE_INTERVAL_SECONDS + 1):
        cluster.tick()
    await cluster.schedule_all()
    assert of_prefix((cluster, recorder), prefix) == set()


def of_prefix(root: object, prefix: str) -> set[str]:
    """Return the names that begin so, of the API objects that a root refers to."""
    return {name for name in names_of_objects(referenced(root)) if name.startswith(prefix)}


def recorded_cluster() -> tuple[OfflineCluster, DecisionRecorder]:
    """Return a cluster of 20 nodes, and what records its attempts."""
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    cluster = OfflineCluster(default_configuration(registry, gates), registry, gates)
    for number in range(20):
        cluster.api.put(NODES, make_node(f"n{number}", cpu="64"))
    recorder = DecisionRecorder.of(cluster.scheduler, cluster.clock)
    return cluster, recorder


def test_nothing_of_a_preemption_is_referenced_once_it_is_gone() -> None:
    cluster, recorder = recorded_cluster()
    many = {
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}},
        "weight": 1,
    }
    whole_node = {"name": "c", "resources": {"requests": {"cpu": "60"}}}

    async def run() -> None:
        for number in range(20):
            cluster.api.add(pod(f"gone-victim-{number}", priority=0, containers=[whole_node]))
        while (await cluster.schedule_next()) is not None:
            pass
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "gone-victim-1"}}}
        metadata = {"name": "gone-budget", "namespace": "default", "uid": "b"}
        cluster.api.add({"kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget})
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [many]}
        spec = {"priority": 10, "affinity": {"podAffinity": preferred}}
        cluster.api.add(pod("gone-preemptor", containers=[whole_node], **spec))
        for _ in range(4):
            await cluster.schedule_next()
        preemptor = cluster.api.store(PODS)["default/gone-preemptor"]
        assert "preempting 1 victims" in preemptor.status.conditions[0].message
        cluster.api.remove("PodDisruptionBudget", "default/gone-budget")
        for key in list(cluster.api.store(PODS)):
            cluster.api.remove("Pod", key)
        await cluster.settle()
        # By what is kept of dry runs.
        assert "gone-budget" in of_prefix((cluster, recorder), "gone")

    asyncio.run(run())
    assert len(recorder.records)
    cluster.advance(3 * AGE_INTERVAL_SECONDS + 1)
    names = names_of_objects(referenced((cluster, recorder)))
    assert "n0" in names
    assert {name for name in names if name.startswith("gone")} == set()


def test_records_refer_to_no_columns_of_equivalence_classes() -> None:
    cluster, recorder = recorded_cluster()

    async def run() -> None:
        for number in range(20):
            cluster.api.add(pod(f"p{number}", containers=[{"name": "c"}]))
        while (await cluster.schedule_next()) is not None:
            pass

    asyncio.run(run())
    assert all(record.results is not None for record in recorder.records)
    kept = referenced(list(recorder.records))
    assert not [one for one in kept if isinstance(one, CachedTotals | Verdicts | PluginResults)]
    arrays = [one for one in kept if isinstance(one, np.ndarray)]
    assert {one.dtype.itemsize for one in arrays} <= {1, 2}


def pod(name: str, **spec: Any) -> Json:
    """Return a pod with a label of its own."""
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}}
    spec = {"schedulerName": "default-scheduler", **spec}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}
