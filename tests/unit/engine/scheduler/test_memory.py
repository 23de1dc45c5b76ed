"""What was derived from pods is given back once the pods are gone."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from proreus.base import bounded_cache
from proreus.base.bounded_cache import AGE_INTERVAL_SECONDS, BoundedCache, age_caches
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.framework.count_columns import CountColumns
from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.pod import Pod
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS

Json = dict[str, Any]
KEYS = 3000
PODS = 30
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


@pytest.fixture
def cluster() -> OfflineCluster:
    gc.collect()
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    made = OfflineCluster(load(document, registry, gates), registry, gates)
    for number in range(20):
        made.api.add(node(number))
    return made


def node(number: int) -> Json:
    labels = {HOST: f"n{number}", ZONE: f"z{number % 3}"}
    if number == 0:
        labels |= {f"example.com/key-{key}": "1" for key in range(KEYS)}
    capacity = {"cpu": "64", "memory": "64Gi", "pods": "1000"}
    return {
        "kind": "Node",
        "metadata": {"name": f"n{number}", "uid": f"n{number}", "labels": labels},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def pod(name: str, **spec: Any) -> Json:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}], **spec},
    }


def pod_with_everything_of_its_own(number: int) -> Json:
    """Return a pod of which no part is equal to that of another."""
    terms = [
        {
            "topologyKey": HOST,
            "labelSelector": {
                "matchExpressions": [
                    {"key": f"k{number}-{term}", "operator": "In", "values": [f"{v}" for v in "ab"]}
                ]
            },
        }
        for term in range(5)
    ]
    expression = {"key": ZONE, "operator": "NotIn", "values": [f"x{number}"]}
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": term} for term in terms
            ]
        },
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        },
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": f"pod-{number}"}},
    }
    container = {
        "name": "c",
        "image": f"image-{number}",
        "resources": {"requests": {"cpu": f"{number + 1}m"}},
    }
    return pod(
        f"pod-{number}",
        affinity=affinity,
        topologySpreadConstraints=[spread],
        containers=[container],
        tolerations=[{"key": f"t{number}", "operator": "Exists"}],
    )


def pod_with_many_label_keys() -> Json:
    preferred = [
        {
            "weight": 1,
            "preference": {
                "matchExpressions": [{"key": f"example.com/key-{key}", "operator": "Exists"}]
            },
        }
        for key in range(KEYS)
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return pod("many-keys", affinity=affinity)


def kept() -> dict[str, int]:
    """Return the number of entries of all caches in this process, by type."""
    found: dict[str, int] = {}
    for referenced in [one for share in bounded_cache._registered for one in share.values()]:
        cache = referenced()
        if isinstance(cache, BoundedCache | CountColumns) and len(cache):
            name = type(cache).__name__
            found[name] = found.get(name, 0) + len(cache)
    return found


def test_nothing_is_kept_of_pods_that_are_gone(cluster: OfflineCluster) -> None:
    async def run() -> None:
        cluster.api.add(pod_with_many_label_keys())
        for number in range(PODS):
            cluster.api.add(pod_with_everything_of_its_own(number))
        while (scheduled := await cluster.schedule_next()) is not None:
            assert scheduled[1], scheduled
        # A cache for each thing that was said, and an entry for each pod in it.
        assert kept()["BoundedCache"] > 8 * PODS

        for name in ("many-keys", *(f"pod-{number}" for number in range(PODS))):
            cluster.api.remove("Pod", f"default/{name}")
        await cluster.settle()

    age_caches()
    age_caches()
    asyncio.run(run())

    # By the scheduler's own clock, and no other call.
    cluster.advance(2 * AGE_INTERVAL_SECONDS + 1)

    assert kept() == {}
    cluster.scheduler.cache.table.validate()


def test_updates_of_nodes_do_not_pay_for_keys_that_pods_asked_for(cluster: OfflineCluster) -> None:
    columns = cluster.scheduler.cache.table._labels

    async def run() -> None:
        cluster.api.add(pod_with_many_label_keys())
        await cluster.schedule_next()
        assert len(columns._columns) > 1000
        cluster.api.remove("Pod", "default/many-keys")
        await cluster.settle()

    asyncio.run(run())
    cluster.advance(2 * AGE_INTERVAL_SECONDS + 1)
    assert not len(columns._columns)


def test_labels_keep_their_codes_for_those_who_hold_their_values(cluster: OfflineCluster) -> None:
    table = cluster.scheduler.cache.table
    table.label(ZONE)
    values = table.label_values(ZONE)
    before = table.label(ZONE).tolist()
    age_caches()
    age_caches()
    # Another order of rows would give other codes.
    table.label_values(HOST)
    assert table.label_values(ZONE) is values
    assert table.label(ZONE).tolist() == before


def test_many_label_keys_of_nodes_do_not_make_each_update_a_pass_over_all(
    cluster: OfflineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = cluster.scheduler.cache.table._labels
    passes = 0
    forget = type(labels).forget_unused_keys

    def counting(*args: Any) -> None:
        nonlocal passes
        passes += 1
        forget(*args)

    monkeypatch.setattr(type(labels), "forget_unused_keys", counting)
    for number in range(100):
        changed = node(1)
        changed["metadata"]["labels"]["version"] = str(number)
        cluster.api.add(changed)
    assert passes <= 1


def test_shared_requests_do_not_keep_the_pod() -> None:
    requests = {"cpu": "1", "memory": "1Gi"}
    decoded = pod("p", containers=[{"name": "c", "resources": {"requests": requests}}])
    decoded["metadata"]["annotations"] = {"huge": "x" * 100_000}

    info = PodInfo(decoder_for(Pod).convert(decoded))
    assert info.requests.pod is not info.pod
    assert not info.requests.pod.metadata.annotations
    assert info.requests.scoring == {"cpu": 1000, "memory": 2**30}
