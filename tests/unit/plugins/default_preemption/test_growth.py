"""What a preemption costs does not grow with the number of other preemptors that wait.

That by a group grows with its pods and the victims, and not with their product.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.config.load import default_configuration
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.registry import Registry
from proreus.framework.cluster_table import ClusterTable
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

_GATES, _REGISTRY = FeatureGates(), Registry(IN_TREE_PLUGINS)
_CONFIGURATION = default_configuration(_REGISTRY, _GATES)
_VICTIMS = 3


class Cluster(OfflineCluster):
    """Full nodes, one for each preemptor, and an apiserver that deletes pods on demand."""

    def __init__(self, preemptors: int) -> None:
        super().__init__(_CONFIGURATION, _REGISTRY, _GATES)
        self.deletes = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self._delete = self.api.delete_pod
        self.api.delete_pod = self._delete_later  # type: ignore[method-assign]
        nominator = self.scheduler.queue.nominator
        nominator.nominated_pods = self._counted(nominator.nominated_pods)  # type: ignore[method-assign]
        for i in range(preemptors):
            self.api.put(NODES, make_node(f"n{i}", "3"))
            for j in range(_VICTIMS):
                low = make_pod(f"low-{i}-{j}", cpu="1", priority=0, node_name=f"n{i}")
                self.api.put(PODS, low.pod)
        for i in range(preemptors):
            self.api.put(PODS, make_pod(f"high-{i}", cpu="3", priority=10).pod)

    def _counted(self, function: Any) -> Any:
        def call(*args: Any) -> Any:
            self.calls["nominated pods"] += 1
            return function(*args)

        return call

    async def _delete_later(self, pod: Pod) -> None:
        await self.deletes.wait()
        await self._delete(pod)

    def counts(self) -> Counter[str]:
        """The number of calls of hints, gates and the nominator so far."""
        hints = self.metrics.queueing_hint_execution_duration_seconds
        points = self.metrics.framework_extension_point_duration_seconds
        calls = self.calls.copy()
        calls["hints"] = sum(child.count for _, child in hints.histograms())
        calls["gates"] = sum(
            child.count for labels, child in points.histograms() if labels[0] == "PreEnqueue"
        )
        return calls


async def _calls_with(preemptors: int) -> Counter[str]:
    """Run preemption for all, delete all victims, and return the calls that took."""
    cluster = Cluster(preemptors)
    while await cluster.schedule_next():
        pass
    assert not cluster.api.deleted
    waiting = cluster.scheduler.queue.unschedulable_pods()
    assert len(waiting) == preemptors
    cluster.deletes.set()
    for _ in range(preemptors):
        await cluster.settle()
    while await cluster.schedule_next():
        pass
    bound = [pod.metadata.name for pod in cluster.api.store(PODS).values() if pod.spec.node_name]
    assert len(bound) == preemptors
    assert all(name.startswith("high") for name in bound)
    assert len(cluster.api.deleted) == _VICTIMS * preemptors
    return cluster.counts()


async def test_four_times_the_preemptors_take_four_times_the_calls() -> None:
    few, many = await _calls_with(12), await _calls_with(48)

    assert few.keys() == {"hints", "gates", "nominated pods"}
    for what, count in few.items():
        assert 0 < many[what] <= 4.5 * count, what


# ---- preemption by a group ---------------------------------------------------------------------

_GROUP_GATES = FeatureGates.from_list(["GenericWorkload=true"], V1_37)
_SPREAD = {
    "maxSkew": 3,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "gang"}},
}


class GroupCluster(OfflineCluster):
    """Full nodes, and a gang with a pod for each of them; half of the victims suffice."""

    def __init__(self, nodes: int, spec: dict[str, Any]) -> None:
        configuration = default_configuration(_REGISTRY, _GROUP_GATES)
        super().__init__(configuration, _REGISTRY, _GROUP_GATES)
        self.calls: Counter[str] = Counter()
        for number in range(nodes):
            name = f"n{number}"
            self.api.put(NODES, make_node(name, "4", labels={"kubernetes.io/hostname": name}))
            for of_node in range(4):
                low = make_pod(f"low-{number}-{of_node}", "1", priority=of_node, node_name=name)
                self.api.put(PODS, low.pod)
        meta = {"name": "g", "namespace": "default", "generation": 1}
        policy = {"gang": {"minCount": nodes}}
        group_spec = {"schedulingPolicy": policy, "priority": 100}
        self.api.add({"kind": "PodGroup", "metadata": meta, "spec": group_spec})
        spec = {"schedulingGroup": {"podGroupName": "g"}, **spec}
        for number in range(nodes):
            pod = make_pod(f"g{number}", "2", priority=100, spec=spec, labels={"app": "gang"})
            self.api.put(PODS, pod.pod)

    def counted(self, what: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            self.calls[what] += 1
            return function(*args)

        return call


async def _calls_of_a_group(nodes: int, spec: dict[str, Any]) -> Counter[str]:
    cluster = GroupCluster(nodes, spec)
    search, table = NodeSearch.check_node, ClusterTable.add_pod
    with (
        patch.object(NodeSearch, "check_node", cluster.counted("filtered", search)),
        patch.object(ClusterTable, "add_pod", cluster.counted("added", table)),
    ):
        await cluster.schedule_next()
    await cluster.settle()
    assert 2 * nodes <= len(cluster.api.deleted) < 4 * nodes
    return cluster.calls


@pytest.mark.parametrize("spec", [{}, {"topologySpreadConstraints": [_SPREAD]}])
async def test_a_group_of_four_times_the_pods_takes_four_times_the_calls(
    spec: dict[str, Any],
) -> None:
    few, many = await _calls_of_a_group(8, spec), await _calls_of_a_group(32, spec)

    assert few.keys() == {"filtered", "added"}
    for what, count in few.items():
        assert 0 < many[what] <= 4.5 * count, what
