"""GangScheduling since Kubernetes 1.37: PlacementFeasible, and trees of groups as one gang."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proreus.engine.runtime.waiting_pods import WaitingPod
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import PlacementProgress, PodGroupInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUPS,
    POD_GROUPS,
    CompositeGangSchedulingPolicy,
    CompositePodGroup,
    CompositePodGroupSchedulingPolicy,
)
from proreus.plugins.gang_scheduling import GangScheduling
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

TREES = (
    "GenericWorkload=true",
    "TopologyAwareWorkloadScheduling=true",
    "CompositePodGroup=true",
)
QUORUM = 'waiting for composite pod group "root" tree to meet quorum'


def group(name: str, min_count: int | None = None, parent: str | None = None) -> dict[str, Any]:
    policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, "parentCompositePodGroupName": parent},
    }


def composite(
    name: str, min_groups: int | None = None, parent: str | None = None
) -> dict[str, Any]:
    policy: Any = {"basic": {}} if min_groups is None else {"gang": {"minGroupCount": min_groups}}
    return {
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, "parentCompositePodGroupName": parent},
    }


def member(name: str, of: str = "g") -> PodInfo:
    return make_pod(name, spec={"schedulingGroup": {"podGroupName": of}})


TREE = (composite("root", 2), group("g", 2, "root"), group("h", None, "root"))


def ready(
    *pods: PodInfo,
    objects: tuple[Any, ...] = TREE,
    gates: tuple[str, ...] = TREES,
    version: str = "1.37",
) -> tuple[FakeHandle, GangScheduling]:
    handle = FakeHandle(
        [make_node("a")], pods, objects=objects, gates=gates, kubernetes_version=version
    )
    return handle, make_plugin(GangScheduling, handle)


# ---- PlacementFeasible ---------------------------------------------------------------------------


def feasible(obj: dict[str, Any], remaining: int, scheduled: int) -> Status | None:
    handle, plugin = ready(objects=(obj,))
    kind = POD_GROUPS if obj["kind"] == "PodGroup" else COMPOSITE_POD_GROUPS
    [found] = handle.store(kind).values()
    info = PodGroupInfo("default", found.metadata.name, (), found)
    return plugin.placement_feasible(CycleState(), info, PlacementProgress(remaining, scheduled))


@pytest.mark.parametrize("obj", [group("g", 3), composite("g", 3)])
def test_a_gang_is_feasible_while_enough_may_still_fit(obj) -> None:
    assert feasible(obj, 0, 3) is None
    assert feasible(obj, 5, 4) is None
    waits = Status(Code.WAIT, ("minCount (3) is not yet satisfied: 1 scheduled, 2 remaining",))
    assert feasible(obj, 2, 1) == waits
    never = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
    assert feasible(obj, 1, 1) == Status.unschedulable(never)


@pytest.mark.parametrize("obj", [group("g"), composite("g")])
def test_of_a_basic_group_one_has_to_fit(obj) -> None:
    assert feasible(obj, 0, 1) is None
    found = feasible(obj, 2, 0)
    assert found is not None
    assert found.code == Code.WAIT
    never = "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining"
    assert feasible(obj, 0, 0) == Status.unschedulable(never)


@pytest.mark.parametrize(
    ("code", "progress", "text"),
    [
        (
            Code.WAIT,
            (2, 1, 1),
            "is not yet satisfied: 1 scheduled, 1 unschedulable, 2 not-evaluated",
        ),
        (
            Code.UNSCHEDULABLE,
            (1, 1, 2),
            "cannot be satisfied: 1 scheduled, 2 unschedulable, 1 not-evaluated",
        ),
    ],
)
def test_since_1_38_it_says_how_many_were_tried_in_vain(code, progress, text) -> None:
    handle, plugin = ready(objects=(group("g", 3),), version="1.38")
    [found] = handle.store(POD_GROUPS).values()
    info = PodGroupInfo("default", "g", (), found)
    status = plugin.placement_feasible(CycleState(), info, PlacementProgress(*progress))
    assert status == Status(code, (f"scheduling policy's minimum threshold (3) {text}",))


# ---- PreEnqueue ----------------------------------------------------------------------------------


def test_a_tree_is_gated_until_enough_of_its_groups_have_enough_pods() -> None:
    handle, plugin = ready(member("p"), member("r", "h"))
    for pod in (member("p"), member("r", "h")):
        assert plugin.pre_enqueue(pod) == Status.unresolvable(QUORUM)
    handle.pod_group_states.add(member("q"))
    handle.pod_group_states.assume(member("q"), "a")
    assert plugin.pre_enqueue(member("p")) is None
    assert plugin.pre_enqueue(member("r", "h")) is None


@pytest.mark.parametrize(
    ("objects", "missing"),
    [
        ((group("g", 1, "root"),), "root"),
        ((group("g", 1, "middle"), composite("middle", 1, "root")), "root"),
    ],
)
def test_nothing_goes_on_while_a_group_above_is_missing(objects, missing) -> None:
    _, plugin = ready(member("p"), objects=objects)
    text = (
        "failed to build hierarchy snapshot: composite pod group object not found in state for "
        f"compositepodgroup/default/{missing}"
    )
    assert plugin.pre_enqueue(member("p")) == Status.unresolvable(text)
    assert plugin.permit(CycleState(), member("p"), "a") == Status.error(text)


NOT_CREATED = 'pod group "g" or one of its composite pod group ancestors has not been created yet'


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ((), NOT_CREATED),
        ((group("g", 1, "root"),), NOT_CREATED),
        ((group("g", 2),), "waiting for podgroup/default/g to meet its quorum"),
        (TREE, "waiting for compositepodgroup/default/root to meet its quorum"),
        (
            (composite("root"), group("g", 2, "root")),
            "waiting for compositepodgroup/default/root tree to have at least one ready child "
            "group",
        ),
        ((group("g"),), None),
        ((composite("root"), group("g", 1, "root")), None),
    ],
)
def test_since_1_38_a_gated_pod_names_the_root_that_is_not_ready(objects, text) -> None:
    _, plugin = ready(member("p"), objects=objects, version="1.38")
    expected = None if text is None else Status.unresolvable(text)
    assert plugin.pre_enqueue(member("p")) == expected


def test_without_the_gate_a_parent_is_none() -> None:
    _, plugin = ready(member("p"), objects=(group("g", 1, "root"),), gates=TREES[:1])
    assert plugin.pre_enqueue(member("p")) is None


# ---- Permit --------------------------------------------------------------------------------------


def test_pods_of_a_tree_wait_for_each_other() -> None:
    pods = member("p"), member("q"), member("r", "h")
    handle, plugin = ready(*pods)
    held = []
    for pod in pods[:2]:
        handle.pod_group_states.assume(pod, "a")
        status = plugin.permit(CycleState(), pod, "a")
        assert status is not None
        assert (status.code, status.reasons, status.timeout_seconds) == (Code.WAIT, (QUORUM,), 300)
        held.append(handle.hold(pod, {plugin.name: 300}))
    stranger = handle.hold(member("x", "other"), {plugin.name: 300})

    handle.pod_group_states.assume(pods[2], "a")
    assert plugin.permit(CycleState(), pods[2], "a") is None
    assert [waits(one) for one in (*held, stranger)] == [False, False, True]
    assert not handle.activated


def waits(pod: WaitingPod) -> bool:
    return bool(pod.pending_plugins())


# ---- hints ---------------------------------------------------------------------------------------


def test_what_joins_the_tree_queues_all_its_pods() -> None:
    handle, plugin = ready(member("p"), objects=(*TREE, group("alone", 1)))
    pod_added, group_added, _, composite_added, composite_updated = [
        event.hint for event in plugin.events_to_register()
    ]
    assert pod_added(member("p"), None, member("r", "h").pod)
    assert not pod_added(member("p"), None, member("x", "alone").pod)
    groups = handle.store(POD_GROUPS)
    assert group_added(member("p"), None, groups["default/h"])
    assert not group_added(member("p"), None, groups["default/alone"])
    root = handle.store(COMPOSITE_POD_GROUPS)["default/root"]
    assert composite_added(member("p"), None, root)
    assert not composite_added(member("x", "alone"), None, root)

    def needing(number: int) -> CompositePodGroup:
        policy = CompositePodGroupSchedulingPolicy(gang=CompositeGangSchedulingPolicy(number))
        return replace(root, spec=replace(root.spec, scheduling_policy=policy))

    assert composite_updated(member("p"), needing(2), needing(1))
    assert not composite_updated(member("p"), needing(1), needing(2))
    assert not composite_updated(member("x", "alone"), needing(2), needing(1))


def test_a_group_that_needs_fewer_pods_queues_them() -> None:
    objects = (group("g", 3), group("basic"), group("h", 3))
    handle, plugin = ready(member("p"), objects=objects, gates=TREES[:1])
    _, _, updated = [event.hint for event in plugin.events_to_register()]
    old = handle.store(POD_GROUPS)["default/g"]

    def changed(obj: dict[str, Any]) -> Any:
        other, _ = ready(objects=(obj,))
        [new] = other.store(POD_GROUPS).values()
        return new

    assert updated(member("p"), old, changed(group("g", 2)))
    assert not updated(member("p"), old, changed(group("g", 3)))
    assert not updated(member("p"), old, changed(group("g", 4)))
    assert updated(member("p"), old, changed(group("g")))
    assert not updated(member("p", "h"), old, changed(group("g", 2)))
