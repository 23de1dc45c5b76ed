"""Preemption for a whole group since Kubernetes 1.38: where its pods go, and what it tells."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37, V1_38, KubernetesVersion
from proreus.config.load import default_configuration
from proreus.config.types import PluginRef, PluginSet
from proreus.engine.runtime.registry import Registry
from proreus.objects.kinds import NODES, PODS
from proreus.objects.scheduling import POD_GROUPS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

_REGISTRY = Registry(IN_TREE_PLUGINS)
_PREFIX = "pod group preemption: "
_PREEMPTED = {
    "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    "status": {
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]
    },
}


class Cluster(OfflineCluster):
    """Nodes of two CPUs, and a gang ``g`` of priority 100."""

    def __init__(
        self,
        nodes: int,
        version: KubernetesVersion = V1_38,
        reserves: bool = True,
    ) -> None:
        gates = FeatureGates.from_list(["GenericWorkload=true"], version)
        config = default_configuration(_REGISTRY, gates)
        if not reserves:
            [profile] = config.profiles
            off = PluginSet(disabled=(PluginRef(name="DefaultPreemption"),))
            plugins = profile.plugins.model_copy(update={"reserve": off})
            profile = profile.model_copy(update={"plugins": plugins})
            config = config.model_copy(update={"profiles": (profile,)})
        super().__init__(config, _REGISTRY, gates)
        for number in range(nodes):
            self.api.put(NODES, make_node(f"n{number}", "2"))

    def run(self, name: str, node: str, cpu: str = "2", of: str = "", **more: Any) -> None:
        spec = {"schedulingGroup": {"podGroupName": of}} if of else {}
        more = {"priority": 0, "spec": spec} | more
        self.api.put(PODS, make_pod(name, cpu, node_name=node, **more).pod)

    def group(self, name: str, priority: int, **spec: Any) -> None:
        meta = {"name": name, "namespace": "default", "uid": name, "generation": 1}
        self.api.add({"kind": "PodGroup", "metadata": meta, "spec": {"priority": priority, **spec}})

    def gang(self, *cpus: str, policy: str | None = None, **more: Any) -> None:
        """Add the gang with pods of so many CPUs; ``policy``: its own preemption policy."""
        gang = {"schedulingPolicy": {"gang": {"minCount": len(cpus)}}}
        self.group("g", 100, preemptionPolicy=policy, **gang)
        spec = {"schedulingGroup": {"podGroupName": "g"}} | more.pop("spec", {})
        for number, cpu in enumerate(cpus):
            self.api.put(PODS, make_pod(f"g{number}", cpu, priority=100, spec=spec, **more).pod)

    async def victims(self) -> list[str]:
        await self.schedule_next()
        await self.settle()
        return sorted(key.partition("/")[2] for key in self.api.deleted)

    @property
    def message(self) -> str:
        (condition,) = self.api.store(POD_GROUPS)["default/g"].status.conditions
        return condition.message

    @property
    def text(self) -> str:
        """What preemption says in the condition of the group."""
        return self.message.partition(_PREFIX)[2]


# ---- where the pods of the group go --------------------------------------------------------------


@pytest.mark.parametrize("cheap", [0, 1, 2, 3])
async def test_a_pod_goes_where_its_victims_cost_least(cheap: int) -> None:
    cluster = Cluster(4)
    for number in range(4):
        cluster.run(f"x{number}", f"n{number}", priority=1 if number == cheap else 2)
    cluster.gang("2")
    assert await cluster.victims() == [f"x{cheap}"]


async def test_a_node_with_room_is_taken_before_one_with_cheap_victims() -> None:
    cluster = Cluster(3)
    # The empty node has the lower score: its allocation would be more one-sided.
    cluster.run("low0", "n0", "1900m", priority=-5)
    cluster.run("low2", "n2", "1900m", priority=-5)
    cluster.run("mine", "n1", "1", priority=1000)
    cluster.gang("1", "1")
    assert len(await cluster.victims()) == 1


async def test_a_pod_joins_another_whose_victims_are_condemned_already() -> None:
    cluster = Cluster(3)
    cluster.run("a0", "n0", "1", priority=1)
    cluster.run("a1", "n0", "1", priority=1)
    cluster.run("b", "n1", "2", priority=2)
    cluster.run("c", "n2", "2", priority=2)
    cluster.gang("1", "1")
    assert await cluster.victims() == ["a0", "a1"]


async def test_where_one_pod_of_a_group_goes_the_others_have_gone() -> None:
    cluster = Cluster(3)
    cluster.group("old", 1, disruptionMode={"all": {}})
    cluster.run("old0", "n0", of="old", priority=1)
    cluster.run("old1", "n1", of="old", priority=1)
    cluster.run("x", "n2", priority=2)
    cluster.gang("2", "2")
    assert await cluster.victims() == ["old0", "old1"]


@pytest.mark.parametrize(("version", "reserves"), [(V1_37, True), (V1_38, False)])
async def test_up_to_1_37_and_without_reserve_all_nodes_are_equal(
    version: KubernetesVersion, reserves: bool
) -> None:
    chosen = []
    for low, high in (("n0", "n1"), ("n1", "n0")):
        cluster = Cluster(2, version, reserves)
        cluster.run("low", low, priority=1)
        cluster.run("high", high, priority=2)
        cluster.gang("2")
        chosen += await cluster.victims()
    assert sorted(chosen) == ["high", "low"], "the node is the same"


async def test_after_the_preemption_victims_cost_nothing() -> None:
    cluster = Cluster(2)
    cluster.run("low", "n0", priority=1)
    cluster.run("high", "n1", priority=2)
    cluster.gang("2")
    assert await cluster.victims() == ["low"]
    (profile,) = cluster.scheduler.profiles.values()
    (plugin,) = profile.rank_nodes
    assert plugin.rank_nodes() is None


# ---- who may preempt -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_pods", "of_group", "preempts"),
    [
        (None, None, True),
        ("Never", None, False),
        ("Never", "Never", False),
        ("PreemptLowerPriority", "PreemptLowerPriority", True),
    ],
)
async def test_the_policy_is_that_of_the_group_or_of_its_pods(
    of_pods: str | None, of_group: str | None, preempts: bool
) -> None:
    cluster = Cluster(1)
    cluster.run("a", "n0")
    cluster.gang("2", policy=of_group, spec={"preemptionPolicy": of_pods})
    assert await cluster.victims() == (["a"] if preempts else [])
    if not preempts:
        assert cluster.text == "not eligible due to preemptionPolicy=Never."


async def test_victims_are_waited_for_by_a_group_that_may_not_preempt_any_more() -> None:
    cluster = Cluster(2)
    cluster.run("a", "n0", **_PREEMPTED)
    cluster.run("b", "n1")
    spec, status = {"preemptionPolicy": "Never"}, {"nominatedNodeName": "n0"}
    cluster.gang("2", policy="Never", spec=spec, status=status)
    assert await cluster.victims() == []
    assert cluster.text == "ongoing preemption on nominated nodes"


async def test_pods_of_a_higher_priority_than_their_group_are_not_waited_for() -> None:
    cluster = Cluster(2)
    cluster.group("old", 1)
    cluster.run("a", "n0", of="old", **(_PREEMPTED | {"priority": 200}))
    cluster.run("b", "n1", priority=200)
    cluster.gang("2", status={"nominatedNodeName": "n0"})
    assert await cluster.victims() == []
    assert cluster.text == "No preemption victims found for incoming preemptor"


# ---- what is told and cleared --------------------------------------------------------------------


async def test_that_there_are_no_victims_hides_no_other_reason() -> None:
    cluster = Cluster(1)
    cluster.run("a", "n0", priority=1000)
    cluster.gang("2")
    assert await cluster.victims() == []
    assert cluster.message == (
        "scheduling policy's minimum threshold (1) cannot be satisfied: 0 scheduled, "
        "1 unschedulable, 0 not-evaluated, deallocation and deletion of ResourceClaims completed, "
        "pod group preemption: No preemption victims found for incoming preemptor"
    )


async def test_pods_nominated_to_a_node_of_the_group_lose_their_nomination() -> None:
    cluster = Cluster(2)
    cluster.run("a", "n0")
    cluster.run("b", "n1")
    for number in range(2):
        status = {"nominatedNodeName": f"n{number}"}
        cluster.run(f"low{number}", "", "2", priority=7, status=status)
    cluster.gang("2", "2")
    assert await cluster.victims() == ["a", "b"]
    pods = cluster.api.store(PODS)
    assert [pods[f"default/low{n}"].status.nominated_node_name for n in range(2)] == ["", ""]


@pytest.mark.parametrize(
    ("priority", "text"),
    [
        (0, 'node "gone" not found in the snapshot'),
        # It is not looked at: it would not be evicted.
        (1000, "No preemption victims found for incoming preemptor"),
    ],
)
async def test_a_victim_on_an_unknown_node_is_an_error(priority: int, text: str) -> None:
    cluster = Cluster(1)
    cluster.group("old", priority, disruptionMode={"all": {}})
    cluster.run("old0", "n0", of="old", priority=priority)
    cluster.run("old1", "gone", of="old", priority=priority)
    cluster.gang("2")
    assert await cluster.victims() == []
    assert cluster.text == text
