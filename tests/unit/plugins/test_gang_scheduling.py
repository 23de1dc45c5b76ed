"""GangScheduling of 1.36: PreEnqueue, Permit, and queueing hints."""

from __future__ import annotations

from typing import Any

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, POD, POD_GROUP, UPDATE
from proreus.framework.pod_group import POD_GROUP_SCHEDULING_CYCLE
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.objects.scheduling import POD_GROUPS
from proreus.plugins.gang_scheduling import GangScheduling
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

GATES = ("GenericWorkload=true", "GangScheduling=true")


def group(name: str = "g", **policy: Any) -> dict[str, Any]:
    return {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy or {"basic": {}}},
    }


GANG = group(gang={"minCount": 2})


def member(name: str, of: str = "g", node_name: str = "") -> PodInfo:
    spec = {"schedulingGroup": {"podGroupName": of}} if of else {}
    return make_pod(name, node_name=node_name, spec=spec)


class Waiting:
    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        self.allowed: list[str] = []

    def allow(self, plugin: str) -> None:
        self.allowed.append(plugin)


def ready(*pods: PodInfo, objects: tuple[Any, ...] = (GANG,)) -> tuple[FakeHandle, GangScheduling]:
    handle = FakeHandle(
        [make_node("a")], pods, objects=objects, gates=GATES, kubernetes_version="1.36"
    )
    return handle, make_plugin(GangScheduling, handle)


def test_pods_without_a_gang_are_not_gated() -> None:
    _, plugin = ready(objects=(group(),))
    assert plugin.pre_enqueue(member("p")) is None
    assert plugin.pre_enqueue(member("p", "")) is None


def test_without_its_group_a_pod_is_gated() -> None:
    _, plugin = ready(objects=())
    text = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
    assert plugin.pre_enqueue(member("p")) == Status.unresolvable(text)


def test_a_gang_is_ungated_once_enough_pods_exist() -> None:
    handle, plugin = ready(member("p"))
    text = "waiting for minCount pods from a gang to appear in scheduling queue"
    assert plugin.pre_enqueue(member("p")) == Status.unresolvable(text)
    handle.pod_group_states.assign(member("q", node_name="a"))
    assert plugin.pre_enqueue(member("p")) is None


def test_permit_waits_and_activates_the_others_until_enough_have_a_node() -> None:
    pods = member("p"), member("q")
    handle, plugin = ready(*pods)
    handle.pod_group_states.assume(pods[0], "a")

    status = plugin.permit(CycleState(), pods[0], "a")
    assert status is not None
    assert (status.code, status.timeout_seconds) == (Code.WAIT, 300)
    assert status.reasons == ("waiting for minCount pods from a gang to be scheduled",)
    assert handle.activated == ["default/q"]

    handle.pod_group_states.assume(pods[1], "a")
    held = Waiting(pods[0])
    stranger = Waiting(member("x", "h"))
    handle.waiting = {"p": held, "x": stranger}  # type: ignore[dict-item]
    assert plugin.permit(CycleState(), pods[1], "a") is None
    assert held.allowed == ["GangScheduling"]
    assert not stranger.allowed


def test_a_pod_group_cycle_activates_and_allows_nobody() -> None:
    pods = member("p"), member("q")
    handle, plugin = ready(*pods)
    state = CycleState()
    state.write(POD_GROUP_SCHEDULING_CYCLE, True)
    held = Waiting(pods[0])
    handle.waiting = {"p": held}  # type: ignore[dict-item]
    handle.pod_group_states.assume(pods[0], "a")
    assert plugin.permit(state, pods[0], "a") is not None
    handle.pod_group_states.assume(pods[1], "a")
    assert plugin.permit(state, pods[1], "a") is None

    assert not handle.activated
    assert not held.allowed


def test_permit_fails_without_the_group() -> None:
    _, plugin = ready(objects=())
    status = plugin.permit(CycleState(), member("p"), "a")
    assert status is not None
    assert status.code == Code.ERROR
    assert status.message.startswith("failed to get podGroup default/g: ")


def test_permit_passes_pods_without_a_gang() -> None:
    _, plugin = ready(objects=(group(),))
    assert plugin.permit(CycleState(), member("p"), "a") is None
    assert plugin.permit(CycleState(), member("p", ""), "a") is None


def test_pods_of_the_group_and_the_group_itself_queue_its_pods() -> None:
    handle, plugin = ready()
    pods, groups, updates = plugin.events_to_register()
    assert (pods.resource, pods.action) == (POD, ADD)
    assert (groups.resource, groups.action) == (POD_GROUP, ADD)
    assert (updates.resource, updates.action) == (POD_GROUP, UPDATE)
    assert pods.hint is not None
    assert groups.hint is not None
    assert pods.hint(member("p"), None, member("q").pod)
    assert not pods.hint(member("p"), None, member("q", "h").pod)
    assert not pods.hint(member("p", ""), None, member("q", "").pod)
    found = handle.store(POD_GROUPS)["default/g"]
    assert groups.hint(member("p"), None, found)
    assert not groups.hint(member("p", "h"), None, found)


def test_an_event_has_pre_enqueue_run_for_the_pods_of_its_group_alone() -> None:
    waiting, there = (member("p"), member("q"), member("r", "h")), member("s", node_name="a")
    handle, plugin = ready(*waiting, there)
    pods, groups, _ = plugin.events_to_register()
    assert pods.ungated_pods is not None
    assert groups.ungated_pods is not None
    found = handle.store(POD_GROUPS)["default/g"]
    assert {*pods.ungated_pods(None, there.pod)} == {"default/p", "default/q"}
    assert {*groups.ungated_pods(None, found)} == {"default/p", "default/q"}
    assert not pods.ungated_pods(None, member("t", "").pod)


def test_without_the_gate_the_plugin_does_nothing() -> None:
    plugin = make_plugin(GangScheduling, FakeHandle(objects=[GANG]))
    assert plugin.pre_enqueue(member("p")) is None
    assert plugin.permit(CycleState(), member("p"), "a") is None
    assert plugin.events_to_register() == ()
