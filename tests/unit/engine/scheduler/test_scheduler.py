"""The loop's entry: whose pods, which pods, gates; nominated nodes first; the loop itself."""

from __future__ import annotations

import asyncio

from proreus.engine import scheduler as scheduler_module
from proreus.framework.plugin import (
    FilterPlugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ScorePlugin,
)
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status

NO = Status.unschedulable("no")


async def test_pods_of_other_schedulers_are_ignored(kit) -> None:
    world = kit.World()
    world.add_node("n0")
    world.add_pod("theirs", scheduler_name="somebody-else")
    assert world.queue.pop() is None
    world.change_pod("theirs", metadata={"labels": {"a": "b"}})
    assert world.places() == {}
    world.remove_pod("theirs")
    world.add_pod("theirs", scheduler_name="somebody-else", node_name="n0")
    assert world.cache.pod_count == 1


async def test_each_profile_has_its_own_plugins(kit) -> None:
    a, b = kit.rejecting("A", NO), kit.plugin("B", ScorePlugin, score=1)
    world = kit.World(a, b, profiles={"picky": ["A"], "easy": ["B"]})
    world.add_node("n0")
    world.add_pod("p", scheduler_name="picky")
    world.add_pod("q", scheduler_name="easy")
    assert [await world.attempt(), await world.attempt()] == ["", "n0"]
    assert world.places() == {"unschedulable": ["p"]}
    attempts = dict(world.metrics.schedule_attempts_total.values())
    assert attempts == {("unschedulable", "picky"): 1, ("scheduled", "easy"): 1}


async def test_one_queue_orders_the_pods_of_all_profiles(kit) -> None:
    a, b = kit.plugin("A", ScorePlugin, score=1), kit.plugin("B", ScorePlugin, score=1)
    world = kit.World(a, b, profiles={"one": ["A"], "two": ["B"]})
    world.add_node("n0")
    world.add_pod("low", scheduler_name="one")
    world.add_pod("high", scheduler_name="two", priority=10)
    assert [(await world.schedule_next())[0] for _ in range(2)] == ["default/high", "default/low"]


async def test_a_pod_that_is_being_deleted_is_skipped(kit) -> None:
    world = kit.World()
    world.add_node("n0")
    world.add_pod()
    world.change_pod(metadata={"deletionTimestamp": "2023-11-14T22:13:20Z"})
    assert await world.attempt() == ""
    assert world.notes() == ["skip schedule deleting pod: default/p"]
    assert (world.patches, world.places()) == ([], {})
    assert world.queue.in_flight_count == 0
    assert dict(world.metrics.schedule_attempts_total.values()) == {}


async def test_an_assumed_pod_is_skipped_in_silence(kit) -> None:
    world = kit.World()
    world.add_node("n0")
    world.add_pod()
    queued = world.queue.pop()
    world.cache.assume(queued.info, "n0")
    assert await world.scheduler.schedule_one(queued) == ""
    assert world.events.events == []
    assert world.queue.in_flight_count == 0


# ---- gates ---------------------------------------------------------------------------------------


async def test_gated_pods_wait_until_the_last_gate_is_gone(kit) -> None:
    world = kit.World(profiles={"default-scheduler": ["SchedulingGates"]})
    world.add_node("n0")
    world.add_pod(spec={"schedulingGates": [{"name": "a"}, {"name": "b"}]})
    assert world.places() == {"gated": ["p"]}
    world.change_pod(spec={"schedulingGates": [{"name": "b"}]})
    assert world.places() == {"gated": ["p"]}
    world.advance(600)
    assert world.places() == {"gated": ["p"]}
    world.change_pod(spec={"schedulingGates": []})
    assert await world.attempt() == "n0"
    assert world.patches == []
    assert world.notes() == []


async def test_any_status_gates(kit) -> None:
    for status in (NO, Status.wait(1), Status.error("boom"), ValueError("boom")):
        world = kit.World(kit.plugin("A", PreEnqueuePlugin, pre_enqueue=status))
        world.add_pod()
        assert world.places() == {"gated": ["p"]}
        assert world.queued().gating_plugin == "A"


# ---- the nominated node --------------------------------------------------------------------------


async def test_the_nominated_node_is_tried_first_and_alone(kit) -> None:
    asked: list[str] = []
    spy = kit.plugin("Spy", FilterPlugin, filter=lambda self, s, p, node: asked.append(node.name))
    world = kit.World(spy)
    for name in ("n0", "n1", "n2"):
        world.add_node(name)
    world.add_pod(status={"nominatedNodeName": "n1"})
    assert await world.attempt() == "n1"
    assert asked == ["n1"]


async def test_if_it_does_not_do_all_nodes_are_looked_at(kit) -> None:
    def filter_node(self, state, pod, node):
        return NO if node.name == "n1" else None

    world = kit.World(kit.plugin("A", FilterPlugin, filter=filter_node))
    for name in ("n0", "n1"):
        world.add_node(name)
    world.add_pod(status={"nominatedNodeName": "n1"})
    assert await world.attempt() == "n0"
    points = world.metrics.framework_extension_point_duration_seconds
    assert points.labels("Filter", "Success", "default-scheduler").count == 2


async def test_an_error_on_the_nominated_node_does_not_end_the_attempt(kit) -> None:
    calls: list[str] = []

    def filter_node(self, state, pod, node):
        calls.append(node.name)
        if len(calls) == 1:
            raise ValueError("boom")

    world = kit.World(kit.plugin("A", FilterPlugin, filter=filter_node))
    world.add_node("n0")
    world.add_pod(status={"nominatedNodeName": "n0"})
    assert await world.attempt() == "n0"
    assert calls == ["n0", "n0"]


async def test_a_nominated_node_that_is_gone_is_ignored(kit) -> None:
    world = kit.World()
    world.add_node("n0")
    world.add_pod(status={"nominatedNodeName": "gone"})
    assert await world.attempt() == "n0"


async def test_the_rejection_by_the_nominated_node_is_reported_too(kit) -> None:
    """Even if PreFilter then leaves it out; its plugin is named for the nodes left out, too."""
    narrow = kit.plugin("Narrow", PreFilterPlugin, pre_filter=frozenset({"n0"}))
    picky = kit.plugin(
        "Picky",
        FilterPlugin,
        filter=lambda self, s, p, node: Status.unschedulable(f"{node.name} is full"),
    )
    world = kit.World(narrow, picky)
    for name in ("n0", "n1", "n2"):
        world.add_node(name)
    world.add_pod(status={"nominatedNodeName": "n1"})
    await world.attempt()
    assert world.notes() == [
        "0/3 nodes are available: 1 n0 is full, 1 n1 is full, "
        "1 node(s) didn't satisfy plugin(s) [Narrow Picky]."
    ]


# ---- the loop ------------------------------------------------------------------------------------


async def test_the_loop_sleeps_wakes_and_ends(kit) -> None:
    world = kit.World()
    world.add_node("n0")
    loop = asyncio.ensure_future(world.scheduler.run())
    await asyncio.sleep(0)
    for name in "abc":
        world.add_pod(name)
    for _ in range(10):
        await asyncio.sleep(0)
    assert {world.pod(name).spec.node_name for name in "abc"} == {"n0"}
    world.scheduler.stop()
    await loop


async def test_the_age_of_a_cycle_counts_what_it_awaits(kit, monkeypatch) -> None:
    now, go_on = 1000.0, asyncio.Event()
    monkeypatch.setattr(scheduler_module, "perf_counter", lambda: now)

    class Hangs(PostFilterPlugin):
        async def post_filter(self, state, pod, verdicts):
            await go_on.wait()
            return PostFilterResult(NO)

    world = kit.World(kit.rejecting("A", NO), Hangs)
    world.add_node("n0")
    scheduler = world.scheduler
    loop = asyncio.ensure_future(scheduler.run())
    await asyncio.sleep(0)
    assert (scheduler.cycle_started_at, scheduler.cycle_seconds) == (None, 0)
    world.add_pod("p")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    now += 90
    assert scheduler.cycle_seconds == 90
    assert scheduler.pods_in_flight() == ["default/p"]
    go_on.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (scheduler.cycle_started_at, scheduler.cycle_seconds) == (None, 0)
    assert scheduler.pods_in_flight() == []
    scheduler.stop()
    await loop


async def test_the_size_of_the_cache_is_measured_every_second(kit) -> None:
    world = kit.World()
    world.add_node("n0")
    world.add_pod(node_name="unknown")
    world.cache.assume(kit.make_pod("assumed"), "n0")
    world.advance(1)
    sizes = {labels[0]: value for labels, value in world.metrics.cache_size.values()}
    assert sizes == {"assumed_pods": 1, "pods": 2, "nodes": 2}


async def test_other_pods_are_scheduled_while_an_event_is_seen_by_those_that_wait(
    kit, monkeypatch
) -> None:
    monkeypatch.setattr(scheduler_module, "_PORTION", 2)
    world = kit.World(profiles={"default-scheduler": ["NodeResourcesFit"]})
    world.add_node("n0", cpu="1")
    loop = asyncio.ensure_future(world.scheduler.run())
    for number in range(20):
        world.add_pod(f"large{number}", cpu="9")
    for _ in range(30):
        await asyncio.sleep(0)
    queue = world.scheduler.queue
    assert len(queue.unschedulable_pods()) == 20
    world.add_node("n1", cpu="2")
    world.add_pod("small", cpu="1")
    assert queue.is_moving
    for _ in range(3):
        await asyncio.sleep(0)
    assert world.pod("small").spec.node_name
    assert queue.is_moving
    for _ in range(30):
        await asyncio.sleep(0)
    assert not queue.is_moving
    assert len(queue.unschedulable_pods()) == 20
    world.scheduler.stop()
    await loop
