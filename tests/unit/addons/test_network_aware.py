from __future__ import annotations

import random

import numpy as np
import pytest

from proreus.addons.network_aware.distances import NETPERF, NodeCosts
from proreus.addons.network_aware.network_overhead import NetworkOverhead
from proreus.addons.network_aware.objects import (
    APP_GROUP_LABEL,
    NETWORK_TOPOLOGIES,
    WORKLOAD_LABEL,
    DestinationCost,
    NetworkTopology,
    NetworkTopologySpec,
    NetworkWeights,
    OriginCosts,
    TopologyCosts,
)
from proreus.addons.network_aware.topological_sort import TopologicalSort
from proreus.framework import CycleState
from proreus.objects import LABEL_REGION, LABEL_ZONE
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod

NAME = "NetworkOverhead"


def app_group(dependencies: dict[str, dict[str, int]], order: dict[str, int] | None = None) -> dict:
    def dependent(workload: str, on: dict[str, int]) -> dict:
        found = [{"workload": {"selector": o}, "maxNetworkCost": most} for o, most in on.items()]
        return {"workload": {"selector": workload}, "dependencies": found}

    ordered = [{"workload": {"selector": one}, "index": i} for one, i in (order or {}).items()]
    return {
        "apiVersion": "appgroup.diktyo.x-k8s.io/v1alpha1",
        "kind": "AppGroup",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"workloads": [dependent(*one) for one in dependencies.items()]},
        "status": {"topologyOrder": ordered},
    }


def costs(key: str, found: dict[tuple[str, str], int]) -> dict:
    origins: dict[str, list] = {}
    for (origin, destination), cost in found.items():
        entry = {"destination": destination, "networkCost": cost}
        origins.setdefault(origin, []).append(entry)
    origin_list = [{"origin": one, "costList": found} for one, found in origins.items()]
    return {"topologyKey": key, "originList": origin_list}


def network_topology(zones: dict[tuple[str, str], int], regions: dict | None = None) -> dict:
    lists = [costs(LABEL_ZONE, zones), costs(LABEL_REGION, regions or {})]
    return {
        "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "nt-default", "namespace": "default"},
        "spec": {"weights": [{"name": "UserDefined", "topologyList": lists}]},
    }


def node(name: str, zone: str = "", region: str = "r"):
    return make_node(name, labels={LABEL_ZONE: zone, LABEL_REGION: region} if zone else {})


def member(name: str, workload: str, node_name: str = "", **more: object):
    labels = {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: workload}
    return make_pod(name, labels=labels, node_name=node_name, **more)


def harness(nodes, *pods, zones, on, regions=None) -> Harness:
    group = app_group({"web": on})
    return Harness([NetworkOverhead], nodes, [group, network_topology(zones, regions), *pods])


def test_as_many_met_as_violated_requirements_pass() -> None:
    cluster = harness(
        [node("a", "z1"), node("b", "z1"), node("c", "z2")],
        member("x", "db", "b"),
        member("y", "db", "c"),
        zones={("z1", "z2"): 5, ("z2", "z1"): 5},
        on={"db": 3},
    )
    plugin = cluster.plugin(NetworkOverhead)
    state, pod = CycleState(), member("p", "web")
    plugin.pre_filter(state, pod, cluster.nodes)
    sums = plugin._sums(state, cluster.nodes).T.tolist()
    assert sums == [[1, 1, 6], [1, 1, 5], [1, 1, 5]]
    outcome = cluster.schedule(pod)
    assert [outcome.score(name, NAME) for name in "abc"] == [0, 100, 100]


def test_nodes_that_violate_more_than_they_meet_are_rejected() -> None:
    cluster = harness(
        [node("a", "z1"), node("b", "z2"), node("bare"), node("far", "z3", "s")],
        member("x", "db", "b"),
        zones={("z1", "z2"): 5},
        regions={("s", "r"): 9},
        on={"db": 3},
    )
    outcome = cluster.schedule(member("p", "web"))
    expected = (
        f"{NAME}: Node a does not meet several network requirements from Workload dependencies: "
    )
    assert outcome.why_not("a") == expected + "Satisfied: 0 Violated: 1"
    assert outcome.why_not("far")
    # Nothing is known from there.
    assert not outcome.why_not("bare")
    assert outcome.node == "b"
    # A pod that was rejected is woken by a member of its group, and not by another pod.
    assert outcome.score("bare", NAME) == 0


@pytest.mark.parametrize("missing", ["AppGroup", "NetworkTopology"])
def test_without_group_or_topology_every_node_passes(missing: str) -> None:
    zones = {("z1", "z2"): 5}
    cluster = harness([node("a", "z1"), node("b", "z2")], zones=zones, on={"db": 1})
    cluster.remove(missing, "shop" if missing == "AppGroup" else "nt-default")
    cluster.add(member("x", "db", "b"))
    outcome = cluster.schedule(member("p", "web"))
    assert set(outcome.feasible) == {"a", "b"}


def test_members_wake_the_pods_that_depend_on_them() -> None:
    cluster = harness(
        [make_node("a", labels={LABEL_ZONE: "z1", LABEL_REGION: "r"})],
        zones={("z1", "z2"): 5},
        on={"db": 1},
    )
    cluster.add(node("b", "z2"))
    cluster.patch("Node", "b", {"spec": {"unschedulable": True}})
    cluster.add(member("x", "db", "b"))
    assert not cluster.schedule(member("p", "web")).bound
    cluster.add(make_pod("other", node_name="a"))
    assert cluster.queue_of("p") == "unschedulable"
    cluster.add(member("y", "db", "a"))
    assert cluster.queue_of("p") in ("active", "backoff")


def test_placed_pods_are_counted_from_reserve_on_and_forgotten_when_they_are_gone() -> None:
    cluster = harness([node("a", "z1")], zones={}, on={"web": 1})
    plugin = cluster.plugin(NetworkOverhead)
    assert cluster.schedule(member("p", "web")).bound
    assert plugin._dependencies(member("q", "web")) is not None
    cluster.remove("Pod", "p")
    assert plugin._dependencies(member("q", "web")) is None
    assert not plugin._placed


def test_a_running_pod_that_leaves_its_group_counts_there_no_more() -> None:
    placed = member("p", "web", "a")
    cluster = harness([node("a", "z1")], placed, zones={}, on={"web": 1})
    plugin = cluster.plugin(NetworkOverhead)
    assert plugin._dependencies(member("q", "web")) is not None
    cluster.patch("Pod", "p", {"metadata": {"labels": {APP_GROUP_LABEL: "other"}}})
    assert plugin._dependencies(member("q", "web")) is None
    assert list(plugin._placed) == ["other"]
    cluster.patch("Pod", "p", {"metadata": {"labels": {APP_GROUP_LABEL: "shop"}}})
    assert plugin._dependencies(member("q", "web")) is not None
    cluster.patch("Pod", "p", {"metadata": {"labels": {APP_GROUP_LABEL: None}}})
    assert not plugin._placed
    assert not plugin._counts


def test_costs_under_netperfs_name_are_searched_as_they_are() -> None:
    origins = tuple(
        OriginCosts(origin=one, cost_list=(DestinationCost(destination="z", network_cost=7),))
        for one in ("c", "b", "a")
    )
    lists = (TopologyCosts(topology_key=LABEL_ZONE, origin_list=origins),)
    for name, known in (("UserDefined", (7, 7)), (NETPERF, (None, 100))):
        weights = (NetworkWeights(name=name, topology_list=lists),)
        topology = NetworkTopology(spec=NetworkTopologySpec(weights=weights))
        assert NodeCosts(topology, name, "r", "a").to("r", "z") == known
        assert NodeCosts(topology, name, "r", "b").to("r", "z") == (7, 7)


def test_pods_of_a_group_are_sorted_by_index_and_others_by_priority() -> None:
    cluster = Harness([TopologicalSort], 1, [app_group({}, {"db": 1, "web": 2})])
    for pod in (
        member("odd", "?", priority=9),
        member("web", "web", priority=9),
        member("db", "db"),
        make_pod("urgent", priority=10),
    ):
        cluster.add(pod)
    order = [outcome.pod.rpartition("/")[2] for outcome in cluster.schedule_all()]
    assert order == ["urgent", "db", "web", "odd"]


def test_waiting_pods_follow_a_new_order_of_their_group() -> None:
    workloads = ["a", "b", "c", "d"]
    cluster = Harness([TopologicalSort], 1, [app_group({}, {w: i for i, w in enumerate("abcd")})])
    for workload in workloads:
        cluster.add(member(workload, workload))
    reverse = app_group({}, {w: i for i, w in enumerate("dcba")})
    cluster.patch("AppGroup", "shop", {"status": reverse["status"]})
    for workload in workloads:  # each update puts a pod into the queue again
        cluster.patch("Pod", workload, {"metadata": {"annotations": {"seen": "yes"}}})
    cluster.scheduler.queue.validate()
    order = [outcome.pod.rpartition("/")[2] for outcome in cluster.schedule_all()]
    assert order == workloads[::-1]


def test_pods_of_one_workload_go_by_time() -> None:
    cluster = Harness([TopologicalSort], 1, [app_group({}, {"db": 1})])
    cluster.add(member("first", "db"))
    cluster.advance(1)
    cluster.add(member("second", "db", priority=5))
    order = [outcome.pod.rpartition("/")[2] for outcome in cluster.schedule_all()]
    assert order == ["first", "second"]


def test_a_pod_without_dependencies_is_not_looked_at() -> None:
    plugin = make_plugin(NetworkOverhead, FakeHandle([make_node("a")]))
    state = CycleState()
    status = plugin.pre_filter(state, make_pod("p"), plugin.handle.nodes)
    assert status is not None
    assert status.code.label == "Skip"
    status = plugin.pre_score(state, make_pod("p"), plugin.handle.nodes)
    assert status is not None
    assert status.code.label == "Skip"
    assert plugin.score_all(state, make_pod("p"), plugin.handle.nodes) == 0


def test_sums_follow_pods_and_nodes_that_come_and_go() -> None:
    rng = random.Random(3)
    zones = [f"z{number}" for number in range(4)]
    known = {(one, other): rng.randint(0, 9) for one in zones for other in zones[:3]}
    nodes = [node(f"n{i}", rng.choice(["", *zones]), rng.choice("rs")) for i in range(8)]
    cluster = harness(nodes, zones=known, regions={("r", "s"): 6}, on={"db": 3, "cache": 5})
    plugin, most = cluster.plugin(NetworkOverhead), {"db": 3, "cache": 5}
    topology = plugin.handle.store(NETWORK_TOPOLOGIES)["default/nt-default"]

    def expected(name: str, placed: dict[str, tuple[str, str]]) -> list[int]:
        def place(of: str) -> tuple[str, str]:
            labels = cluster.nodes[cluster.nodes.rows[of]].labels
            return labels.get(LABEL_REGION, ""), labels.get(LABEL_ZONE, "")

        found = [0, 0, 0]
        for workload, host in placed.values():
            if host == name:
                found[0] += 1
                continue
            compared, cost = NodeCosts(topology, "UserDefined", *place(name)).to(*place(host))
            if compared is not None:
                found[compared > most[workload]] += 1
            found[2] += cost
        return found

    placed: dict[str, tuple[str, str]] = {}
    for step in range(40):
        if placed and rng.random() < 0.4:
            name = rng.choice(sorted(placed))
            cluster.remove("Pod", name)
            del placed[name]
        elif rng.random() < 0.2:
            cluster.add(node(f"n{rng.randrange(8)}", rng.choice(zones), rng.choice("rs")))
        else:
            workload, host = rng.choice(["db", "cache"]), f"n{rng.randrange(8)}"
            cluster.add(member(f"p{step}", workload, host))
            placed[f"p{step}"] = workload, host
        state = CycleState()
        plugin.pre_filter(state, member("p", "web"), cluster.nodes)
        whole = plugin._sums(state, cluster.nodes).T.tolist()
        assert whole == [expected(one.name, placed) for one in cluster.nodes]
        rows = np.array([1, 3, 6])
        part = plugin._sums(state, cluster.nodes.take(rows)).T.tolist()
        assert part == [whole[row] for row in rows]
