"""Permit, pre-flight, PreBind and their failures, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from proreus.base.errors import CacheCorrupted
from proreus.client.http.write_fence import NotLeading
from proreus.framework.events import ASSIGNED_POD, DELETE, ClusterEvent
from proreus.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from proreus.framework.status import Status
from proreus.objects.kinds import PODS

HOLD = Status.wait(10)


@pytest.fixture
def holding(kit):
    """A world in which A holds every pod, for ten seconds."""
    world = kit.World(kit.plugin("A", PermitPlugin, permit=HOLD))
    world.add_node("n0")
    world.add_pod()
    return world


def waiting(world, name: str = "p"):
    return world.scheduler.waiting_pods.get(f"uid-of-default-{name}")


# ---- extenders -----------------------------------------------------------------------------------


async def test_an_extender_binds_after_the_status_patches_asked_for_before(kit) -> None:
    calls = []

    class Binding:
        async def bind(self, pod, node_name):
            calls.append(f"bind {pod.name}")
            return True

    async def wait_for_patches(pod):
        calls.append(f"wait {pod.metadata.name}")

    world = kit.World()
    world.add_node("n0")
    world.add_pod()
    world.api.wait_for_patches = wait_for_patches
    world.scheduler._binding_cycle.extenders = Binding()

    await world.attempt()
    assert calls == ["wait p", "bind p"]


async def test_an_extender_binds_nothing_once_another_leads(kit) -> None:
    calls = []

    class Binding:
        async def bind(self, pod, node_name):
            calls.append(pod.name)
            return True

    async def wait_for_patches(pod):
        raise NotLeading

    world = kit.World()
    world.add_node("n0")
    world.add_pod()
    world.api.wait_for_patches = wait_for_patches
    world.scheduler._binding_cycle.extenders = Binding()

    await world.attempt()
    assert calls == []
    assert "the Lease is no longer held: nothing is written" in world.notes()[0]


# ---- Permit --------------------------------------------------------------------------------------


async def test_a_held_pod_is_assumed_nominated_and_not_bound(holding) -> None:
    assert await holding.attempt() == "n0"
    assert holding.cache.is_assumed("uid-of-default-p")
    assert holding.patches == [("p", {"nominatedNodeName": "n0"})]
    assert holding.pod().spec.node_name == ""
    assert waiting(holding).pending_plugins() == ["A"]
    assert holding.queue.in_flight_count == 1


async def test_an_allowed_pod_is_bound(holding) -> None:
    await holding.attempt()
    holding.advance(3)
    waiting(holding).allow("A")
    await holding.settle()
    assert holding.pod().spec.node_name == "n0"
    assert waiting(holding) is None
    waited = holding.metrics.permit_wait_duration_seconds.labels("Success")
    assert (waited.count, waited.sum) == (1, 3)


async def test_a_rejected_pod_gives_up_its_node_before_its_nomination_is_answered(holding) -> None:
    answered, patch_pod_status, requested = asyncio.Event(), holding.api.patch_pod_status, []

    async def patch_slowly(pod, patch) -> None:
        requested.append(patch["status"].get("nominatedNodeName", "none"))
        await answered.wait()
        await patch_pod_status(pod, patch)

    holding.api.patch_pod_status = patch_slowly
    await holding.attempt()
    assert requested == ["n0"]
    assert waiting(holding).reject("A", "changed my mind")
    await holding.settle()
    assert holding.cache.pod_count == 0
    assert holding.places() == {"unschedulable": ["p"]}
    # Cleared, though the informer has not seen the nomination yet.
    assert requested == ["n0", None]
    answered.set()
    await holding.settle()
    assert holding.pod().status.nominated_node_name == ""


async def test_an_allowed_pod_is_bound_after_its_nomination_is_answered(holding) -> None:
    answered = asyncio.Event()

    async def patch_slowly(pod, patch) -> None:
        await answered.wait()

    holding.api.patch_pod_status = patch_slowly
    await holding.attempt()
    waiting(holding).allow("A")
    await holding.settle()
    assert holding.pod().spec.node_name == ""
    answered.set()
    await holding.settle()
    assert holding.pod().spec.node_name == "n0"


async def test_a_rejected_pod_is_unschedulable_by_who_rejected_it(holding) -> None:
    await holding.attempt()
    assert waiting(holding).reject("A", "changed my mind")
    await holding.settle()
    assert holding.notes() == ["0/1 nodes are available: 1 changed my mind."]
    assert holding.places() == {"unschedulable": ["p"]}
    assert holding.queued().unschedulable_plugins == {"A"}
    assert holding.cache.pod_count == 0
    assert holding.pod().status.nominated_node_name == ""
    assert holding.metrics.permit_wait_duration_seconds.labels("Unschedulable").count == 1
    holding.validate()


async def test_time_is_up(kit) -> None:
    world = kit.World(
        kit.plugin("A", PermitPlugin, permit=Status.wait(600)),
        kit.plugin("B", PermitPlugin, permit=Status.wait(90)),
    )
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    world.advance(89)
    await world.settle()
    assert waiting(world) is not None
    world.advance(1)
    await world.settle()
    assert world.notes() == [
        "0/1 nodes are available: 1 rejected due to timeout after waiting 1m30s at plugin B."
    ]
    assert world.queued().unschedulable_plugins == {"B"}


async def test_all_who_hold_must_allow(kit) -> None:
    world = kit.World(
        kit.plugin("A", PermitPlugin, permit=HOLD), kit.plugin("B", PermitPlugin, permit=HOLD)
    )
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    waiting(world).allow("A")
    await world.settle()
    assert world.pod().spec.node_name == ""
    waiting(world).allow("B")
    await world.settle()
    assert world.pod().spec.node_name == "n0"


async def test_preempted_while_waiting_is_an_error(holding) -> None:
    await holding.attempt()
    assert waiting(holding).preempt("DefaultPreemption", "preempted")
    await holding.settle()
    assert holding.notes() == ["waiting on permit for pod: preempted"]
    assert holding.places() == {"backoff": ["p"]}
    assert holding.queued().rejectors == set()
    condition = holding.condition()
    assert condition is not None
    assert condition.reason == "SchedulerError"


async def test_at_the_end_of_the_process_nobody_is_held(holding) -> None:
    await holding.attempt()
    holding.scheduler.stop()
    await holding.settle()
    assert waiting(holding) is None
    assert holding.pod().spec.node_name == ""
    assert holding.cache.pod_count == 0


async def test_a_held_pod_does_not_keep_the_loop_from_others(kit) -> None:
    world = kit.World(kit.plugin("A", PermitPlugin, permit=HOLD))
    world.add_node("n0")
    for name in "ab":
        world.add_pod(name)
    await world.attempt()
    await world.attempt()
    assert len(world.scheduler.waiting_pods) == 2
    assert world.scheduler.bindings_in_flight == 0
    for pod in world.scheduler.waiting_pods:
        pod.allow("A")
    await world.settle()
    assert {world.pod(name).spec.node_name for name in "ab"} == {"n0"}


# ---- pre-flight and nomination -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "patches"),
    [(None, [("p", {"nominatedNodeName": "n0"})]), (Status.skip(), [])],
)
async def test_pods_with_pre_bind_work_are_nominated(kit, answer, patches) -> None:
    ran = []

    async def pre_bind(self, state, pod, node_name):
        ran.append(node_name)

    a = kit.plugin("A", PreBindPlugin, pre_bind_pre_flight=answer, pre_bind=pre_bind)
    world = kit.World(a)
    world.add_node("n0")
    world.add_pod()
    assert await world.attempt() == "n0"
    assert world.pod().spec.node_name == "n0"
    assert world.patches == patches
    assert ran == ["n0"] * len(patches)


async def test_the_gate_turns_that_off(kit) -> None:
    a = kit.plugin("A", PreBindPlugin, pre_bind=None)
    world = kit.World(a, features=("NominatedNodeNameForExpectation=false",))
    world.add_node("n0")
    world.add_pod()
    assert await world.attempt() == "n0"
    assert world.patches == []


# ---- PreBind and preemption ----------------------------------------------------------------------


class Slow:
    """A PreBind plugin that waits until the test releases it."""

    def __init__(self, kit, on_cancel: object = None, **answers: object) -> None:
        self.go_on = asyncio.Event()
        self.handle = None

        async def pre_bind(plugin, state, pod, node_name):
            self.handle = plugin.handle
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                if isinstance(on_cancel, Exception):
                    raise on_cancel from None
                if on_cancel is None:
                    raise

        self.plugin = kit.plugin("A", PreBindPlugin, pre_bind=pre_bind, **answers)


@pytest.mark.parametrize("on_cancel", [None, "goes on", ValueError("interrupted")])
@pytest.mark.parametrize("parallel", [False, True])
async def test_preempted_in_pre_bind(kit, on_cancel, parallel) -> None:
    slow = Slow(kit, on_cancel, allow_parallel=parallel)
    quick = kit.plugin("B", PreBindPlugin, pre_bind=None, allow_parallel=parallel)
    world = kit.World(slow.plugin, quick)
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    assert slow.handle.cancel_binding("uid-of-default-p", "preempted by DefaultPreemption")
    assert not slow.handle.cancel_binding("uid-of-default-p", "twice")
    await world.settle()
    [note] = world.notes()
    assert note in (
        'running PreBind plugin "A": preempted by DefaultPreemption',
        *(["preempted by DefaultPreemption"] if on_cancel == "goes on" else []),
    )
    assert world.pod().spec.node_name == ""
    assert world.places() == {"backoff": ["p"]}
    assert world.queued().rejectors == set()
    assert not slow.handle.cancel_binding("uid-of-default-p", "too late")
    world.validate()


async def test_once_bound_it_is_too_late(kit) -> None:
    slow = Slow(kit)
    world = kit.World(slow.plugin)
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    slow.go_on.set()
    await world.settle()
    assert world.pod().spec.node_name == "n0"
    assert not slow.handle.cancel_binding("uid-of-default-p", "too late")


async def test_a_pod_that_is_created_again_under_its_uid_has_a_cycle_of_its_own(kit) -> None:
    slow = Slow(kit)
    world = kit.World(slow.plugin)
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    world.remove_pod()  # by a watch that jumped back
    world.add_pod()
    await world.attempt()
    slow.go_on.set()
    await world.settle()
    assert world.pod().spec.node_name == "n0"
    world.validate()


# ---- what is under way ---------------------------------------------------------------------------


def shown(world, limit: int = 100):
    """Return the count, and pod, point, plugins and age of those that are listed."""
    described = world.scheduler.describe_bindings(limit)
    listed = [
        (one["pod"], one["point"], one["plugins"], one["ageSeconds"]) for one in described["oldest"]
    ]
    assert all(one["node"] == "n0" for one in described["oldest"])
    return described["count"], listed


async def test_a_held_pod_is_shown_with_its_age_and_who_holds_it(kit) -> None:
    world = kit.World(
        kit.plugin("A", PermitPlugin, permit=Status.wait(600)),
        kit.plugin("B", PermitPlugin, permit=Status.wait(600)),
    )
    world.add_node("n0")
    world.add_pod()
    assert shown(world) == (0, [])
    await world.attempt()
    world.advance(7)
    assert shown(world) == (1, [("default/p", "Permit", ["A", "B"], 7)])
    waiting(world).allow("A")
    assert shown(world) == (1, [("default/p", "Permit", ["B"], 7)])
    waiting(world).allow("B")
    await world.settle()
    assert shown(world) == (0, [])


@pytest.mark.parametrize("parallel", [False, True])
async def test_pods_in_pre_bind_and_bind_are_shown(kit, parallel) -> None:
    slow = Slow(kit, allow_parallel=parallel)
    quick = kit.plugin("Quick", PreBindPlugin, pre_bind=None, allow_parallel=parallel)
    bound = asyncio.Event()

    async def bind(plugin, state, pod, node_name):
        await bound.wait()

    world = kit.World(quick, slow.plugin, kit.plugin("Own", BindPlugin, bind=bind), binder="Own")
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    world.advance(5)
    assert shown(world) == (1, [("default/p", "PreBind", ["A"], 5)])
    slow.go_on.set()
    await world.settle()
    world.advance(3)
    assert shown(world) == (1, [("default/p", "Bind", ["Own"], 3)])
    bound.set()
    await world.settle()
    assert shown(world) == (0, [])


async def test_the_oldest_are_shown_first_and_not_all(kit) -> None:
    world = kit.World(kit.plugin("A", PermitPlugin, permit=Status.wait(600)))
    world.add_node("n0")
    for name in "abc":
        world.add_pod(name)
        await world.attempt()
        world.advance(10)
    count, listed = shown(world, limit=2)
    assert count == 3
    assert [(pod, age) for pod, _, _, age in listed] == [("default/a", 30), ("default/b", 20)]


# ---- who hears of a failure ----------------------------------------------------------------------


def picky(kit, seen: list[tuple[str, str]]):
    """A filter that rejects q, and whose hint writes down which pods' leaving it is shown."""

    def hint(pod, old, new) -> bool:
        seen.append((pod.name, old.spec.node_name))
        return bool(old.spec.node_name)

    def filter_node(self, state, pod, node):
        return Status.unschedulable("no") if pod.name == "q" else None

    events = (ClusterEvent(ASSIGNED_POD, DELETE, hint),)
    return kit.plugin("Picky", FilterPlugin, filter=filter_node, events_to_register=events)


async def two_pods(kit, *plugins, **options):
    """A world in which q waits for a pod to leave, and p is next."""
    seen: list[tuple[str, str]] = []
    world = kit.World(picky(kit, seen), *plugins, **options)
    world.add_node("n0")
    world.add_pod("q")
    await world.attempt()
    world.add_pod("p")
    return world, seen


async def test_a_failed_binding_wakes_pods_that_may_fit_now(kit) -> None:
    bad = kit.plugin("Bad", BindPlugin, bind=ValueError("boom"))
    world, seen = await two_pods(kit, bad, binder="Bad")
    await world.attempt()
    assert seen == [("q", "n0")]
    assert world.places() == {"backoff": ["q", "p"]}


async def test_a_rejected_pod_is_not_woken_by_its_own_leaving(kit) -> None:
    any_event = (ClusterEvent(ASSIGNED_POD, DELETE),)
    hold = kit.plugin("Hold", PermitPlugin, permit=HOLD, events_to_register=any_event)
    # Were it nominated, the end of that would wake it: so does kube-scheduler.
    world, seen = await two_pods(kit, hold, features=("NominatedNodeNameForExpectation=false",))
    await world.attempt()
    waiting(world).reject("Hold", "no")
    await world.settle()
    assert seen == [("q", "n0")]
    assert world.places() == {"backoff": ["q"], "unschedulable": ["p"]}


async def test_a_deleted_pod_that_was_held_lets_others_in(kit) -> None:
    world, seen = await two_pods(kit, kit.plugin("Hold", PermitPlugin, permit=HOLD))
    await world.attempt()
    world.remove_pod("p")
    await world.settle()
    assert seen == [("q", "n0")]
    assert world.notes() == [
        "0/1 nodes are available: 1 no.",
        "0/1 nodes are available: 1 removed.",
    ]
    assert world.cache.pod_count == 0
    world.validate()


async def test_an_assumption_that_expires_lets_others_in(kit) -> None:
    world, seen = await two_pods(kit)
    world.cache._assumed_ttl = 30
    pod = kit.make_pod("lost")
    world.cache.assume(pod, "n0")
    world.cache.finish_binding(pod.uid)
    world.advance(29)
    assert world.cache.is_assumed(pod.uid)
    world.advance(1)
    assert not world.cache.is_assumed(pod.uid)
    assert seen == [("q", "n0")]


async def test_a_pod_whose_binding_is_never_seen_is_scheduled_anew(kit) -> None:
    world = kit.World()
    world.cache._assumed_ttl = 30
    world.add_node("n0")
    world.add_pod()
    bind = world.api.bind

    async def bind_unseen(pod, node_name) -> None:
        world.api.bind = bind

    world.api.bind = bind_unseen
    assert await world.attempt() == "n0"
    world.advance(29)
    assert world.places() == {}
    world.advance(1)
    assert world.places() == {"active": ["p"]}
    assert world.cache.pod_count == 0
    assert await world.attempt() == "n0"
    assert world.pod().spec.node_name == "n0"
    world.advance(60)
    assert world.places() == {}


# ---- order of steps ------------------------------------------------------------------------------


async def test_events_count_until_permit_is_over_and_not_after(kit) -> None:
    """A failure after that goes to back-off anyway: nobody rejected the pod."""
    slow = Slow(kit)
    world = kit.World(kit.plugin("Hold", PermitPlugin, permit=HOLD), slow.plugin)
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    assert world.queue.in_flight_count == 1
    waiting(world).allow("Hold")
    await world.settle()
    assert world.queue.in_flight_count == 0


async def test_everything_is_undone_in_reverse(kit) -> None:
    undone: list[str] = []

    def books(name: str):
        return kit.plugin(
            name, ReservePlugin, unreserve=lambda self, s, pod, node: undone.append(self.name)
        )

    bad = kit.plugin("Bad", BindPlugin, bind=ValueError("boom"))
    world = kit.World(books("A"), books("B"), bad, binder="Bad")
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    assert undone == ["B", "A"]


async def test_pods_are_activated_once_decided_and_once_bound(kit) -> None:
    activated: list[list[str]] = []

    def permit(self, state, pod, node_name):
        state.pods_to_activate.append("default/first")

    def post_bind(self, state, pod, node_name):
        state.pods_to_activate.append("default/second")

    world = kit.World(
        kit.plugin("A", PermitPlugin, PostBindPlugin, permit=permit, post_bind=post_bind)
    )
    world.queue.activate = lambda keys: activated.append(list(keys))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    assert activated == [["default/first"], ["default/second"]]


async def test_activation_wakes_an_unschedulable_pod_without_back_off(kit) -> None:
    def filter_node(self, state, pod, node):
        return Status.unschedulable("no") if pod.name == "member" else None

    def permit(self, state, pod, node_name):
        state.pods_to_activate.append("default/member")

    gang = kit.plugin("Gang", FilterPlugin, PermitPlugin, filter=filter_node, permit=permit)
    world = kit.World(gang)
    world.add_node("n0")
    world.add_pod("member")
    await world.attempt()
    assert world.places() == {"unschedulable": ["member"]}
    world.add_pod("leader")
    await world.attempt()
    assert world.places() == {"active": ["member"]}


async def test_a_scheduled_pod_that_had_been_flushed_is_counted(kit) -> None:
    open_now = []

    def filter_node(self, state, pod, node):
        return None if open_now else Status.unschedulable("no")

    world = kit.World(kit.plugin("A", FilterPlugin, filter=filter_node))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    world.advance(331)
    assert world.places() == {"active": ["p"]}
    open_now.append(True)
    await world.attempt()
    assert world.metrics.pod_scheduled_after_flush_total.value == 1
    flushed = dict(world.metrics.scheduled_after_flush_total.values())
    assert {plugin for plugin, count in flushed.items() if count} == {("A",)}
    assert ("DefaultBinder",) in flushed, (
        "Prometheus sees no increase in a series that begins with 1"
    )
    assert world.metrics.pod_scheduling_sli_duration_seconds.labels("2").sum == 331


async def test_a_pod_that_an_event_has_moved_is_not_counted_as_flushed(kit) -> None:
    open_now = []

    def filter_node(self, state, pod, node):
        return None if open_now else Status.unschedulable("no")

    world = kit.World(kit.plugin("A", FilterPlugin, filter=filter_node))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    open_now.append(True)
    world.add_node("n1")
    world.advance(11)
    await world.attempt()
    assert not any(count for _, count in world.metrics.scheduled_after_flush_total.values())


# ---- the end -------------------------------------------------------------------------------------


async def test_a_contradiction_is_the_end_also_in_a_task(kit) -> None:
    """A pod that the watch shows on another node than the assumed one: the cache is corrupted."""

    async def bind(self, state, pod, node_name):
        world.api.put(PODS, kit.make_pod("p", node_name="n0").pod)
        world.api.put(PODS, kit.make_pod("p", node_name="n1").pod)

    world = kit.World(kit.plugin("A", BindPlugin, bind=bind), binder="A")
    world.add_node("n0")
    world.add_pod()
    queued = world.queue.pop()
    await world.scheduler.schedule_one(queued)
    with pytest.raises(CacheCorrupted):
        await world.settle()
