"""TopologyPlacementGenerator, PodGroupPodsCount and NodeResourcesFit's score of placements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import (
    PlacedPod,
    Placement,
    PodGroupAssignments,
    PodGroupInfo,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.objects.node import Node
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.plugins.pod_group_pods_count import PodGroupPodsCount
from proreus.plugins.topology_placement_generator import TopologyPlacementGenerator
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

GATES = ("GenericWorkload=true", "TopologyAwareWorkloadScheduling=true")
GROUP = PodGroupInfo("default", "g", ())
STATE = CycleState()


def group(*keys: str) -> dict[str, Any]:
    constraints = {"topology": [{"key": key} for key in keys]}
    return {
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingConstraints": constraints if keys else None},
    }


def member(name: str, cpu: str = "1", memory: str = "1Gi", node_name: str = "") -> PodInfo:
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    return make_pod(name, cpu, memory, node_name=node_name, spec=spec)


def in_zone(name: str, zone: str = "") -> Node:
    return make_node(name, labels={"zone": zone} if zone else {})


NODES = [in_zone("a", "y"), in_zone("b", "x"), in_zone("c"), in_zone("d", "y")]


def in_1_38(nodes: list[Node], pods: list[PodInfo]) -> FakeHandle:
    return FakeHandle(nodes, pods, objects=[group("zone")], gates=GATES, kubernetes_version="1.38")


def generated(handle: FakeHandle) -> list[Placement] | Status:
    plugin = make_plugin(TopologyPlacementGenerator, handle)
    nodes: NodeTable = handle.nodes
    result = plugin.generate_placements(STATE, GROUP, nodes)
    return result if isinstance(result, Status) else list(result)


def test_each_domain_is_a_placement() -> None:
    handle = FakeHandle(NODES, objects=[group("zone", "ignored")], gates=GATES)
    assert generated(handle) == [Placement("x", {"b"}), Placement("y", {"a", "d"})]


def test_without_constraints_all_nodes_are_one_placement() -> None:
    handle = FakeHandle(NODES, objects=[group()], gates=GATES)
    assert generated(handle) == [Placement("all-nodes", None)]


def test_no_node_has_the_label() -> None:
    handle = FakeHandle(NODES, objects=[group("rack")], gates=GATES)
    assert generated(handle) == []


def test_a_missing_group_is_an_error() -> None:
    status = generated(FakeHandle(NODES, gates=GATES))
    assert isinstance(status, Status)
    assert status.code == Code.ERROR


def test_scheduled_pods_determine_the_domain() -> None:
    pods = [member("p", node_name="a"), member("q", node_name="d")]
    handle = FakeHandle(NODES, pods, objects=[group("zone")], gates=GATES)
    assert generated(handle) == [Placement("y", {"a", "d"})]


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (["c"], "no topology domain found for pod default/p0"),
        (["a", "b"], "more than 1 domain found for pod group: y, x"),
    ],
)
def test_scheduled_pods_without_one_common_domain(places: list[str], text: str) -> None:
    pods = [member(f"p{number}", node_name=name) for number, name in enumerate(places)]
    handle = FakeHandle(NODES, pods, objects=[group("zone")], gates=GATES)
    prefix = "cannot determine domain for already scheduled pods: "
    assert generated(handle) == Status.error(prefix + text)


def test_nodes_with_an_empty_label_are_in_no_domain_since_1_38() -> None:
    nodes = [make_node("a", labels={"zone": ""}), in_zone("b", "x")]
    assert generated(in_1_38(nodes, [])) == [Placement("x", {"b"})]


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (["e"], "empty topology domain found for pod default/p0"),
        (["a", "e"], "empty topology domain found for pod default/p1"),
        (["c"], "no topology domain found for pod default/p0"),
        (["a", "b"], 'more than 1 domain found for pod group: "y", "x"'),
    ],
)
def test_scheduled_pods_without_one_common_domain_since_1_38(places: list[str], text: str) -> None:
    nodes = [*NODES, make_node("e", labels={"zone": ""})]
    pods = [member(f"p{number}", node_name=name) for number, name in enumerate(places)]
    prefix = "cannot determine domain for already scheduled pods: "
    assert generated(in_1_38(nodes, pods)) == Status.error(prefix + text)


def test_an_empty_domain_is_overruled_by_any_other_up_to_1_37() -> None:
    # kube-scheduler takes the empty name for "none yet".
    nodes = [make_node("a", labels={"zone": ""}), in_zone("b", "x")]
    pods = [member("p", node_name="a"), member("q", node_name="b")]
    handle = FakeHandle(nodes, pods, objects=[group("zone")], gates=GATES)
    assert generated(handle) == [Placement("x", {"b"})]


def assigned(*names: str, nodes: set[str] | None = None) -> PodGroupAssignments:
    pods = tuple(PlacedPod(member(name), "a") for name in names)
    return PodGroupAssignments(Placement("x", nodes), pods)


def test_pods_are_counted_with_scheduled_ones() -> None:
    there = [member("p", node_name="a"), member("q")]
    plugin = make_plugin(PodGroupPodsCount, FakeHandle(NODES, there, gates=GATES))
    assert plugin.score_placement(STATE, GROUP, assigned("r", "s")) == 3


def test_counts_are_scaled_to_the_highest() -> None:
    plugin = make_plugin(PodGroupPodsCount, FakeHandle(gates=GATES))
    scores = plugin.normalize_placements(STATE, GROUP, np.array([4, 8, 2]))
    assert not isinstance(scores, Status)
    assert scores.tolist() == [50, 100, 25]


def test_no_pods_anywhere_is_an_error() -> None:
    plugin = make_plugin(PodGroupPodsCount, FakeHandle(gates=GATES))
    text = "no pods from pod group are assigned to any of the candidate placements"
    assert plugin.normalize_placements(STATE, GROUP, np.array([0, 0])) == Status.error(text)


def test_fit_scores_the_fullness_of_all_nodes_of_a_placement_together() -> None:
    there = make_pod("there", "1", "2Gi", node_name="a")
    handle = FakeHandle([*NODES, make_node("big", "100")], [there])
    plugin = make_plugin(NodeResourcesFit, handle)

    # (3000/8000 -> 37, 4Gi/16Gi -> 25) / 2
    assert plugin.score_placement(STATE, GROUP, assigned("p", "q", nodes={"a", "b"})) == 31


def test_fit_ignores_what_runs_on_nodes_without_the_resource() -> None:
    there = make_pod("there", "3", "2Gi", node_name="gone")
    handle = FakeHandle([make_node("a"), make_node("gone", "0")], [there])
    plugin = make_plugin(NodeResourcesFit, handle)

    # (1000/4000 -> 25, 3Gi/16Gi -> 18) / 2
    assert plugin.score_placement(STATE, GROUP, assigned("p", nodes={"a", "gone"})) == 21


def test_fit_ignores_resources_that_no_pod_requests() -> None:
    resources = [{"name": "cpu", "weight": 1}, {"name": "vendor/gpu", "weight": 1}]
    args = {"scoringStrategy": {"type": "LeastAllocated", "resources": resources}}
    handle = FakeHandle([make_node("a", resources={"vendor/gpu": 4})])
    plugin = make_plugin(NodeResourcesFit, handle, args)
    requesting = make_pod("p", "1", resources={"vendor/gpu": 4})
    all_nodes_feasible = PodGroupAssignments(Placement("all", None), (PlacedPod(requesting, "a"),))

    assert plugin.score_placement(STATE, GROUP, assigned("p")) == 25
    assert plugin.score_placement(STATE, GROUP, all_nodes_feasible) == (25 + 100) // 2
