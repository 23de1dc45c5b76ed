"""Which pods are evicted together, with which priority, and which units are kept first."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.pod_info import PodInfo
from proreus.plugins.default_preemption.domain_victims import (
    DomainVictim,
    DomainVictims,
    NodeNotFound,
    check_nodes,
)
from proreus.testing import FakeHandle, make_node, make_pod

GROUPS = ("GenericWorkload=true",)
TREES = (*GROUPS, "TopologyAwareWorkloadScheduling=true", "CompositePodGroup=true")


def group(
    name: str, priority: int, mode: str = "single", parent: str = "", kind: str = "PodGroup"
) -> dict[str, Any]:
    spec = {"priority": priority, "disruptionMode": {mode: {}}}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return {"kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def pod(name: str, node: str, of: str = "", priority: int = 0, started: int = 0) -> PodInfo:
    spec = {"schedulingGroup": {"podGroupName": of}} if of else {}
    status = {"startTime": f"2026-01-01T00:00:0{started}Z"} if started else {}
    return make_pod(name, node_name=node, priority=priority, spec=spec, status=status)


def victims(
    pods: list[PodInfo],
    *groups: dict[str, Any],
    gates: tuple[str, ...] = TREES,
    nodes: tuple[str, ...] = ("a", "b"),
    by_root: bool = True,
) -> tuple[DomainVictims, FakeHandle]:
    handle = FakeHandle(
        [make_node(name) for name in nodes],
        pods,
        objects=groups,
        gates=gates,
        kubernetes_version="1.37",
    )
    states = handle.pod_group_states
    found = DomainVictims(handle.workload_forest, states, handle.nodes, by_root=by_root)
    return found, handle


def described(units: list[DomainVictim]) -> list[tuple[str, int, bool]]:
    return [
        (" ".join(f"{p.name}@{name}" for p, name in unit.placed), unit.priority, unit.is_group)
        for unit in units
    ]


def test_a_group_of_mode_all_is_one_unit_on_all_its_nodes() -> None:
    pods = [
        pod("x", "a", priority=1),
        pod("g0", "a", "g"),
        pod("g1", "b", "g"),
        pod("g2", "a", "g"),
    ]
    found, handle = victims(pods, group("g", 5, "all"))

    whole = ("g0@a g1@b g2@a", 5, True)
    assert described(found.of_nodes(handle.nodes)) == [("x@a", 1, False), whole]
    assert described(found.of_nodes([handle.nodes[1]])) == [whole], "one node finds those of others"


def test_pods_of_mode_single_are_pods_of_their_own_priority() -> None:
    pods = [pod("g0", "a", "g", priority=7), pod("g1", "b", "g", priority=7)]
    found, handle = victims(pods, group("g", 5), by_root=False)

    units = found.of_nodes(handle.nodes)
    assert described(units) == [("g0@a", 7, False), ("g1@b", 7, False)]
    assert found.priority_of(pods[0]) == 7


def test_a_group_of_mode_all_has_the_priority_of_its_pods() -> None:
    pods = [pod("g0", "a", "g", priority=7), pod("g1", "b", "g", priority=7)]
    found, handle = victims(pods, group("g", 5, "all"), by_root=False)

    assert described(found.of_nodes(handle.nodes)) == [("g0@a g1@b", 7, True)]


def test_up_to_1_37_pods_of_mode_single_are_units_of_their_groups_priority() -> None:
    found, handle = victims([pod("g0", "a", "g", priority=900), pod("g1", "b", "g")], group("g", 5))

    units = found.of_nodes(handle.nodes)
    assert described(units) == [("g0@a", 5, True), ("g1@b", 5, True)]


def test_a_pod_whose_group_is_unknown_counts_with_its_own_priority() -> None:
    found, handle = victims([pod("g0", "a", "gone", priority=7)])

    assert described(found.of_nodes(handle.nodes)) == [("g0@a", 7, True)]
    assert found.priority_of(pod("p", "a", priority=3)) == 3


@pytest.mark.parametrize(
    ("root_mode", "leaf_mode", "units"),
    [
        ("all", "single", ["x0@a y0@b"]),
        ("all", "all", ["x0@a y0@b"]),
        ("single", "all", ["x0@a", "y0@b"]),
        ("single", "single", ["x0@a", "y0@b"]),
    ],
)
def test_the_topmost_group_of_mode_all_decides(
    root_mode: str, leaf_mode: str, units: list[str]
) -> None:
    found, handle = victims(
        [pod("x0", "a", "x"), pod("y0", "b", "y")],
        group("x", 1, leaf_mode, "root"),
        group("y", 2, leaf_mode, "root"),
        group("root", 40, root_mode, kind="CompositePodGroup"),
    )

    assert described(found.of_nodes(handle.nodes)) == [(unit, 40, True) for unit in units]


def test_without_the_gate_a_group_has_no_parent() -> None:
    pods = [pod("x0", "a", "x"), pod("y0", "b", "y")]
    groups = (
        group("x", 1, "single", "root"),
        group("y", 2, "all", "root"),
        group("root", 40, "all", kind="CompositePodGroup"),
    )
    found, handle = victims(pods, *groups, gates=GROUPS)

    assert described(found.of_nodes(handle.nodes)) == [("x0@a", 1, True), ("y0@b", 2, True)]


def test_the_priority_is_that_of_the_topmost_group_that_is_known() -> None:
    found, handle = victims([pod("x0", "a", "x", priority=3)], group("x", 8, "all", "gone"))

    assert described(found.of_nodes(handle.nodes)) == [("x0@a", 8, True)]


def test_a_group_with_a_pod_on_an_unknown_node_is_an_error() -> None:
    found, handle = victims([pod("g0", "a", "g")], group("g", 5, "all"))
    handle.pod_group_states.assign(pod("g1", "gone", "g"))

    with pytest.raises(NodeNotFound) as error:
        check_nodes(found.of_nodes(handle.nodes), handle.nodes)
    assert str(error.value) == (
        'failed to get node info for node "gone" from snapshot: nodeinfo not found for node name '
        '"gone"'
    )


def test_the_order_of_importance() -> None:
    """By priority, kind of unit, number of pods and start; else as listed."""
    pods = [
        pod("late", "a", priority=5, started=3),
        pod("new", "a", priority=5),
        pod("early", "a", priority=5, started=1),
        pod("single", "a", "s", started=2),
        pod("newer", "a", priority=5),
        *(pod(f"two{i}", "b", "two", started=i + 2) for i in range(2)),
        *(pod(f"pair{i}", "a", "pair", started=i + 1) for i in range(2)),
        *(pod(f"three{i}", "b", "three") for i in range(3)),
        pod("leaf", "b", "leaf"),
        pod("top", "b", priority=6),
    ]
    found, handle = victims(
        pods,
        group("s", 5),
        *(group(name, 5, "all") for name in ("two", "pair", "three")),
        group("leaf", 0, "single", "root"),
        group("root", 5, "all", kind="CompositePodGroup"),
    )

    units = sorted(found.of_nodes(handle.nodes), key=lambda unit: unit.importance)

    first_pods = [unit.pods[0].name for unit in units]
    groups = ["leaf", "three0", "pair0", "two0", "single"]
    assert first_pods == ["top", *groups, "early", "late", "new", "newer"]


def test_since_1_38_the_smaller_uid_of_equal_units_is_the_more_important() -> None:
    pods = [pod("c", "a"), pod("a", "b"), pod("b", "a"), pod("g0", "a", "g"), pod("f0", "a", "f")]
    by_uid, handle = victims(pods, group("g", 0, "all"), group("f", 0, "all"), by_root=False)

    units = sorted(by_uid.of_nodes(handle.nodes), key=lambda unit: unit.importance)
    assert [unit.pods[0].name for unit in units] == ["f0", "g0", "a", "b", "c"]
