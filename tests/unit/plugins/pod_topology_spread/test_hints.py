"""The queueing hints of PodTopologySpread."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.events import (
    ADD,
    DELETE,
    NODE,
    POD,
    UPDATE_NODE_LABEL,
    UPDATE_NODE_TAINT,
    UPDATE_POD_DELETION_TIMESTAMP,
    UPDATE_POD_LABEL,
    UPDATE_POD_TOLERATION,
)
from proreus.framework.pod_info import PodInfo
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.plugins.pod_topology_spread import PodTopologySpread
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod


def waiting(taints: str = "Ignore", action: str = "DoNotSchedule", **more: Any) -> PodInfo:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"app": "x"}},
        "nodeTaintsPolicy": taints,
    }
    spec = {"topologySpreadConstraints": [constraint]}
    return make_pod("waiting", labels={"app": "x"}, spec=spec, **more)


def other(app: str = "x", node_name: str = "n1", **more: Any) -> Pod:
    return make_pod("other", labels={"app": app}, node_name=node_name, **more).pod


def zoned(zone: str = "", *taints: str) -> Node:
    return make_node("n", labels={"zone": zone} if zone else {}, taints=taints)


ENDING = {"deletionTimestamp": "2025-01-01T00:00:00Z"}
TOLERATING = waiting("Honor", tolerations=[{"operator": "Exists"}]).pod


def test_events_of_1_36() -> None:
    pods, nodes = make_plugin(
        PodTopologySpread, FakeHandle(kubernetes_version="1.36")
    ).events_to_register()

    assert (pods.resource, nodes.resource) == (POD, NODE)
    updates = UPDATE_POD_LABEL | UPDATE_POD_TOLERATION | UPDATE_POD_DELETION_TIMESTAMP
    assert pods.action == ADD | updates | DELETE
    assert nodes.action == ADD | DELETE | UPDATE_NODE_LABEL | UPDATE_NODE_TAINT


@pytest.mark.parametrize(
    ("pod", "old", "new", "queued"),
    [
        (waiting(), None, other(), True),
        (waiting(), None, other("y"), False),
        (waiting(), None, other(node_name=""), False),
        (waiting(), None, other(node_name="", status={"nominatedNodeName": "n1"}), True),
        (waiting(), None, other(namespace="elsewhere"), False),
        (waiting(action="ScheduleAnyway"), None, other(), False),
        (waiting(), other(), None, True),
        (waiting(), other("y"), None, False),
        (waiting(), other(), other(metadata=ENDING), True),
        (waiting(), other("y"), other("y", metadata=ENDING), False),
        (waiting(), other(), other("y"), True),
        (waiting(), other("y"), other(), True),
        (waiting(), other("y"), other("z"), False),
        (waiting(), other(), other(status={"phase": "Running"}), False),
        (waiting(), other(node_name=""), other("y"), False),
        (waiting("Honor"), waiting("Honor").pod, TOLERATING, True),
        (waiting(), waiting().pod, TOLERATING, False),
        (waiting(), waiting().pod, waiting(metadata={"labels": {}}).pod, True),
    ],
)
def test_pods(pod: PodInfo, old: Pod | None, new: Pod | None, queued: bool) -> None:
    event, _ = make_plugin(
        PodTopologySpread, FakeHandle(kubernetes_version="1.36")
    ).events_to_register()
    assert event.hint is not None

    assert event.hint(pod, old, new) is queued


@pytest.mark.parametrize(
    ("old", "new", "queued"),
    [
        (None, zoned("a"), True),
        (None, zoned(), False),
        (zoned("a"), None, True),
        (zoned(), None, False),
        (zoned(), zoned("a"), True),
        (zoned("a"), zoned(), True),
        (zoned("a"), zoned("b"), True),
        (zoned("a"), zoned("a"), False),
        (zoned("a"), zoned("a", "k:NoSchedule"), True),
        (zoned(), zoned("", "k:NoSchedule"), False),
    ],
)
def test_nodes(old: Node | None, new: Node | None, queued: bool) -> None:
    _, event = make_plugin(
        PodTopologySpread, FakeHandle(kubernetes_version="1.36")
    ).events_to_register()
    assert event.hint is not None

    assert event.hint(waiting(), old, new) is queued
