"""NodeDeclaredFeatures: required features, declared features, and queueing hints."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, NODE, TARGET_POD, UPDATE, UPDATE_NODE_DECLARED_FEATURE
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.node import Node
from proreus.plugins.node_declared_features import NodeDeclaredFeatures, required_features
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

RESTART = "RestartAllContainersOnContainerExits"
USERNS = "UserNamespacesHostNetworkSupport"
MOUNTS = "VolumeBindMountOptions"
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]
RESTARTING = {"containers": [{"name": "c", "restartPolicyRules": RULES}]}
HOST = {"hostNetwork": True, "hostUsers": False}


def declaring(name: str, *features: str) -> Node:
    return make_node(name, status={"declaredFeatures": list(features)})


NODES = [declaring("both", RESTART, "Other", USERNS), declaring("one", USERNS), declaring("none")]


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({}, set()),
        (RESTARTING, {RESTART}),
        ({"initContainers": RESTARTING["containers"]}, {RESTART}),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, set()),
        (HOST, {USERNS}),
        ({"hostNetwork": True}, set()),
        ({"hostNetwork": True, "hostUsers": True}, set()),
        ({"hostUsers": False}, set()),
        (RESTARTING | HOST, {RESTART, USERNS}),
    ],
)
def test_required_features_of_pods(spec: dict[str, Any], features: set[str]) -> None:
    assert required_features(make_pod(spec=spec).pod) == features


MOUNTING = {"name": "c", "volumeMounts": [{"name": "a"}, {"bindMountOptions": ["noexec"]}]}


@pytest.mark.parametrize("field", ["containers", "initContainers", "ephemeralContainers"])
def test_bind_mount_options_require_a_feature_since_1_37(field: str) -> None:
    pod = make_pod(spec={field: [MOUNTING]})
    empty = make_pod(spec={field: [{"name": "c", "volumeMounts": [{"bindMountOptions": []}]}]})
    found = {}
    for version in ("1.36", "1.37"):
        handle = FakeHandle([declaring("n", MOUNTS)], kubernetes_version=version)
        plugin = make_plugin(NodeDeclaredFeatures, handle)
        assert plugin.sign(empty) == set()
        found[version] = plugin.sign(pod)
        _, hinted = plugin.events_to_register()
        assert hinted.hint(pod, empty.pod, pod.pod) == (version == "1.37")
    assert found == {"1.36": set(), "1.37": {MOUNTS}}


def run_filter(pod: PodInfo, *gates: str, version: str = "1.37") -> Status | list[str]:
    handle = FakeHandle(NODES, gates=gates, kubernetes_version=version)
    plugin, state = make_plugin(NodeDeclaredFeatures, handle), CycleState()
    result = plugin.pre_filter(state, pod, handle.nodes)
    if result is not None:
        return result
    statuses = {node.name: plugin.filter(state, pod, node) for node in handle.nodes}
    rejected = {status for status in statuses.values() if status is not None}
    text = "node(s) didn't match Pod's required features"
    assert rejected <= {Status.unresolvable(text).with_plugin("NodeDeclaredFeatures")}
    return [name for name, status in statuses.items() if status is None]


def test_nodes() -> None:
    assert run_filter(make_pod()) == Status.skip()
    assert run_filter(make_pod(spec=HOST)) == ["both", "one"]
    assert run_filter(make_pod(spec=RESTARTING | HOST)) == ["both"]


def test_the_gate_of_1_36() -> None:
    off = ("NodeDeclaredFeatures=false", "InPlacePodLevelResourcesVerticalScaling=false")
    more = "InPlacePodVerticalScalingInitContainers=false"
    assert run_filter(make_pod(spec=HOST), *off, more, version="1.36") == Status.skip()


def test_events() -> None:
    node, pod = make_plugin(NodeDeclaredFeatures, FakeHandle()).events_to_register()
    assert (node.resource, node.action) == (NODE, ADD | UPDATE_NODE_DECLARED_FEATURE)
    assert (pod.resource, pod.action) == (TARGET_POD, UPDATE)

    waiting = make_pod(spec=HOST)
    assert node.hint(waiting, None, NODES[2])
    assert not node.hint(waiting, NODES[1], NODES[1])
    assert node.hint(waiting, NODES[2], NODES[1])

    assert not pod.hint(waiting, waiting.pod, waiting.pod)
    assert pod.hint(waiting, waiting.pod, make_pod().pod)
    assert not pod.hint(waiting, make_pod("o", spec=HOST).pod, make_pod("o").pod)
