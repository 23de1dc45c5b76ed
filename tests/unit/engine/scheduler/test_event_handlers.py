"""What each change of a pod or a node means (core.md 3.4), seen in cache, queue and moves."""

from __future__ import annotations

import pytest

from proreus.base.errors import CacheCorrupted
from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.event_handlers import NodeHandlers
from proreus.framework import pod_info
from proreus.framework.events import (
    ADD,
    ALL,
    DELETE,
    NODE,
    POD,
    STORAGE_CLASS,
    UNSCHEDULABLE_POD,
    ClusterEvent,
)
from proreus.framework.plugin import FilterPlugin, PermitPlugin
from proreus.framework.status import Status
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod

NO = Status.unschedulable("no")


@pytest.fixture
def world(kit):
    """A world that writes down every move: ``world.moves``."""
    world = kit.World()
    world.moves = []
    move = world.queue.move_all_to_active_or_backoff

    def record(event, old, new, precheck=None) -> None:
        world.moves.append((event.label, old, new))
        move(event, old, new, precheck)

    world.queue.move_all_to_active_or_backoff = record
    return world


def labels(world) -> list[str]:
    seen = [label for label, _, _ in world.moves]
    world.moves.clear()
    return seen


# ---- assigned pods -------------------------------------------------------------------------------


def test_an_assigned_pod_comes_changes_and_goes(world) -> None:
    world.add_node("n0")
    labels(world)
    world.add_pod(node_name="n0", cpu="2", scheduler_name="somebody-else")
    assert labels(world) == ["AssignedPodAdd"]
    assert world.cache.table.requested["cpu"].tolist() == [2000]
    world.change_pod(metadata={"labels": {"a": "b"}})
    assert labels(world) == ["AssignedPodUpdatePodLabel"]
    world.change_pod(metadata={"annotations": {"a": "b"}})
    assert labels(world) == ["AssignedPodUpdate"]
    world.remove_pod()
    assert labels(world) == ["AssignedPodDelete"]
    assert world.cache.pod_count == 0
    world.validate()


def test_a_pod_that_has_finished_is_gone(world) -> None:
    world.add_node("n0")
    world.add_pod(node_name="n0", cpu="2")
    world.change_pod(status={"phase": "Succeeded"})
    assert labels(world)[-1] == "AssignedPodDelete"
    assert world.cache.pod_count == 0
    assert world.cache.table.requested["cpu"].tolist() == [0]


def test_a_resized_pod_is_a_scale_down_event(world) -> None:
    world.add_node("n0")
    world.add_pod(node_name="n0", cpu="2")
    labels(world)
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    world.change_pod(spec={"containers": [container]})
    assert labels(world) == ["AssignedPodUpdatePodScaleDown"]
    assert world.cache.table.requested["cpu"].tolist() == [1000]


def test_a_pod_on_a_node_that_is_not_known_yet(world) -> None:
    world.add_pod(node_name="n0", cpu="2")
    assert (world.cache.table.size, world.cache.node_count) == (0, 1)
    world.add_node("n0")
    assert world.cache.table.requested["cpu"].tolist() == [2000]
    world.validate()


def test_a_pod_outlives_its_node_and_may_see_it_again(world) -> None:
    world.add_node("n0")
    world.add_pod(node_name="n0", cpu="2")
    labels(world)
    world.api.remove("Node", "n0")
    assert labels(world) == ["NodeDelete"]
    assert (world.cache.table.size, world.cache.node_count, world.cache.pod_count) == (0, 1, 1)
    world.validate()
    world.add_node("n0")
    assert world.cache.table.requested["cpu"].tolist() == [2000]
    world.api.remove("Node", "n0")
    world.remove_pod()
    assert (world.cache.node_count, world.cache.pod_count) == (0, 0)
    world.validate()


def test_the_queue_hears_of_a_nodes_end_before_the_cache(world) -> None:
    world.add_node("n0")
    seen = []
    world.queue.move_all_to_active_or_backoff = lambda *_: seen.append(world.cache.table.size)
    world.api.remove("Node", "n0")
    assert seen == [1]


# ---- requests ------------------------------------------------------------------------------------


@pytest.fixture
def computed(monkeypatch) -> list[Pod]:
    """The pods whose requests are computed, or looked up."""
    pods: list[Pod] = []
    compute = pod_info._requests_of

    def record(pod, *args):
        pods.append(pod)
        return compute(pod, *args)

    monkeypatch.setattr(pod_info, "_requests_of", record)
    return pods


@pytest.mark.parametrize("node_name", [None, "n0"])
def test_a_version_with_the_same_requests_shares_them(world, computed, node_name) -> None:
    world.add_node("n0")
    world.add_pod(cpu="1", node_name=node_name)
    computed.clear()
    world.change_pod(metadata={"labels": {"a": "b"}})
    world.change_pod(status={"phase": "Pending"})
    assert computed == []
    info = world.cache.get_pod("uid-of-default-p") or world.queued().info
    assert (info.pod.status.phase, info.requests.amounts) == ("Pending", {"cpu": 1000})
    world.remove_pod()
    assert computed == []
    world.validate()


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        {"initContainers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        {"overhead": {"cpu": "1"}},
        {"resources": {"requests": {"cpu": "2"}}},
    ],
)
def test_a_version_with_other_requests_has_its_own(world, spec) -> None:
    world.add_pod(cpu="1")
    world.change_pod(spec=spec)
    assert world.queued().info.requests.amounts == {"cpu": 2000}


# ---- pending pods --------------------------------------------------------------------------------


def test_a_pending_pod_comes_changes_and_goes(world) -> None:
    world.add_pod()
    assert world.places() == {"active": ["p"]}
    world.change_pod(metadata={"labels": {"a": "b"}})
    assert world.queued().info.labels == {"a": "b"}
    world.remove_pod()
    assert world.places() == {}
    assert labels(world) == []


def test_a_pod_that_somebody_else_bound_leaves_the_queue_and_the_nominator(world, kit) -> None:
    world.add_node("n0")
    world.add_pod(status={"nominatedNodeName": "n0"})
    assert world.queue.nominator.nominated_nodes() == ["n0"]
    labels(world)
    world.api.put(PODS, kit.make_pod("p", node_name="n0").pod)
    assert world.places() == {}
    assert world.queue.nominator.nominated_nodes() == []
    assert labels(world) == ["AssignedPodAdd"]
    assert world.cache.node_of("uid-of-default-p") == "n0"


def test_the_watch_confirms_an_assumption_wherever_it_is(world, kit) -> None:
    for name in ("n0", "n1"):
        world.add_node(name)
    for bound_to in ("n0", "n1"):
        world.add_pod(cpu="1")
        queued = world.queue.pop()
        world.cache.assume(queued.info, "n0")
        world.api.put(PODS, kit.make_pod("p", cpu="1", node_name=bound_to).pod)
        assert world.cache.assumed_count == 0
        assert world.cache.node_of(queued.uid) == bound_to
        world.validate()
        world.queue.done(queued.uid)
        world.remove_pod()


def test_an_update_that_is_none_is_ignored(world) -> None:
    world.add_pod()
    world.queue.update = None
    pod = world.pod()
    for handler in world.api._handlers["Pod"]:
        handler.on_update(pod, pod)


def test_changes_of_an_assumed_pod_are_ignored(world) -> None:
    world.add_node("n0")
    world.add_pod()
    queued = world.queue.pop()
    world.cache.assume(queued.info, "n0")
    world.queue.done(queued.uid)
    world.change_pod(metadata={"labels": {"a": "b"}})
    assert world.places() == {}
    assert world.cache.is_assumed(queued.uid)


@pytest.mark.parametrize("way", ["marked", "gone"])
def test_the_deletion_of_an_assumed_pod_takes_the_decision_back(world, way) -> None:
    world.add_node("n0")
    world.add_pod(cpu="1")
    queued = world.queue.pop()
    world.cache.assume(queued.info, "n0")
    world.moves.clear()
    if way == "marked":
        world.change_pod(metadata={"deletionTimestamp": "2023-11-14T22:13:20Z"})
    else:
        world.remove_pod()
    assert world.cache.pod_count == 0
    [(label, old, new)] = world.moves
    assert (label, old.spec.node_name, new) == ("AssignedPodDelete", "n0", None)
    world.validate()


async def test_the_deletion_of_a_held_pod_rejects_it(kit) -> None:
    world = kit.World(kit.plugin("A", PermitPlugin, permit=Status.wait(10)))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    world.change_pod(metadata={"deletionTimestamp": "2023-11-14T22:13:20Z"})
    await world.settle()
    assert world.notes() == ["0/1 nodes are available: 1 removed."]
    assert world.cache.pod_count == 0
    assert world.queued().rejectors == set()


# ---- nominations ---------------------------------------------------------------------------------


async def waiting_for_resources(kit):
    """A world with three pods that nothing but the end of another pod helps."""
    events = (ClusterEvent(POD, DELETE),)
    world = kit.World(kit.plugin("A", FilterPlugin, filter=NO, events_to_register=events))
    world.add_node("n0")
    for name, priority in (("low", 1), ("equal", 5), ("high", 9)):
        world.add_pod(name, priority=priority)
        await world.attempt()
    # It must not be tried itself.
    world.add_pod(
        "nominated",
        priority=5,
        status={"nominatedNodeName": "n0"},
        metadata={"deletionTimestamp": "2023-11-14T22:13:20Z"},
    )
    world.queue.done(world.queue.pop().uid)
    return world


async def test_the_end_of_a_nominated_pod_wakes_those_that_had_to_respect_it(kit) -> None:
    world = await waiting_for_resources(kit)
    world.remove_pod("nominated")
    assert world.places() == {"backoff": ["equal", "low"], "unschedulable": ["high"]}


async def test_the_end_of_a_nomination_wakes_them_too(kit) -> None:
    world = await waiting_for_resources(kit)
    world.change_pod("nominated", status={"nominatedNodeName": None})
    assert {"equal", "low"} <= set(world.places()["backoff"])
    assert "high" in world.places()["unschedulable"]


@pytest.mark.parametrize("nominated", ["n0", "last"])
async def test_a_node_that_is_gone_has_room_for_nobody(kit, nominated: str) -> None:
    """Where pods are looked at later, another node may have its row by then, or none."""
    events = (ClusterEvent(POD, DELETE), ClusterEvent(NODE, ADD, lambda *_: False))
    world = kit.World(kit.plugin("A", FilterPlugin, filter=NO, events_to_register=events))
    for name in ("n0", "n1"):
        world.add_node(name, cpu="9")
    for number in range(4):
        world.add_pod(f"p{number}", cpu="1")
        await world.attempt()
    world.add_pod("nominated", cpu="1", status={"nominatedNodeName": nominated})
    world.queue.done(world.queue.pop().uid)
    world.queue.move_in_portions(2)
    world.add_node("last", cpu="9")
    world.change_pod("nominated", spec={"nodeName": "n1"})
    for name in ("n0", "last"):
        world.api.remove("Node", name)
    world.add_node("n2", cpu="9")
    while world.queue.is_moving:
        assert world.queue.pop() is None
    assert len(world.places()["unschedulable"]) == 4


# ---- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "events"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, ["NodeUpdateNodeLabel"]),
        ({"metadata": {"annotations": {"a": "b"}}}, ["NodeUpdateNodeAnnotation"]),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, ["NodeUpdateNodeTaint"]),
        ({"spec": {"unschedulable": True}}, []),
        ({"status": {"allocatable": {"cpu": "8"}}}, ["NodeUpdateNodeAllocatable"]),
        ({"status": {"allocatable": {"cpu": "4000m"}}}, []),
        (
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            ["NodeUpdateNodeCondition"],
        ),
        ({"metadata": {"finalizers": ["a"]}}, []),
        (
            {"metadata": {"labels": {"a": "b"}}, "status": {"allocatable": {"cpu": "8"}}},
            ["NodeUpdateNodeAllocatable", "NodeUpdateNodeLabel"],
        ),
    ],
)
def test_what_changed_about_a_node(world, patch, events) -> None:
    world.add_node("n0")
    assert labels(world) == ["NodeAdd"]
    world.api.merge("Node", "n0", patch)
    assert labels(world) == events
    world.validate()


def test_an_uncordoned_node_counts_as_one_without_a_taint(world) -> None:
    world.add_node("n0", unschedulable=True)
    labels(world)
    world.api.merge("Node", "n0", {"spec": {"unschedulable": False}})
    assert labels(world) == ["NodeUpdateNodeTaint"]
    assert not world.cache.table.unschedulable[0]


async def test_a_first_list_of_nodes_moves_what_waits(kit) -> None:
    world = kit.World(kit.rejecting("A", NO))
    metrics = SchedulerMetrics()
    handlers = NodeHandlers(cache=world.cache, queue=world.queue, metrics=metrics)
    world.add_node("n")
    world.add_pod()
    await world.attempt()
    assert len(world.queue.unschedulable_pods()) == 1
    handlers.on_add_all([kit.make_node("n0"), kit.make_node("n1")])
    assert world.cache.node_count == 3
    assert not world.queue.unschedulable_pods()
    assert metrics.event_handling_duration_seconds.labels("NodeAdd").count == 2


# ---- other kinds ---------------------------------------------------------------------------------


def test_other_kinds_are_heard_of_where_a_plugin_registered_them(kit) -> None:
    events = (ClusterEvent(STORAGE_CLASS, ALL), ClusterEvent(NODE, ALL))
    world = kit.World(kit.plugin("A", FilterPlugin, filter=NO, events_to_register=events))
    heard = []
    world.queue.move_all_to_active_or_backoff = lambda event, *_: heard.append(event.label)
    for kind in ("StorageClass", "PersistentVolume"):
        world.api.add({"kind": kind, "metadata": {"name": "x"}})
    world.api.merge("StorageClass", "x", {"metadata": {"labels": {"a": "b"}}})
    world.api.remove("StorageClass", "x")
    assert heard == [f"storage.k8s.io/StorageClass{what}" for what in ("Add", "Update", "Delete")]


def test_events_of_assigned_pods_do_not_match_registrations_for_unscheduled_ones(kit) -> None:
    events = (ClusterEvent(UNSCHEDULABLE_POD, ALL),)
    world = kit.World(kit.plugin("A", FilterPlugin, filter=NO, events_to_register=events))
    assert "Pod" in world.api._handlers
    world.add_pod(node_name="n0")
    assert world.places() == {}


def test_any_resource_can_be_registered_by_its_name(kit) -> None:
    name = "gadgets.v1beta1.example.com"
    world = kit.World(
        kit.plugin("A", FilterPlugin, filter=NO, events_to_register=(ClusterEvent(name, ALL),))
    )
    [handler] = world.api._handlers[name]
    heard = []
    world.queue.move_all_to_active_or_backoff = lambda event, *_: heard.append(event.label)
    handler.on_add(object())
    assert heard == [f"{name}Add"]


@pytest.mark.parametrize("name", ["Gadget", "gadgets.example", "example.com/v1/Gadget"])
def test_a_resource_that_cannot_be_found_is_logged(kit, caplog, name) -> None:
    kit.World(
        kit.plugin("A", FilterPlugin, filter=NO, events_to_register=(ClusterEvent(name, ALL),))
    )
    assert [record.getMessage() for record in caplog.records] == ["Incorrect event registration"]


# ---- durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "unscheduled"), [(V1_36, "UnschedulablePod"), (V1_37, "UnscheduledPod")]
)
def test_handlers_are_timed_by_event(kit, version, unscheduled) -> None:
    world = kit.World(emulate=version)
    world.add_node("n0")
    world.add_pod(node_name="n0")
    world.change_pod(metadata={"labels": {"a": "b"}})
    world.remove_pod()
    world.add_pod("q")
    world.remove_pod("q")
    world.api.remove("Node", "n0")
    family = world.metrics.event_handling_duration_seconds
    assert {labels[0]: histogram.count for labels, histogram in family.histograms()} == {
        "NodeAdd": 1,
        "NodeDelete": 1,
        "AssignedPodAdd": 1,
        "AssignedPodUpdate": 1,
        "AssignedPodUpdatePodLabel": 1,
        "AssignedPodDelete": 1,
        f"{unscheduled}Add": 1,
        f"{unscheduled}Delete": 1,
    }


# ---- contradictions ------------------------------------------------------------------------------


def test_a_pod_cannot_move_to_another_node(world, kit) -> None:
    world.add_pod(node_name="n0")
    with pytest.raises(CacheCorrupted):
        world.api.put(PODS, kit.make_pod("p", node_name="n1").pod)


def test_a_pod_cannot_leave_a_node_that_it_is_not_on(world, kit) -> None:
    world.add_pod(node_name="n0")
    world.api._stores["Pod"]["default/p"] = kit.make_pod("p", node_name="n1").pod
    with pytest.raises(CacheCorrupted):
        world.remove_pod()


def test_operations_that_do_not_go_with_the_cache_are_logged_only(world, kit, caplog) -> None:
    pods = next(h for h in world.api._handlers["Pod"] if type(h).__name__ == "PodHandlers")
    assigned = kit.make_pod("p", node_name="n0").pod
    pods.on_add(assigned)
    pods.on_add(assigned)
    pods.on_delete(assigned)
    pods.on_delete(assigned)
    pods.on_update(assigned, assigned)
    assert world.cache.pod_count == 0
    assert len(caplog.records) == 3


def test_an_end_that_was_missed_counts_as_both(world, kit) -> None:
    """The last state known may be older than the binding."""
    pods = next(h for h in world.api._handlers["Pod"] if type(h).__name__ == "PodHandlers")
    world.add_node("n0")
    world.add_pod()
    pending = world.pod()
    pods.on_update(pending, kit.make_pod("p", node_name="n0").pod)
    labels(world)
    pods.on_delete(pending, final_state_unknown=True)
    assert world.cache.pod_count == 0
    assert labels(world) == ["AssignedPodDelete"]
    assert world.places() == {}
