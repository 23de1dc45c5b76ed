"""GangPreemption: surplus goes first, and a gang goes as a whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL, Group
from proreus.addons.gang_preemption import GangPreemption
from proreus.addons.gang_preemption.placed_gangs import PlacedGang
from proreus.addons.group_topology import GroupTopology
from proreus.framework import CycleState, PodInfo, ReservePlugin, Status
from proreus.objects import PODS, Pod
from proreus.testing import Harness, HarnessOptions, make_node, make_pod


def gang(name: str, minimum: int, kind: str = "scheduling.x-k8s.io/v1alpha1", **spec: Any) -> dict:
    return {
        "apiVersion": kind,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum, **spec},
    }


def member(name: str, group: str = "g", node: str = "", started: int = 0, **more: Any) -> Any:
    more = {"priority": 0, "cpu": "1", **more}
    return make_pod(
        name,
        labels={POD_GROUP_LABEL: group},
        node_name=node,
        status={"startTime": f"2023-11-14T20:{started:02}:00Z"} if node else {},
        **more,
    )


def configuration(preemption: str, mode: str) -> dict:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {
                    "queueSort": {
                        "disabled": [{"name": "*"}],
                        "enabled": [{"name": "Coscheduling"}],
                    },
                    "multiPoint": {
                        "disabled": [{"name": "DefaultPreemption"}],
                        "enabled": [{"name": "Coscheduling"}, {"name": preemption}],
                    },
                },
                "pluginConfig": [{"name": "Coscheduling", "args": {"mode": mode}}],
            }
        ],
    }


def harness(*objects: Any, nodes: int = 4, cpus: str = "1", mode: str = "plan") -> Harness:
    made = [make_node(f"n{number}", cpus) for number in range(nodes)]
    config = configuration("GangPreemption", mode)
    return Harness([Coscheduling, GangPreemption], made, objects, config=config)


def urgent(name: str = "urgent", cpu: str = "1", **more: Any) -> Any:
    return make_pod(name, cpu, priority=100, **more)


def pods_of(cluster: Harness) -> Iterable[Pod]:
    return cluster.api.store(PODS).values()


def running(cluster: Harness) -> set[str]:
    return {pod.metadata.name for pod in pods_of(cluster) if pod.spec.node_name}


def test_the_surplus_of_a_gang_goes_before_less_important_pods() -> None:
    cluster = harness(
        gang("g", 2),
        *(member(f"p{n}", node=f"n{n}", started=n, priority=50) for n in range(3)),
        make_pod("alone", "1", priority=0, node_name="n3"),
    )
    left = []
    for number in range(3):
        cluster.schedule(urgent(f"urgent-{number}"))
        cluster.schedule_all()
        left.append({name for name in running(cluster) if "urgent" not in name})
    assert left == [{"p0", "p1", "alone"}, {"p0", "p1"}, set()]
    cluster.advance(30)
    cluster.schedule_all()
    assert running(cluster) == {"urgent-0", "urgent-1", "urgent-2"}


@pytest.mark.parametrize("mode", ["plan", "permit"])
def test_a_gang_that_loses_a_pod_it_needs_goes_as_a_whole(mode: str) -> None:
    objects = (gang("g", 2), member("p0", node="n0"), member("p1", node="n1"))
    cluster = harness(*objects, nodes=2, mode=mode)
    cluster.schedule(urgent())
    assert running(cluster) == set()


def test_what_is_surplus_goes_with_its_gang() -> None:
    cluster = harness(
        gang("g", 2),
        *(member(f"p{n}", node=f"n{n}", started=n) for n in range(3)),
        nodes=3,
    )
    # Only where the oldest pod runs.
    cluster.schedule(urgent(node_selector={"kubernetes.io/hostname": "n0"}))
    assert running(cluster) == set()


def test_a_gang_with_a_more_important_pod_is_left_alone() -> None:
    cluster = harness(
        gang("g", 2), member("p0", node="n0"), member("p1", node="n1", priority=200), nodes=2
    )
    cluster.schedule(urgent())
    assert running(cluster) == {"p0", "p1"}


def test_surplus_is_counted_for_each_task() -> None:
    def of(name: str, task: str, node: str, started: int) -> Any:
        notes = {"scheduling.k8s.io/group-name": "j", "volcano.sh/task-spec": task}
        status = {"startTime": f"2023-11-14T20:{started:02}:00Z"}
        return make_pod(
            name, "1", priority=0, node_name=node, metadata={"annotations": notes}, status=status
        )

    kind = "scheduling.volcano.sh/v1beta1"
    group = gang("j", 2, kind, minTaskMember={"master": 1, "worker": 1})
    # The master came last, and is needed all the same.
    tasks = [of("w0", "worker", "n0", 0), of("w1", "worker", "n1", 1), of("m0", "master", "n2", 2)]
    cluster = harness(group, *tasks, nodes=3)
    cluster.schedule(urgent())
    assert running(cluster) == {"w0", "m0"}


def test_a_minimum_that_is_raised_leaves_less_surplus() -> None:
    members = [member(f"p{n}", node=f"n{n}", started=n) for n in range(2)]
    cluster = harness(gang("g", 1), *members, make_pod("alone", "1", node_name="n2"), nodes=3)
    plugin = cluster.plugin(GangPreemption)
    (placed,) = plugin._gangs
    assert len(plugin._gang_victims.surplus_of(placed)) == 1
    cluster.add(gang("g", 2))
    cluster.schedule(urgent())
    assert running(cluster) == {"p0", "p1"}


def test_a_gang_takes_the_surplus_of_another() -> None:
    cluster = harness(
        gang("g", 2),
        gang("h", 2),
        *(member(f"p{n}", node=f"n{n}", started=n) for n in range(4)),
    )
    cluster.add(*(member(f"h{n}", "h", priority=100) for n in range(2)))
    cluster.schedule_all()
    cluster.advance(30)
    cluster.schedule_all()
    assert running(cluster) == {"p0", "p1", "h0", "h1"}
    cluster.scheduler.cache.validate()
    cluster.scheduler.queue.validate()


def test_a_gang_of_tasks_preempts_too() -> None:
    kind = "scheduling.volcano.sh/v1beta1"
    group = gang("j", 2, kind, minTaskMember={"master": 1, "worker": 1})
    cluster = harness(
        group, *(make_pod(f"p{n}", "1", node_name=f"n{n}") for n in range(2)), nodes=2
    )
    for task in ("master", "worker"):
        notes = {"scheduling.k8s.io/group-name": "j", "volcano.sh/task-spec": task}
        cluster.add(make_pod(task, "1", priority=100, metadata={"annotations": notes}))
    cluster.schedule_all()
    cluster.advance(30)
    cluster.schedule_all()
    assert running(cluster) == {"master", "worker"}


def test_a_gang_that_does_not_fit_any_more_keeps_no_place() -> None:
    alone = [make_pod(f"alone-{n}", "1", node_name=f"n{n}") for n in range(2)]
    cluster = harness(gang("h", 2), *alone, nodes=2)
    cluster.add(*(member(f"h{n}", "h", priority=100) for n in range(2)))
    cluster.schedule("h0")
    assert {cluster.pod(f"h{n}").status.nominated_node_name for n in range(2)} == {"n0", "n1"}
    cluster.schedule(make_pod("more-urgent", "1", priority=200))
    assert running(cluster) == {"more-urgent"}
    cluster.advance(30)
    cluster.schedule_all()
    cluster.advance(30)
    assert [cluster.pod(f"h{n}").status.nominated_node_name for n in range(2)] == ["", ""]


@pytest.mark.parametrize("changes_filter", [True, False])
def test_reserve_is_called_for_victims_put_back_only_where_filters_read_it(
    changes_filter: bool,
) -> None:
    class Counting(ReservePlugin):
        name = "Counting"
        reserve_changes_filter = changes_filter
        calls = 0

        def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            self.calls += 1
            return None

    nodes = [make_node(f"n{number}", "1") for number in range(4)]
    pods = [make_pod(f"p{number}", "1", node_name=f"n{number}") for number in range(4)]
    config = configuration("GangPreemption", "plan")
    config["profiles"][0]["plugins"]["multiPoint"]["enabled"].append({"name": "Counting"})
    plugins = [Coscheduling, GangPreemption, Counting]
    cluster = Harness(plugins, nodes, [gang("h", 2), *pods], config=config)
    cluster.add(*(member(f"h{n}", "h", priority=100) for n in range(2)))
    cluster.schedule_all()
    assert len(running(cluster)) == 2
    # Twice with the victims removed, and before the binding; else with each of four put back, too.
    assert (cluster.plugin(Counting).calls > 4) == changes_filter


def test_nothing_is_kept_of_gangs_that_are_gone() -> None:
    cluster = harness(gang("g", 2), *(member(f"p{n}", node=f"n{n}") for n in range(2)))
    for number in range(2):
        cluster.remove("Pod", f"p{number}")
    gangs = cluster.plugin(GangPreemption)._gangs
    assert list(gangs) == []
    assert gangs._by_uid == {}


_PODS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["", "g", "h"]), st.sampled_from([0, 10, 200])),
    max_size=10,
)


def _cluster(pods: list[tuple[int, str, int]], preemption: str, minimums: tuple = (0, 0)):
    made = [make_node(f"n{number}", "2") for number in range(6)]
    objects: list[Any] = [gang("g", minimums[0]), gang("h", minimums[1])]
    taken: Counter[int] = Counter()
    for number, (node, group, priority) in enumerate(pods):
        taken[node] += 1
        if taken[node] > 2:
            continue
        one = member(f"p{number}", group, f"n{node}", number, priority=priority)
        if not group:
            status = {"startTime": f"2023-11-14T20:{number:02}:00Z"}
            one = make_pod(one.name, "1", priority=priority, node_name=f"n{node}", status=status)
        objects.append(one)
    for node in range(6):
        # No room anywhere: what is left free is taken by pods that nobody may evict.
        for filler in range(max(0, 2 - taken[node])):
            objects.append(make_pod(f"f{node}{filler}", "1", priority=1000, node_name=f"n{node}"))
    plugins = [Coscheduling, *([GangPreemption] if preemption == "GangPreemption" else [])]
    return Harness(plugins, made, objects, config=configuration(preemption, "plan"))


@settings(max_examples=60, deadline=None)
@given(_PODS, st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_no_gang_is_broken_and_surplus_goes_first(
    pods: list[tuple[int, str, int]], minimums: tuple[int, int]
) -> None:
    cluster = _cluster(pods, "GangPreemption", minimums)
    before = Counter(p.metadata.labels.get(POD_GROUP_LABEL, "") for p in pods_of(cluster))
    names = running(cluster)
    cluster.schedule(urgent())
    after = Counter(
        p.metadata.labels.get(POD_GROUP_LABEL, "") for p in pods_of(cluster) if p.spec.node_name
    )
    evicted = names - running(cluster)
    for group, minimum in zip("gh", minimums, strict=True):
        if before[group] >= minimum and after[group] != before[group]:
            assert after[group] >= minimum or after[group] == 0
    surplus = [
        pod
        for group, minimum in zip("gh", minimums, strict=True)
        for pod in sorted(
            (n for n, one in enumerate(pods) if one[1] == group and f"p{n}" in names),
            key=lambda n: (-pods[n][2], n),
        )[minimum:]
    ]
    if any(pods[number][2] < 100 for number in surplus):
        assert len(evicted) == 1
        assert int(evicted.pop()[1:]) in surplus


@settings(max_examples=25, deadline=None)
@given(_PODS)
def test_without_gangs_it_does_as_default_preemption(pods: list[tuple[int, str, int]]) -> None:
    plain = [(node, "", priority) for node, _, priority in pods]
    evicted = []
    for preemption in ("GangPreemption", "DefaultPreemption"):
        cluster = _cluster(plain, preemption)
        before = running(cluster)
        cluster.schedule(urgent())
        evicted.append(before - running(cluster))
    assert evicted[0] == evicted[1]


def test_what_is_surplus_follows_the_minimum() -> None:
    gang = PlacedGang("default/g")
    for number in range(4):
        gang.put(make_pod(f"p{number}", node_name="n0").pod, "n0")
    assert len(gang.surplus(Group("default/g", 2))) == 2
    assert gang.surplus(Group("default/g", 4)) == frozenset()
    assert len(gang.surplus(Group("default/g", 0, minimums={"": 3}))) == 1


def test_the_groups_of_a_leaderworkerset_are_forgotten_with_their_pods() -> None:
    cluster = _cluster([], "GangPreemption")
    plugin = cluster.plugin(GangPreemption)
    prefix = "leaderworkerset.sigs.k8s.io"
    for number in range(3):
        labels = {f"{prefix}/name": "vllm", f"{prefix}/group-key": f"key-{number}"}
        more = {"metadata": {"annotations": {f"{prefix}/size": "1"}}}
        pod = make_pod(f"p{number}", "1", labels=labels, node_name="n0", **more)
        cluster.add(pod)
        plugin._group_of(pod.pod)
        assert plugin._objects._keys_of_set == {"default/vllm": {f"default/{prefix}/key-{number}"}}
        cluster.remove("Pod", pod.name)
    assert not plugin._objects._keys_of_set


# ---- a topology that is required ---------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("of_a_gang", [True, False])
@pytest.mark.parametrize("required", [True, False])
def test_a_gang_starts_as_soon_as_its_victims_are_gone(
    required: bool, of_a_gang: bool, asynchronous: bool
) -> None:
    nodes = [
        make_node(f"{rack}-{number}", "4", labels={"rack": rack})
        for rack in ("a", "b")
        for number in range(2)
    ]
    config = configuration("GangPreemption", "plan")
    (profile,) = config["profiles"]
    profile["plugins"]["multiPoint"]["enabled"].append({"name": "GroupTopology", "weight": 1000})
    profile["pluginConfig"].append({"name": "GroupTopology", "args": {"levels": ["rack"]}})
    cluster = Harness(
        [Coscheduling, GangPreemption, GroupTopology],
        nodes,
        [gang("low", 4), gang("g", 2)],
        config=config,
        options=HarnessOptions(gates=[f"SchedulerAsyncPreemption={str(asynchronous).lower()}"]),
    )
    labels = {POD_GROUP_LABEL: "low"} if of_a_gang else {}
    cluster.add(*(make_pod(f"l{number}", "4", labels=labels) for number in range(4)))
    cluster.schedule_all()
    annotations = {"kueue.x-k8s.io/podset-required-topology": "rack"} if required else {}
    for number in range(2):
        cluster.add(
            make_pod(
                f"g{number}",
                "4",
                labels={POD_GROUP_LABEL: "g"},
                priority=100,
                metadata={"annotations": annotations},
            )
        )
    cluster.schedule_all()
    cluster.advance(5)
    cluster.schedule_all()
    placed = [cluster.pod(f"g{number}").spec.node_name for number in range(2)]
    assert all(placed)
    assert not required or len({name[0] for name in placed}) == 1
    cluster.scheduler.queue.validate()
