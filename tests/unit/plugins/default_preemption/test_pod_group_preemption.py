"""Preemption for a whole group: which victims, which texts, and what is left as it was."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from proreus.base.errors import PluginError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.config.load import default_configuration
from proreus.engine.runtime.pod_group_reprieve import PodGroupReprieve
from proreus.engine.runtime.registry import Registry
from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.scheduling import POD_GROUPS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.plugins.default_preemption.domain_victims import DomainVictims
from proreus.plugins.default_preemption.eviction import Evictor
from proreus.plugins.default_preemption.pod_group_preemption import PodGroupEvaluator
from proreus.plugins.default_preemption.potential_victims import DisruptionBudgets
from proreus.testing import make_node, make_pod

_REGISTRY = Registry(IN_TREE_PLUGINS)
_ZONE = "topology.kubernetes.io/zone"
_PREFIX = "pod group preemption: "


class Cluster(OfflineCluster):
    """Nodes of two CPUs, and a gang ``g`` of priority 100."""

    def __init__(self, nodes: int = 2, *gates: str, zones: str = "") -> None:
        parsed = FeatureGates.from_list(["GenericWorkload=true", *gates], V1_37)
        super().__init__(default_configuration(_REGISTRY, parsed), _REGISTRY, parsed)
        for number in range(nodes):
            labels = {_ZONE: zones[number]} if zones else {}
            self.api.put(NODES, make_node(f"n{number}", "2", labels=labels))

    def run(self, name: str, node: str, cpu: str = "1", of: str = "", **more: Any) -> PodInfo:
        """Let a pod run; its priority is 0."""
        spec = {"schedulingGroup": {"podGroupName": of}} if of else {}
        labels = {"app": name[0]}
        pod = make_pod(
            name, cpu, **{"node_name": node, "priority": 0, "spec": spec, "labels": labels} | more
        )
        self.api.put(PODS, pod.pod)
        return pod

    def group(self, name: str, priority: int, mode: str = "single", **more: Any) -> None:
        meta = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "generation": 1}
        spec = {"priority": priority, "disruptionMode": {mode: {}}, **more}
        self.api.add({"kind": "PodGroup", "metadata": meta, "spec": spec})

    def gang(self, *cpus: str, spec: Any = None, group: Any = None, **more: Any) -> None:
        """Add the gang with pods of so many CPUs."""
        policy = {"schedulingPolicy": {"gang": {"minCount": len(cpus)}}}
        self.group("g", 100, **policy, **(group or {}))
        spec = {"schedulingGroup": {"podGroupName": "g"}, **(spec or {})}
        for number, cpu in enumerate(cpus):
            pod = make_pod(f"g{number}", cpu, priority=100, spec=spec, **more)
            self.api.put(PODS, pod.pod)

    async def victims(self) -> list[str]:
        await self.schedule_next()
        await self.settle()
        return [key.partition("/")[2] for key in self.api.deleted]

    async def run_cycle(self) -> None:
        """Run the cycle of the group, and nothing of what follows."""
        queued = self.scheduler.queue.pop()
        assert queued is not None
        assert self.scheduler.pod_group_cycle is not None
        await self.scheduler.pod_group_cycle.run(queued)

    @property
    def text(self) -> str:
        """What preemption says in the condition of the group."""
        (condition,) = self.api.store(POD_GROUPS)["default/g"].status.conditions
        return condition.message.partition(_PREFIX)[2]

    @property
    def nominations(self) -> dict[str, str]:
        nominator = self.scheduler.queue.nominator
        names = [node.name for node in self.scheduler.cache.table]
        return {pod.name: name for name in names for pod in nominator.nominated_pods(name)}

    def content(self) -> list[Any]:
        """The table: pods with their places and sums by node, the very objects."""
        return [
            (
                node.name,
                list(node.order),
                {uid: id(pod) for uid, pod in node.pods.items()},
                {name: amount for name, amount in node.requested.items() if amount},
                dict(node.nonzero_requested),
                set(node.used_ports),
            )
            for node in self.scheduler.cache.table
        ]

    def check_columns(self) -> None:
        for node in self.scheduler.cache.table:
            assert self.scheduler.cache.node_difference(node.name) == ""


async def test_the_least_important_units_are_evicted() -> None:
    cluster = Cluster(2)
    for name, node, priority in (("a", "n0", 1), ("b", "n0", 2), ("c", "n1", 4), ("d", "n1", 3)):
        cluster.run(name, node, priority=priority)
    cluster.gang("1", "1")

    assert await cluster.victims() == ["d", "a"], "b and c stay, the more important ones first"
    assert cluster.text == "found a placement for podgroup, preempting 2 victims"
    assert sorted(cluster.nominations.values()) == ["n0", "n1"]
    cluster.check_columns()


async def test_a_group_of_mode_all_is_evicted_as_a_whole() -> None:
    cluster = Cluster(3)
    cluster.group("old", 5, "all")
    for number in range(3):
        cluster.run(f"old{number}", f"n{number}", "2", of="old")
    cluster.gang("2")

    assert await cluster.victims() == ["old0", "old1", "old2"]


async def test_pods_of_mode_single_are_evicted_one_by_one() -> None:
    cluster = Cluster(3)
    cluster.group("old", 5)
    for number in range(3):
        cluster.run(f"old{number}", f"n{number}", "2", of="old")
    cluster.gang("2")

    assert len(await cluster.victims()) == 1


async def test_the_priority_of_the_group_protects_its_pods() -> None:
    cluster = Cluster(1)
    cluster.group("old", 100, "all")
    cluster.run("old0", "n0", "2", of="old")
    cluster.gang("2")

    assert await cluster.victims() == []
    assert cluster.text == "No preemption victims found for incoming preemptor"


async def test_a_group_that_fits_without_no_victim_evicts_nobody() -> None:
    cluster = Cluster(2)
    cluster.run("a", "n0", "2")
    cluster.gang("2", "2", "2")
    before = cluster.content()
    await cluster.run_cycle()

    assert cluster.content() == before
    await cluster.settle()
    assert cluster.api.deleted == []
    assert cluster.text.startswith("minCount (3) cannot be satisfied")
    assert cluster.nominations == {}


async def test_victims_that_violate_a_budget_are_reprieved_first() -> None:
    cluster = Cluster(1)
    cluster.api.add(
        {
            "kind": POD_DISRUPTION_BUDGETS.kind,
            "metadata": {"name": "guarded", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "b"}}},
            "status": {"disruptionsAllowed": 0},
        }
    )
    cluster.run("a", "n0", priority=9)
    cluster.run("b", "n0", priority=1)
    cluster.gang("1")

    assert await cluster.victims() == ["a"]
    violations = cluster.metrics.preemption_pdb_violations_total.labels("podgroup")
    assert violations.value == 0
    cluster = Cluster(1)
    cluster.api.add(
        {
            "kind": POD_DISRUPTION_BUDGETS.kind,
            "metadata": {"name": "guarded", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "b"}}},
            "status": {"disruptionsAllowed": 1},
        }
    )
    cluster.run("b0", "n0", priority=1)
    cluster.run("b1", "n0", priority=1)
    cluster.gang("2")
    assert await cluster.victims() == ["b0", "b1"]
    violations = cluster.metrics.preemption_pdb_violations_total.labels("podgroup")
    assert violations.value == 1, "one more than the budget allows"


@pytest.mark.parametrize(("zones", "victims"), [("xxy", ["a", "c", "b"]), ("xyy", ["a", "b", "c"])])
async def test_equal_victims_are_in_the_order_of_nodes(zones: str, victims: list[str]) -> None:
    """Round robin over zones, as in kube-scheduler's snapshot."""
    cluster = Cluster(3, zones=zones)
    for name, node in (("a", "n0"), ("b", "n1"), ("c", "n2")):
        cluster.run(name, node, "2")
    cluster.gang("2", "2", "2")

    assert await cluster.victims() == victims


@pytest.mark.parametrize(
    ("gates", "of_pods", "of_group", "preempts"),
    [
        ((), "Never", None, False),
        ((), "PreemptLowerPriority", "Never", True),
        (("PodGroupPreemptionPolicy=true",), "Never", "Never", False),
        (("PodGroupPreemptionPolicy=true",), "PreemptLowerPriority", None, True),
    ],
)
async def test_the_policy_is_that_of_the_pods_or_by_gate_that_of_the_group(
    gates: tuple[str, ...], of_pods: str, of_group: str | None, preempts: bool
) -> None:
    cluster = Cluster(1, *gates)
    cluster.run("a", "n0", "2")
    cluster.gang("2", spec={"preemptionPolicy": of_pods}, group={"preemptionPolicy": of_group})

    assert await cluster.victims() == (["a"] if preempts else [])
    if not preempts:
        assert cluster.text == "not eligible due to preemptionPolicy=Never."
        assert _evaluations(cluster) == 0


async def test_victims_that_are_still_terminating_are_waited_for() -> None:
    cluster = Cluster(2)
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
    }
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.run("a", "n0", "2", metadata=gone, status={"conditions": [target]})
    cluster.run("b", "n1", "2")
    cluster.gang("2", status={"nominatedNodeName": "n0"})

    assert await cluster.victims() == []
    assert cluster.text == "ongoing preemption on nominated nodes"
    assert cluster.nominations == {"g0": "n0"}
    assert _evaluations(cluster) == 0, "victims were not looked for"


@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", ""])
async def test_pods_that_terminate_for_another_reason_are_victims(reason: str) -> None:
    cluster = Cluster(1)
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.run("a", "n0", "2", metadata=gone, status={"conditions": [target] if reason else []})
    cluster.gang("2", status={"nominatedNodeName": "n0"})

    assert await cluster.victims() == [], "it is being deleted already"
    assert cluster.text == "found a placement for podgroup, preempting 1 victims"
    assert cluster.metrics.workload_preemption_victims.labels("podgroup").count == 1


async def test_metrics_of_a_preemption_by_a_group() -> None:
    cluster = Cluster(3)
    cluster.group("old", 5, "all")
    for number in range(2):
        cluster.run(f"old{number}", f"n{number}", "2", of="old")
    cluster.run("x", "n2", "2")
    cluster.gang("2", "2", "2")

    assert await cluster.victims() == ["old0", "old1", "x"]
    metrics = cluster.metrics
    assert metrics.workload_preemption_attempts_total.labels("podgroup", "Success").value == 1
    assert metrics.workload_preemption_victims.labels("podgroup").sum == 3
    assert metrics.preemption_victims.count == 0
    assert metrics.preemption_workload_disruptions.labels("podgroup", "podgroup").sum == 1
    assert metrics.preemption_execution_duration_seconds.labels("podgroup", "success").count == 1
    assert _evaluations(cluster) == 1


async def test_metrics_of_a_preemption_by_a_pod() -> None:
    cluster = Cluster(1)
    cluster.run("a", "n0", "2")
    cluster.run("p", "", "2", priority=9)

    assert await cluster.victims() == ["a"]
    metrics = cluster.metrics
    assert metrics.preemption_evaluation_duration_seconds.labels("pod", "Success").count == 1
    assert metrics.preemption_execution_duration_seconds.labels("pod", "success").count == 1
    assert metrics.preemption_victims.sum == 1
    assert metrics.workload_preemption_victims.labels("").count == 0


def _evaluations(cluster: Cluster) -> int:
    metric = cluster.metrics.preemption_evaluation_duration_seconds
    return sum(child.count for labels, child in metric.histograms() if labels[0] == "podgroup")


# ---- the table afterwards ----------------------------------------------------------------------


def _crowded() -> Cluster:
    cluster = Cluster(3)
    cluster.group("old", 5, "all")
    for number in range(3):
        cluster.run(f"old{number}", f"n{number}", "500m", of="old", host_ports=[80 + number])
        cluster.run(f"x{number}", f"n{number}", "500m", priority=number)
        cluster.run(f"high{number}", f"n{number}", "500m", priority=1000)
    return cluster


async def test_a_dry_run_leaves_the_table_as_before() -> None:
    cluster = _crowded()
    before = cluster.content()
    cluster.gang("1", "1")
    await cluster.run_cycle()

    assert cluster.content() == before
    await cluster.settle()
    assert cluster.text.startswith("found a placement")
    cluster.check_columns()


async def test_a_pod_that_is_counted_otherwise_than_it_was_listed_stays_so() -> None:
    """A pod with devices is counted with what they take; the state of its group has the other."""
    cluster = _crowded()
    table = cluster.scheduler.cache.table
    (uid,) = [uid for uid, pod in table[0].pods.items() if pod.name == "old0"]
    spec = {"schedulingGroup": {"podGroupName": "old"}}
    table.remove_pod(0, uid)
    table.add_pod(0, make_pod("old0", "600m", node_name="n0", priority=0, spec=spec))
    before = cluster.content()
    cluster.gang("1", "1")
    await cluster.run_cycle()

    assert cluster.content() == before
    await cluster.settle()
    assert cluster.text.startswith("found a placement")


@pytest.mark.parametrize("where", ["AddPod", "Filter"])
async def test_a_failing_plugin_leaves_the_table_as_before(where: str) -> None:
    cluster = _crowded()
    before = cluster.content()
    cluster.gang("1", "1")
    failing = PluginError("Own", where, f'running {where} on plugin "Own": out of order')
    method = {"AddPod": "_remove", "Filter": "_fit"}[where]
    with patch.object(PodGroupReprieve, method, side_effect=failing):
        await cluster.run_cycle()

    assert cluster.content() == before
    cluster.check_columns()
    await cluster.settle()
    (condition,) = cluster.api.store(POD_GROUPS)["default/g"].status.conditions
    assert condition.reason == "SchedulerError"
    text = f'error in "DefaultPreemption" PodGroupPostFilter plugins: {_PREFIX}{failing}'
    assert condition.message == text
    assert cluster.metrics.workload_preemption_attempts_total.labels("podgroup", "Error").value == 1
    assert cluster.api.deleted == []


async def test_a_cancelled_dry_run_leaves_the_table_as_before() -> None:
    cluster = _crowded()
    before = cluster.content()
    cluster.gang("1", "1")
    (profile,) = cluster.scheduler.profiles.values()
    handle = profile.post_filter[0].handle
    victims = DomainVictims(handle.workload_forest, handle.pod_group_states, handle.nodes)
    evaluator = PodGroupEvaluator(handle, victims, Evictor(handle, {}, "DefaultPreemption"))
    group = PodGroupInfo("default", "g", (), cluster.api.store(POD_GROUPS)["default/g"])
    tried = asyncio.Event()

    async def schedule() -> Status:
        tried.set()
        await asyncio.sleep(3600)
        return Status.unschedulable()

    dry_run = asyncio.ensure_future(evaluator.evaluate(group, DisruptionBudgets(()), schedule))
    await tried.wait()
    assert [len(pods) for _, pods, *_ in cluster.content()] == [1, 1, 1], "all victims are removed"
    dry_run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dry_run

    assert cluster.content() == before
    cluster.check_columns()
