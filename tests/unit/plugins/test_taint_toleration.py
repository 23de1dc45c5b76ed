"""TaintToleration: hard taints reject, soft ones count, hints compare both versions of a node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.framework.cluster_table import ClusterTable
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code
from proreus.framework.verdicts import Verdicts
from proreus.objects.node import Node
from proreus.plugins.taint_toleration import TaintToleration
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod, make_table
from proreus.testing.agreement import assert_agreement


def tolerating(*tolerations: dict[str, Any], name: str = "pod") -> PodInfo:
    return make_pod(name, tolerations=tolerations)


def passes(pod: PodInfo, *taints: str, gates: tuple[str, ...] = ()) -> bool:
    handle = FakeHandle([make_node("n1", taints=taints)], gates=gates)
    plugin = make_plugin(TaintToleration, handle)
    assert_agreement(plugin, pod, handle.nodes)
    status = plugin.filter(CycleState(), pod, handle.nodes[0])
    if status is not None:
        assert status.code == Code.UNRESOLVABLE
        assert status.reasons == ("node(s) had untolerated taint(s)",)
    return status is None


@pytest.mark.parametrize(
    ("toleration", "passing"),
    [
        (None, False),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "other"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"value": "v"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Near", "value": "v"}, False),
    ],
)
def test_filter(toleration: dict[str, Any] | None, passing: bool) -> None:
    pod = tolerating(*([toleration] if toleration is not None else []))

    assert passes(pod, "k=v:NoSchedule") is passing


def test_every_hard_taint_must_be_tolerated() -> None:
    pod = tolerating({"key": "a", "operator": "Exists"})

    assert passes(pod, "a:NoSchedule", "a:NoExecute", "b:PreferNoSchedule")
    assert not passes(pod, "a:NoSchedule", "b:NoExecute")


@pytest.mark.parametrize(
    ("operator", "value", "taint", "passing"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "-4", True),
        ("Lt", "5", "04", False),
        ("Lt", "five", "4", False),
    ],
)
def test_numbers_are_compared_with_the_gate_only(
    operator: str, value: str, taint: str, passing: bool
) -> None:
    pod = tolerating({"key": "k", "operator": operator, "value": value})
    gate = "TaintTolerationComparisonOperators=true"

    assert passes(pod, f"k={taint}:NoSchedule", gates=(gate,)) is passing
    assert not passes(pod, f"k={taint}:NoSchedule")


def test_score_counts_soft_taints_that_are_not_tolerated() -> None:
    nodes = [
        make_node("n0", taints=["a:PreferNoSchedule"]),
        make_node("n1", taints=["a:PreferNoSchedule", "b:PreferNoSchedule", "c:PreferNoSchedule"]),
        make_node("n2", taints=["c:PreferNoSchedule", "d:NoSchedule"]),
    ]
    handle = FakeHandle(nodes)
    plugin = make_plugin(TaintToleration, handle)
    hard = {"key": "c", "operator": "Exists", "effect": "NoSchedule"}
    pod = tolerating({"key": "a", "operator": "Exists"}, hard)

    assert np.asarray(plugin.score_all(CycleState(), pod, handle.nodes)).tolist() == [0, 2, 1]
    assert_agreement(plugin, pod, handle.nodes)


def test_without_soft_taints_all_score_the_same() -> None:
    handle = FakeHandle([make_node("n0"), make_node("n1", taints=["a:NoSchedule"])])
    plugin = make_plugin(TaintToleration, handle)

    assert plugin.pre_score(CycleState(), make_pod(), handle.nodes) is None
    assert plugin.score_all(CycleState(), make_pod(), handle.nodes) == 0


@pytest.mark.parametrize(("raw", "final"), [([0, 1, 3], [100, 67, 0]), ([0, 0], [100, 100])])
def test_normalize(raw: list[int], final: list[int]) -> None:
    plugin = make_plugin(TaintToleration, FakeHandle())
    scores = np.array(raw, dtype=np.int64)

    assert plugin.normalize(CycleState(), make_pod(), scores).tolist() == final
    assert scores.tolist() == raw


def test_nothing_is_allocated_while_nothing_is_rejected() -> None:
    handle = FakeHandle([make_node("n0", taints=["a:PreferNoSchedule"])])
    verdicts = Verdicts(1)

    make_plugin(TaintToleration, handle).filter_all(
        CycleState(), make_pod(), handle.nodes, verdicts
    )

    assert verdicts.ids is None


def helps(resource: str, pod: PodInfo, old: Any, new: Any) -> bool:
    plugin = make_plugin(TaintToleration, FakeHandle())
    hint = {event.resource: event.hint for event in plugin.events_to_register()}[resource]
    assert hint is not None
    return hint(pod, old, new)


OPEN, CLOSED = make_node("n1"), make_node("n1", taints=["a:NoSchedule"])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, OPEN, True),
        (None, CLOSED, False),
        (CLOSED, OPEN, True),
        (OPEN, OPEN, False),
        (OPEN, CLOSED, False),
        (CLOSED, CLOSED, False),
    ],
)
def test_a_node_that_becomes_tolerable_helps(old: Node | None, new: Node, expected: bool) -> None:
    assert helps("Node", make_pod(), old, new) is expected


def test_the_pods_own_tolerations_help() -> None:
    pod = make_pod("waiting")

    assert helps("TargetPod", pod, pod.pod, pod.pod)
    assert not helps("TargetPod", pod, pod.pod, make_pod("other").pod)


def test_soft_taints_of_nodes_that_change_are_counted_anew() -> None:
    soft = [make_node(f"n{n}", taints=[f"t{i}:PreferNoSchedule" for i in range(n)]) for n in (1, 2)]
    table = make_table([make_node("n0", taints=["k:NoSchedule"]), *soft])
    assert isinstance(table, ClusterTable)
    plugin = make_plugin(TaintToleration, FakeHandle())

    def scores() -> list[int]:
        scored = plugin.score_all(CycleState(), make_pod("p"), table)
        return np.broadcast_to(scored, len(table)).tolist()

    assert scores() == [0, 1, 2]
    table[0].set_node(make_node("n0", taints=["a:PreferNoSchedule"] * 3))
    table.update_node(table[0])
    assert scores() == [3, 1, 2]
    table.remove_node(table[1])
    table.age()  # codes are given anew
    assert sorted(scores()) == [2, 3]
