"""What a preemption costs does not grow with the number of other preemptors that wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from proreus.config.load import default_configuration
from proreus.feature_gates import FeatureGates
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.runtime.registry import Registry
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
