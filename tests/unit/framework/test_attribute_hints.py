"""Errors about missing attributes say how to write what is meant."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.plugin import PostBindPlugin
from proreus.framework.pod_info import PodInfo
from proreus.objects.kinds import NODES
from proreus.testing import FakeHandle, Harness, make_node, make_pod


class Idle(PostBindPlugin):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("spec", "pod.pod.spec"),
        ("metadata", "pod.pod.metadata"),
        ("Status", "pod.pod.status"),
        ("annotations", "pod.pod.metadata.annotations"),
        ("Labels", ".labels"),
        ("GetPod", ".pod"),
    ],
)
def test_a_pod_names_the_object_that_it_wraps(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; write {meant}$"):
        getattr(make_pod(), name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("spec", "node.node.spec"),
        ("Node", ".node"),
        ("node_name", "node.name"),
        ("Allocatable", ".allocatable"),
        ("PodInfos", r"node.pods.values\(\)"),
    ],
)
def test_a_node_names_the_object_that_it_wraps(name: str, meant: str) -> None:
    node = FakeHandle([make_node("n")]).nodes[0]
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; write {meant}$"):
        getattr(node, name)


def _handle_of_a_profile() -> Handle:
    return Harness([Idle]).plugin(Idle).handle


@pytest.mark.parametrize("make", [FakeHandle, _handle_of_a_profile])
def test_a_handle_knows_the_names_of_go(make: Callable[[], Handle]) -> None:
    handle = make()
    for name, meant in {
        "SnapshotSharedLister": "handle.nodes",
        "IterateOverWaitingPods": "handle.waiting_pods()",
        "ClientSet": "handle.api",
        "EventRecorder": ".event_recorder",
    }.items():
        with pytest.raises(AttributeError, match=f"write {re.escape(meant)}$"):
            getattr(handle, name)


def test_a_table_says_how_to_get_a_node() -> None:
    nodes = FakeHandle([make_node("n")]).nodes
    with pytest.raises(AttributeError, match=r"write for node in nodes$"):
        _ = nodes.nodes  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"'n' is no row; write nodes\[nodes.rows\[name\]\]"):
        _ = nodes["n"]  # type: ignore[index]


def test_requests_and_state_name_the_right_way() -> None:
    with pytest.raises(AttributeError, match=r"write pod.requests.amounts\[\"cpu\"\]"):
        _ = make_pod().requests.cpu  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"write state.write\(key, data\)"):
        _ = CycleState().set  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = make_pod().nonsense  # type: ignore[attr-defined]


def test_a_resource_that_a_pod_does_not_request_reads_as_0() -> None:
    assert make_pod(cpu=1).requests.amounts["nvidia.com/gpu"] == 0


@pytest.mark.parametrize("make", [FakeHandle, _handle_of_a_profile])
def test_the_name_of_a_kind_is_no_resource(make: Callable[[], Handle]) -> None:
    handle = make()
    for call in (handle.store, lambda kind: handle.on_change(kind, print)):
        with pytest.raises(TypeError, match=r"such as proreus\.objects\.PODS, not 'Pod'"):
            call("Pod")  # type: ignore[arg-type]
    assert handle.store(NODES) == {}


class Broken(CycleState):
    @property
    def size(self) -> int:
        return len(self._no_such_list)  # type: ignore[attr-defined, no-any-return]


def test_an_error_within_a_property_is_reported_as_it_is() -> None:
    with pytest.raises(AttributeError, match=r"no attribute '_no_such_list'$"):
        _ = Broken().size


def test_objects_with_hints_can_be_copied() -> None:
    assert copy.copy(make_pod("web")).name == "web"
    assert copy.deepcopy(make_pod("web")).name == "web"
