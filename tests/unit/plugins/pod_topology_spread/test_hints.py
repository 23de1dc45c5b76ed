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
from proreus.objects.meta import ObjectMeta
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.workloads import Service, ServiceSpec
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


def tolerating(taints: str) -> Pod:
    return waiting(taints, tolerations=[{"operator": "Exists"}]).pod


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
        (waiting("Honor"), waiting("Honor").pod, tolerating("Honor"), True),
        (waiting(), waiting().pod, tolerating("Ignore"), False),
        (waiting(), waiting().pod, waiting(metadata={"labels": {}}).pod, True),
    ],
)
def test_pods(pod: PodInfo, old: Pod | None, new: Pod | None, queued: bool) -> None:
    event, _ = make_plugin(
        PodTopologySpread, FakeHandle(kubernetes_version="1.36")
    ).events_to_register()
    assert event.hint is not None

    assert event.hint(pod, old, new) is queued


def test_labels_of_the_pod_itself_that_its_constraint_reads() -> None:
    """Without the label, pods count whatever their revision is."""

    def revised(**labels: str) -> PodInfo:
        (constraint,) = waiting().pod.spec.topology_spread_constraints
        spec = {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": constraint.topology_key,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                    "matchLabelKeys": ["revision"],
                }
            ]
        }
        return make_pod("waiting", labels={"app": "x", **labels}, spec=spec)

    event, _ = make_plugin(
        PodTopologySpread, FakeHandle(kubernetes_version="1.36")
    ).events_to_register()
    assert event.hint is not None

    assert event.hint(revised(), revised(revision="1").pod, revised().pod)
    assert not event.hint(revised(), revised().pod, revised(more="y").pod)


@pytest.mark.parametrize("defaults", ["DoNotSchedule", "ScheduleAnyway"])
def test_services_and_owners_where_default_constraints_can_reject(defaults: str) -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": defaults}
    args = {"defaultingType": "List", "defaultConstraints": [constraint]}
    found = make_plugin(PodTopologySpread, FakeHandle(), args).events_to_register()
    hints = [event.hint for event in found if event.resource == "Service"]
    if defaults == "ScheduleAnyway":
        assert not hints
        return
    (hint,) = hints
    assert hint is not None

    def service(namespace: str = "default", **selector: str) -> Service:
        return Service(ObjectMeta(name="s", namespace=namespace), ServiceSpec(selector))

    pod = make_pod("pod")
    assert hint(pod, None, service(app="x"))
    assert hint(pod, service(app="x"), None)
    assert hint(pod, service(app="x"), service(app="y"))
    assert not hint(pod, service(app="x"), service(app="x"))
    assert not hint(pod, None, service("elsewhere", app="x"))
    assert not hint(waiting(), None, service(app="x"))


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
