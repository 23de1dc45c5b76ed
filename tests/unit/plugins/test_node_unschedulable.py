"""NodeUnschedulable: cordons, tolerations of them, hints."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.status import Status
from proreus.objects.node import Node
from proreus.plugins.node_unschedulable import NodeUnschedulable
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

KEY = "node.kubernetes.io/unschedulable"
OPEN, CORDONED = make_node("n1"), make_node("n1", unschedulable=True)


@pytest.mark.parametrize(
    ("tolerations", "passing"),
    [
        ([], False),
        ([{"key": KEY, "effect": "NoSchedule"}], True),
        ([{"key": KEY, "operator": "Exists"}], True),
        ([{"operator": "Exists"}], True),
        ([{"key": KEY, "operator": "Equal", "value": "x"}], False),
        ([{"key": KEY, "effect": "NoExecute"}], False),
        ([{"key": "other", "operator": "Exists"}], False),
    ],
)
def test_filter(tolerations: list[dict[str, Any]], passing: bool) -> None:
    handle = FakeHandle([CORDONED])
    plugin = make_plugin(NodeUnschedulable, handle)
    pod = make_pod(tolerations=tolerations)
    rejected = Status.unresolvable("node(s) were unschedulable").with_plugin("NodeUnschedulable")

    assert_agreement(plugin, pod, handle.nodes)
    status = plugin.filter(CycleState(), pod, handle.nodes[0])
    assert (status and status.with_plugin(plugin.name)) == (None if passing else rejected)


def test_nodes_without_cordon_accept_every_pod_whatever_their_taints() -> None:
    handle = FakeHandle([make_node("n1", taints=[f"{KEY}:NoSchedule"])])
    plugin = make_plugin(NodeUnschedulable, handle)

    assert plugin.filter(CycleState(), make_pod(), handle.nodes[0]) is None


def helps(resource: str, old: Any, new: Any, name: str = "waiting") -> bool:
    plugin = make_plugin(NodeUnschedulable, FakeHandle())
    hint = {event.resource: event.hint for event in plugin.events_to_register()}[resource]
    assert hint is not None
    return hint(make_pod(name), old, new)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, OPEN, True),
        (None, CORDONED, False),
        (CORDONED, OPEN, True),
        (OPEN, OPEN, False),
        (OPEN, CORDONED, False),
    ],
)
def test_a_node_helps_that_is_uncordoned(old: Node | None, new: Node, expected: bool) -> None:
    assert helps("Node", old, new) is expected


def test_tolerations_of_the_unschedulable_taint_help() -> None:
    before = make_pod("waiting").pod
    enough = make_pod("waiting", tolerations=[{"key": KEY, "operator": "Exists"}]).pod
    other = make_pod("waiting", tolerations=[{"key": "k", "operator": "Exists"}]).pod

    assert helps("TargetPod", before, enough)
    assert not helps("TargetPod", before, other)
    assert not helps("TargetPod", before, enough, name="somebody-else")
