"""NodeName: the named node or none."""

from __future__ import annotations

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, NODE, ClusterEvent
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.plugins.node_name import NodeName
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

REJECTED = Status.unresolvable("node(s) didn't match the requested node name").with_plugin(
    "NodeName"
)


@pytest.mark.parametrize(
    ("wanted", "statuses"),
    [
        ("", [None, None]),
        ("n1", [REJECTED, None]),
        ("gone", [REJECTED, REJECTED]),
    ],
)
def test_filter(wanted: str, statuses: list[Status | None]) -> None:
    handle = FakeHandle([make_node("n0"), make_node("n1")])
    plugin = make_plugin(NodeName, handle)
    pod = make_pod(node_name=wanted)
    verdicts = Verdicts(2, plugin.name)

    plugin.filter_all(CycleState(), pod, handle.nodes, verdicts)

    assert [verdicts.status(row) for row in range(2)] == statuses
    assert_agreement(plugin, pod, handle.nodes)


@pytest.mark.parametrize(("wanted", "names"), [("", None), ("n1", frozenset({"n1"}))])
def test_pre_filter_names_the_node(wanted: str, names: frozenset[str] | None) -> None:
    handle = FakeHandle([make_node("n0"), make_node("n1")])
    plugin = make_plugin(NodeName, handle)

    assert plugin.pre_filter(CycleState(), make_pod(node_name=wanted), handle.nodes) == names


def test_new_nodes_queue_pods() -> None:
    plugin = make_plugin(NodeName, FakeHandle())

    assert tuple(plugin.events_to_register()) == (ClusterEvent(NODE, ADD),)
