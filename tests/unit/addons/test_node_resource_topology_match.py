from __future__ import annotations

import pytest

from proreus.addons.node_resource_topology_match import NodeResourceTopologyMatch
from proreus.addons.node_resource_topology_match.cache import ATTRIBUTE, fingerprint, xxh64
from proreus.addons.node_resource_topology_match.demand import Demand
from proreus.addons.node_resource_topology_match.scoring import (
    balanced_allocation,
    least_allocated,
    least_numa_nodes_score,
    most_allocated,
)
from proreus.addons.node_resource_topology_match.zones import (
    NodeResourceTopology,
    NodeTopology,
    TopologyAttribute,
    Zone,
)
from proreus.addons.qos import qos_class
from proreus.testing import Harness, make_node, make_pod

NAME = "NodeResourceTopologyMatch"


def topology(node: str, *zones: dict, scope: str = "container", **attributes: str) -> dict:
    attributes = {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": scope,
        **attributes,
    }
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [{"name": name, "available": amount} for name, amount in zone.items()],
            }
            for number, zone in enumerate(zones)
        ],
    }


def guaranteed(name: str, *cpus: str, init: str = "") -> object:
    def container(number: int, cpu: str) -> dict:
        amounts = {"cpu": cpu, "memory": "1Gi"}
        resources = {"requests": amounts, "limits": amounts}
        return {"name": f"c{number}", "resources": resources}

    spec: dict = {"containers": [container(n, cpu) for n, cpu in enumerate(cpus)]}
    if init:
        spec["initContainers"] = [container(9, init)]
    return make_pod(name, spec=spec)


FOUR_AND_EIGHT = ({"cpu": "4", "memory": "8Gi"}, {"cpu": "8", "memory": "8Gi"})


def harness(*objects: dict, nodes=("a",), **args: object) -> Harness:
    made = [make_node(name, "16", "64Gi") for name in nodes]
    return Harness([NodeResourceTopologyMatch], made, objects, args={NAME: args})


# ---- Filter --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "scope", "why"),
    [
        (guaranteed("p", "3", "8"), "container", ""),
        (guaranteed("p", "3", "8"), "pod", "cannot align pod"),
        (guaranteed("p", "8", "8"), "container", "cannot align container"),
        (guaranteed("p", "5", "5", init="8"), "container", "cannot align container"),
        (guaranteed("p", "1", init="9"), "container", "cannot align init container"),
        (make_pod("p", "12", "1Gi"), "container", ""),
    ],
)
def test_pods_go_where_a_kubelet_can_align_them(pod, scope: str, why: str) -> None:
    cluster = harness(topology("a", *FOUR_AND_EIGHT, scope=scope))
    outcome = cluster.schedule(pod)
    assert outcome.bound != bool(why)
    assert outcome.why_not("a") == (f"{NAME}: {why}" if why else "")


def test_a_device_has_to_be_in_the_zone_of_the_cpus() -> None:
    zones = ({"cpu": "8", "memory": "8Gi"}, {"cpu": "1", "memory": "8Gi", "x.io/gpu": "1"})
    node = make_node("a", "16", "64Gi", resources={"x.io/gpu": 1})
    cluster = Harness([NodeResourceTopologyMatch], [node], [topology("a", *zones)])
    amounts = {"cpu": "2", "memory": "1Gi", "x.io/gpu": "1"}
    resources = {"requests": amounts, "limits": amounts}
    pod = make_pod("p", spec={"containers": [{"name": "c", "resources": resources}]})
    assert cluster.schedule(pod).why_not("a") == f"{NAME}: cannot align container"


def test_a_node_without_topology_or_policy_takes_any_pod() -> None:
    cluster = harness(topology("a", {}, topologyManagerPolicy="restricted"), nodes=("a", "b"))
    outcome = cluster.schedule(guaranteed("p", "8", "8"))
    assert set(outcome.feasible) == {"a", "b"}


def test_a_new_topology_wakes_the_pods_that_were_rejected() -> None:
    cluster = harness(topology("a", {"cpu": "1", "memory": "8Gi"}))
    assert not cluster.schedule(guaranteed("p", "2")).bound
    cluster.add(topology("a", {"cpu": "2", "memory": "8Gi"}))
    assert cluster.queue_of("p") in ("active", "backoff")
    assert cluster.schedule("p").bound


def test_a_topology_that_is_gone_wakes_the_pods_that_were_rejected() -> None:
    cluster = harness(topology("a", {"cpu": "1", "memory": "8Gi"}))
    assert not cluster.schedule(guaranteed("p", "2")).bound
    cluster.remove("NodeResourceTopology", "a", "")
    assert cluster.schedule("p").bound


# ---- attributes and QoS --------------------------------------------------------------------------


def test_invalid_attributes_are_ignored_and_deprecated_policies_come_first() -> None:
    def attributes(**values: str) -> tuple[TopologyAttribute, ...]:
        return tuple(TopologyAttribute(name=name, value=value) for name, value in values.items())

    made = NodeResourceTopology(
        topology_policies=("SingleNUMANodePodLevel",),
        attributes=attributes(topologyManagerPolicy="odd", topologyManagerMaxNUMANodes="1"),
    )
    found = NodeTopology.of(made)
    assert (found.policy, found.scope, found.max_numa_nodes) == ("single-numa-node", "pod", 8)
    made = NodeResourceTopology(
        topology_policies=("None",),
        attributes=attributes(topologyManagerPolicy="restricted", topologyManagerMaxNUMANodes="16"),
    )
    found = NodeTopology.of(made)
    assert (found.policy, found.scope, found.max_numa_nodes) == ("restricted", "container", 16)


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"x.io/gpu": "1"}}, "BestEffort"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Burstable"),
        (
            {
                "requests": {"cpu": "1000m", "memory": "1Gi"},
                "limits": {"cpu": "1", "memory": "1Gi"},
            },
            "Guaranteed",
        ),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_the_qos_class_of_a_pod(resources: dict, qos: str) -> None:
    pod = make_pod("p", spec={"containers": [{"name": "c", "resources": resources}]})
    assert qos_class(pod.pod) == qos


# ---- Score ---------------------------------------------------------------------------------------


def test_scores_of_a_zone_count_millicores() -> None:
    zone, amounts = Zone(0, {"cpu": 4000, "memory": 1000}), {"cpu": 1000, "memory": 500}
    assert least_allocated(amounts, zone, {"cpu": 3}) == (3 * 75 + 50) // 4
    assert most_allocated(amounts, zone, {"cpu": 3}) == (3 * 25 + 50) // 4
    assert balanced_allocation(amounts, zone, {}) == int(100 * (1 - 0.25**2 / 2))
    assert balanced_allocation({"cpu": 1000}, zone, {}) == 100
    assert least_allocated({"cpu": 5000}, zone, {}) == 0


def two_zones(near: int, cpus: int, max_numa_nodes: int = 8, self_cost: int = 10) -> NodeTopology:
    zones = tuple(
        Zone(number, {"cpu": cpus}, {number: self_cost, 1 - number: near}) for number in (0, 1)
    )
    return NodeTopology(zones, max_numa_nodes=max_numa_nodes)


@pytest.mark.parametrize(
    ("cpu", "most", "scores"),
    [("1", 8, (94, 88)), ("2", 8, (82,)), ("1", 2, (75, 50)), ("2", 2, (25,))],
)
def test_fewer_and_nearer_zones_are_better(cpu: str, most: int, scores: tuple[int, ...]) -> None:
    demand = Demand.of(make_pod("p", cpu).pod)
    found = [least_numa_nodes_score(demand, two_zones(20, 1000, most))]
    if len(scores) > 1:
        # The nearer zone is full.
        far = Zone(0, {"cpu": 1000}, {0: 15, 1: 20})
        full = Zone(1, {"cpu": 0}, {0: 20, 1: 10})
        found.append(least_numa_nodes_score(demand, NodeTopology((far, full), max_numa_nodes=most)))
    assert tuple(found) == scores


def test_more_zones_than_the_kubelet_allows_score_0() -> None:
    zones = tuple(Zone(number, {"cpu": 1000}) for number in range(3))
    demand = Demand.of(make_pod("p", "3").pod)
    assert least_numa_nodes_score(demand, NodeTopology(zones, max_numa_nodes=2)) == 0
    many = tuple(Zone(number, {"cpu": 1000}) for number in range(40))
    assert least_numa_nodes_score(demand, NodeTopology(many)) == 100 - 3 * 12 + 6


def test_only_guaranteed_pods_are_told_apart() -> None:
    cluster = harness(topology("a", *FOUR_AND_EIGHT), nodes=("a", "b"))
    outcome = cluster.schedule(make_pod("p", "1"))
    assert [outcome.score(name, NAME) for name in "ab"] == [100, 100]
    outcome = cluster.schedule(guaranteed("q", "1"))
    assert [outcome.score(name, NAME) for name in "ab"] == [(75 + 87) // 2, 0]


# ---- the cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64(data: bytes, expected: int) -> None:
    assert xxh64(data) == expected


def test_fingerprints_ignore_the_order_of_pods() -> None:
    pods = [("default", "a"), ("default", "b"), ("kube-system", "a")]
    assert fingerprint(pods) == fingerprint(reversed(pods)) != fingerprint(pods[1:])
    assert fingerprint(pods).startswith("pfp0v001")
    assert len(fingerprint(())) == 8 + 16


ONE_ZONE = {"cpu": "4", "memory": "8Gi"}


def test_reserved_amounts_are_taken_from_every_zone_until_agents_have_caught_up() -> None:
    cluster = harness(topology("a", ONE_ZONE, ONE_ZONE), cacheResyncPeriodSeconds=5)
    assert cluster.schedule(guaranteed("p", "3")).bound
    assert cluster.schedule(guaranteed("q", "3")).why_not("a") == f"{NAME}: cannot align container"
    # Of a time before the pod: no resync.
    cluster.add(topology("a", ONE_ZONE, ONE_ZONE, **{ATTRIBUTE: fingerprint(())}))
    cluster.advance(6)
    assert not cluster.schedule("q").bound
    left = {"cpu": "1", "memory": "7Gi"}
    known = fingerprint([("default", "p")])
    cluster.add(topology("a", left, ONE_ZONE, **{ATTRIBUTE: known}))
    cluster.advance(6)
    assert cluster.schedule("q").bound


def test_a_pod_of_another_scheduler_makes_the_data_doubtful() -> None:
    cluster = harness(topology("a", ONE_ZONE), cacheResyncPeriodSeconds=5)
    cluster.add(make_pod("foreign", node_name="a"))
    assert (
        cluster.schedule(guaranteed("p", "1")).why_not("a") == f"{NAME}: invalid node topology data"
    )
    known = fingerprint([("default", "foreign")])
    cluster.add(topology("a", ONE_ZONE, **{ATTRIBUTE: known}))
    cluster.advance(6)
    assert cluster.schedule("p").bound


def test_without_a_period_agents_are_believed() -> None:
    cluster = harness(topology("a", ONE_ZONE))
    assert cluster.schedule(guaranteed("p", "3")).bound
    assert cluster.schedule(guaranteed("q", "3")).bound


@pytest.mark.parametrize("period", [0, 5])
def test_a_pod_that_is_bound_is_remembered_no_longer(period: int) -> None:
    cluster = harness(topology("a", ONE_ZONE), cacheResyncPeriodSeconds=period)
    assert cluster.schedule(guaranteed("p", "1")).bound
    assert not cluster.plugin(NodeResourceTopologyMatch)._own


@pytest.mark.parametrize(("mode", "preempts"), [("Disabled", False), ("Enabled", True)])
def test_preemption_helps_where_it_is_enabled(mode: str, preempts: bool) -> None:
    cluster = harness(topology("a", {"cpu": "1", "memory": "8Gi"}), preemptionMode=mode)
    cluster.schedule(guaranteed("old", "1"))
    cluster.add(topology("a", {"cpu": "0", "memory": "7Gi"}))
    pod = guaranteed("p", "1")
    cluster.add(pod)  # type: ignore[arg-type]
    cluster.patch("Pod", "p", {"spec": {"priority": 10}})
    cluster.schedule("p")
    names = [key for key in ("default/old",) if key in cluster.api.deleted]
    assert bool(names) == preempts


# ---- over columns --------------------------------------------------------------------------------
