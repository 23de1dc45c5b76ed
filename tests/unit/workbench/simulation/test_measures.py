"""Utilisation, fragmentation and spread: the figures, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from clusters import ZONE, cluster, node, pod, run

from proreus.framework.cluster_table import ClusterTable
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.workbench.simulation.controllers import Controllers, is_daemon_pod
from proreus.workbench.simulation.scenario import Scenario
from proreus.workbench.simulation.spread import PodSpread
from proreus.workbench.simulation.utilisation import measure, shapes_of


def table_of(*nodes, pods=()):
    table = ClusterTable()
    for one in nodes:
        info = NodeInfo(one["metadata"]["name"])
        info.set_node(decoder_for(NODES.type).convert(one))
        table.add_node(info)
    for one in pods:
        typed = decoder_for(PODS.type).convert(one)
        table.add_pod(table.rows[typed.spec.node_name], PodInfo(typed))
    return table


def test_utilisation_of_two_nodes() -> None:
    table = table_of(node("n0"), node("n1"), pods=[pod("a", "1", on="n0"), pod("b", "2", on="n0")])
    use = measure(table, {})
    cpu = use.resources["cpu"]
    assert (use.nodes, use.empty_nodes, use.pods) == (2, 1, 2)
    assert (cpu.allocatable, cpu.requested, cpu.share) == (8000, 3000, 0.375)
    # Shares of 3/4 and 0: the standard deviation is half of their distance.
    assert cpu.imbalance == 0.375
    assert (cpu.histogram[0], cpu.histogram[15], sum(cpu.histogram)) == (1, 1, 2)
    assert use.resources["pods"].requested == 2


def test_fragments_are_what_a_pod_of_the_cluster_cannot_use() -> None:
    # Free: 1 CPU on n0, 4 on n1. Pods of 1 CPU fit on both, pods of 2 only on n1.
    table = table_of(node("n0"), node("n1"), pods=[pod("a", "3", on="n0")])
    cpu = {"cpu": 1000}, {"cpu": 2000}
    assert measure(table, shapes_of([cpu[0]])).resources["cpu"].fragmentation == 0
    assert measure(table, shapes_of([cpu[1]])).resources["cpu"].fragmentation == 0.2
    # As often as they occur: one of four.
    both = shapes_of([cpu[1], cpu[0], cpu[0], cpu[0]])
    assert measure(table, both).resources["cpu"].fragmentation == 0.05
    nothing_fits = shapes_of([{"cpu": 5000}])
    assert measure(table, nothing_fits).resources["memory"].fragmentation == 1


def test_a_cordoned_node_is_no_capacity() -> None:
    cordoned = node("n0", unschedulable=True)
    pods = [pod("a", "1", on="n0"), pod("b", "1", on="n1")]
    use = measure(table_of(cordoned, node("n1"), pods=pods), shapes_of([{"cpu": 1000}]))
    cpu = use.resources["cpu"]
    assert (use.nodes, use.pods) == (2, 2)
    assert (cpu.allocatable, cpu.requested, cpu.fragmentation) == (4000, 1000, 0)


def test_free_resources_of_a_full_node_are_a_fragment() -> None:
    shapes = shapes_of([{"cpu": 1000}])
    full = node("n0")
    full["status"]["allocatable"]["pods"] = "1"
    table = table_of(full, node("n1"), pods=[pod("a", "1", on="n0")])
    assert measure(table, shapes).resources["cpu"].fragmentation == pytest.approx(3 / 7, abs=1e-6)


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    shapes = shapes_of([{"example.com/gpu": 1}])
    assert measure(table_of(node("n0")), shapes).resources["cpu"].fragmentation == 1


def test_fragmentation_is_that_of_counting_pod_by_pod_and_node_by_node() -> None:
    rng = np.random.default_rng(1)
    nodes = [node(f"n{number}", cpu=str(number % 5 + 1)) for number in range(20)]
    pods = [
        pod(f"p{number}", f"{int(rng.integers(1, 9))}00m", on=f"n{int(rng.integers(20))}")
        for number in range(40)
    ]
    table = table_of(*nodes, pods=pods)
    requests = [{"cpu": int(rng.integers(1, 40)) * 100} for _ in range(30)]
    free = [
        int(a - r) for a, r in zip(table.allocatable["cpu"], table.requested["cpu"], strict=True)
    ]
    expected = np.mean([sum(max(f, 0) for f in free if f < one["cpu"]) for one in requests]) / sum(
        max(f, 0) for f in free
    )
    found = measure(table, shapes_of(requests)).resources["cpu"].fragmentation
    assert found == pytest.approx(expected, abs=1e-6)


def test_requests_of_no_amount_are_no_shape() -> None:
    assert shapes_of([{}, {"cpu": 0}, {"cpu": 5, "memory": 0}]) == {(("cpu", 5),): 1}


def test_skew_counts_domains_without_pods() -> None:
    objects = cluster(
        node("n0", zone="a"),
        node("n1", zone="b"),
        node("n2"),
        *(pod(f"web-{n}", on="n0", of="ReplicaSet/web") for n in range(2)),
        pod("web-2", on="n2", of="ReplicaSet/web"),
        pod("alone", on="n0"),
    )
    controllers = Controllers(objects)
    counts = PodSpread(objects.of(NODES), objects.of(PODS).values(), controllers)
    ((workload, key),) = counts.counts
    assert (str(workload), key) == ("replicaset/shop/web", ZONE)
    # Two in zone a, none in zone b; the node without a zone is in no domain.
    assert counts.skew((workload, key)) == 2
    assert counts.pods[workload] == 3


def test_static_pods_belong_to_their_node() -> None:
    static = pod("static", on="n0")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    objects = cluster(node("n0"), static, pod("web", on="n0", of="ReplicaSet/web"))
    assert [is_daemon_pod(one) for one in objects.of(PODS).values()] == [True, False]


def test_before_and_after_are_measured_with_the_same_pods() -> None:
    scenario = Scenario(cluster(node("n0"), node("n1"), pod("new", "3")))
    result = run(scenario)
    assert result.before.resources["cpu"].fragmentation == 0
    # One CPU of five that are left is on a node where a pod like this one does not fit.
    assert result.after.resources["cpu"].fragmentation == 0.2
