"""DeferredPodScheduling: the pod's own node, its policy, and the wait for the kubelet."""

from __future__ import annotations

import msgspec
import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    ASSIGNED_POD,
    NODE,
    TARGET_POD,
    UPDATE_NODE_PREEMPTION_POLICY,
    UPDATE_POD_SCALE_UP,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.node import Node, PodPreemptionPolicy
from proreus.plugins.deferred_pod_scheduling import DeferredPodScheduling
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

GATE = "InPlacePodVerticalScalingSchedulerPreemption"
WAITING = Status.unresolvable("pod resize fits, waiting for Kubelet actuation")


def node(name: str = "n0", *owners: str) -> Node:
    made = make_node(name)
    policy = PodPreemptionPolicy(owners)
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, pod_preemption_policy=policy)
    )


def pod(*reasons: str, node_name: str = "n0") -> PodInfo:
    conditions = [{"type": "PodScheduled", "status": "True", "reason": "Deferred"}]
    conditions += [
        {"type": "PodResizePending", "status": "True", "reason": reason} for reason in reasons
    ]
    return make_pod(node_name=node_name, status={"conditions": conditions})


def plugin_of(*nodes: Node, on: bool = True) -> tuple[DeferredPodScheduling, FakeHandle]:
    handle = FakeHandle(list(nodes), gates=[f"{GATE}={str(on).lower()}"], kubernetes_version="1.37")
    return make_plugin(DeferredPodScheduling, handle), handle


# The first condition of the type counts, and its reason alone.
OTHER_PODS = [pod(), pod("Infeasible"), pod("Infeasible", "Deferred")]


@pytest.mark.parametrize("other", OTHER_PODS)
def test_other_pods_are_left_alone(other: PodInfo) -> None:
    plugin, handle = plugin_of(node("n0", "operator"), node("n1"))
    assert plugin.pre_filter(CycleState(), other, handle.nodes) == Status.skip()
    assert plugin.permit(CycleState(), other, "n0") is None
    assert [plugin.filter(CycleState(), other, one) for one in handle.nodes] == [None, None]


def test_nothing_is_done_with_the_gate_off() -> None:
    plugin, handle = plugin_of(node("n0", "operator"), on=False)
    deferred = pod("Deferred")
    assert plugin.pre_filter(CycleState(), deferred, handle.nodes) == Status.skip()
    assert plugin.permit(CycleState(), deferred, "n0") is None
    assert plugin.filter(CycleState(), deferred, handle.nodes[0]) is None


def test_a_deferred_pod_keeps_to_its_node() -> None:
    plugin, handle = plugin_of(node("n0"), node("n1"))
    deferred = pod("Deferred", "Infeasible")
    assert plugin.pre_filter(CycleState(), deferred, handle.nodes) is None
    other = Status.unresolvable("pod assigned to different node")
    found = [plugin.filter(CycleState(), deferred, one) for one in handle.nodes]
    assert found == [None, other]
    assert plugin.permit(CycleState(), deferred, "n0") == WAITING
    assert_agreement(plugin, deferred, handle.nodes)


@pytest.mark.parametrize(("owners", "allowed"), [((), True), (("a",), False), (("a", "b"), False)])
def test_a_node_may_forbid_preemption_for_resizes(owners: tuple[str, ...], allowed: bool) -> None:
    plugin, handle = plugin_of(node("n0", *owners))
    forbidden = Status.unresolvable("node had resize preemption disabled")
    status = plugin.filter(CycleState(), pod("Deferred"), handle.nodes[0])
    assert status == (None if allowed else forbidden)


def test_pods_of_different_nodes_have_different_signatures() -> None:
    plugin, _ = plugin_of()
    pods = [pod("Deferred"), pod("Deferred", node_name="n1"), pod()]
    assert len({plugin.sign(one) for one in pods}) == 3


def hints(plugin: DeferredPodScheduling) -> dict:
    return {(e.resource, e.action): e.hint for e in plugin.events_to_register()}


@pytest.mark.parametrize(
    ("old", "new", "queued"),
    [
        (node("n0", "a"), node("n0"), True),
        (node("n0", "a"), make_node("n0"), True),
        (node("n0"), node("n0", "a"), False),
        (node("n0", "a"), node("n0", "b"), False),
        (make_node("n0"), node("n0"), False),
        (node("n1", "a"), node("n1"), False),
    ],
)
def test_a_node_that_allows_it_again_queues_its_pods(old: Node, new: Node, queued: bool) -> None:
    plugin, _ = plugin_of()
    hint = hints(plugin)[NODE, UPDATE_NODE_PREEMPTION_POLICY]
    assert hint(pod("Deferred"), old, new) is queued
    assert not any(hint(other, old, new) for other in OTHER_PODS)
    assert not hints(plugin_of(on=False)[0])[NODE, ADD](pod("Deferred"), old, new)


@pytest.mark.parametrize(
    ("new", "queued"), [(node("n0"), True), (node("n0", "a"), False), (node("n1"), False)]
)
def test_its_node_coming_back_queues_a_pod(new: Node, queued: bool) -> None:
    plugin, _ = plugin_of()
    assert hints(plugin)[NODE, ADD](pod("Deferred"), None, new) is queued


@pytest.mark.parametrize("resource", [ASSIGNED_POD, TARGET_POD])
@pytest.mark.parametrize(("where", "queued"), [("n0", True), ("n1", False)])
def test_pods_that_grow_on_its_node_queue_it(resource: str, where: str, queued: bool) -> None:
    plugin, _ = plugin_of()
    hint = hints(plugin)[resource, UPDATE_POD_SCALE_UP]
    grown = make_pod("grown", node_name=where).pod
    assert hint(pod("Deferred"), grown, grown) is queued
    assert not any(hint(other, grown, grown) for other in OTHER_PODS)
