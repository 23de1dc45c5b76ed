"""Where a pod goes after each outcome, with which rejectors, condition and Event (core.md 6.13)."""

from __future__ import annotations

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status

NO = Status.unschedulable("no")


async def fail(kit, *plugins, nodes: int = 1, turns: int = 1, **options):
    """Let a pod fail; return the world, whose condition and Event have the same text."""
    world = kit.World(*plugins, **options)
    for number in range(nodes):
        world.add_node(f"n{number}")
    world.add_pod()
    for _ in range(turns):
        assert (await world.schedule_next()) is not None
    world.validate()
    condition = world.condition()
    assert condition is not None
    assert condition.status == "False"
    assert world.notes()[-1] == condition.message
    assert world.cache.pod_count == 0
    return world, condition


def assert_error(world, condition, message: str) -> None:
    assert (condition.reason, condition.message) == ("SchedulerError", message)
    assert world.places() == {"backoff": ["p"]}
    assert world.queued().rejectors == set()
    assert world.queued().consecutive_errors_count == 1
    attempts = dict(world.metrics.schedule_attempts_total.values())
    assert attempts == {("error", "default-scheduler"): 1}


def assert_rejected(world, condition, message: str, *rejectors: str) -> None:
    assert (condition.reason, condition.message) == ("Unschedulable", message)
    assert world.places() == {"unschedulable": ["p"]}
    assert world.queued().unschedulable_plugins == set(rejectors)
    assert world.queued().unschedulable_count == 1
    attempts = dict(world.metrics.schedule_attempts_total.values())
    assert attempts == {("unschedulable", "default-scheduler"): 1}


# ---- no node -------------------------------------------------------------------------------------


async def test_no_nodes(kit) -> None:
    never = kit.plugin("Never", PostFilterPlugin, post_filter=ValueError("not asked"))
    world, condition = await fail(kit, never, nodes=0)
    assert condition.reason == "Unschedulable"
    assert condition.message == "no nodes available to schedule pods"
    assert world.places() == {"backoff": ["p"]}
    assert world.queued().rejectors == set()
    assert world.queue.pop() is None, "errors do not leave back-off early"


async def test_filter_rejection(kit) -> None:
    a = kit.plugin(
        "A", FilterPlugin, filter=lambda self, s, p, node: NO if node.name != "n1" else None
    )
    b = kit.rejecting("B", Status.unresolvable("never", "ever"))
    world, condition = await fail(kit, a, b, nodes=3)
    text = "0/3 nodes are available: 1 ever, 1 never, 2 no."
    assert_rejected(world, condition, text, "A", "B")


async def test_pending_rejection(kit) -> None:
    world, condition = await fail(kit, kit.rejecting("A", Status.pending("soon")))
    assert_rejected(world, condition, "0/1 nodes are available: 1 soon.", "A")
    assert world.queued().pending_plugins == {"A"}


async def test_pre_filter_rejection_keeps_its_message(kit) -> None:
    a = kit.plugin("A", PreFilterPlugin, pre_filter=Status.unresolvable("why", "because"))
    world, condition = await fail(kit, a, nodes=2)
    assert_rejected(world, condition, "0/2 nodes are available: why, because.", "A")


async def test_who_narrowed_the_nodes_is_a_rejector_too(kit) -> None:
    a = kit.plugin("A", PreFilterPlugin, pre_filter=frozenset({"n0", "n1"}))
    b = kit.plugin("B", PreFilterPlugin, pre_filter=frozenset({"n1"}))
    world, condition = await fail(kit, b, a, kit.rejecting("C", NO), nodes=3)
    text = "0/3 nodes are available: 1 no, 2 node(s) didn't satisfy plugin(s) [A B]."
    assert_rejected(world, condition, text, "A", "B", "C")


async def test_nothing_is_left_of_the_names(kit) -> None:
    a = kit.plugin("A", PreFilterPlugin, pre_filter=frozenset({"n0"}))
    b = kit.plugin("B", PreFilterPlugin, pre_filter=frozenset({"n1"}))
    world, condition = await fail(kit, b, a, nodes=2)
    text = "0/2 nodes are available: node(s) didn't satisfy plugin(s) [A B] simultaneously."
    assert_rejected(world, condition, text, "A", "B")


async def test_names_of_nodes_that_are_gone(kit) -> None:
    a = kit.plugin("A", PreFilterPlugin, pre_filter=frozenset({"gone"}))
    world, condition = await fail(kit, a, nodes=2)
    text = "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [A]."
    assert_rejected(world, condition, text, "A")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (PostFilterResult(Status.unschedulable("not", "helpful")), " not, helpful"),
        (PostFilterResult(), ""),
        (ValueError("not found"), " not found"),
    ],
)
async def test_post_filter_has_the_last_word(kit, result, text) -> None:
    last = kit.plugin("Last", PostFilterPlugin, post_filter=result)
    world, condition = await fail(kit, kit.rejecting("A", NO), last)
    assert_rejected(world, condition, f"0/1 nodes are available: 1 no.{text}", "A")


async def test_post_filter_is_asked_after_a_pre_filter_rejection_not_after_an_error(kit) -> None:
    last = kit.plugin("Last", PostFilterPlugin, post_filter=PostFilterResult(NO))
    rejects = kit.plugin("A", PreFilterPlugin, pre_filter=NO)
    world, condition = await fail(kit, rejects, last)
    assert_rejected(world, condition, "0/1 nodes are available: no. no", "A")
    breaks = kit.plugin("A", PreFilterPlugin, pre_filter=ValueError("boom"))
    world, condition = await fail(kit, breaks, last)
    assert_error(world, condition, 'running PreFilter plugin "A": boom')


async def test_post_filter_sees_every_node(kit) -> None:
    seen = []

    async def post_filter(self, state, pod, verdicts):
        seen.extend(
            (verdicts.status(row).code.label, node.name)
            for row, node in enumerate(self.handle.nodes)
        )
        return PostFilterResult(NO)

    narrow = kit.plugin("Narrow", PreFilterPlugin, pre_filter=frozenset({"n1"}))
    last = kit.plugin("Last", PostFilterPlugin, post_filter=post_filter)
    await fail(kit, narrow, kit.rejecting("A", NO), last, nodes=2)
    assert seen == [("UnschedulableAndUnresolvable", "n0"), ("Unschedulable", "n1")]


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "answers", "text"),
    [
        (FilterPlugin, {"filter": Status.error("boom")}, 'running "A" filter plugin: boom'),
        (PreScorePlugin, {"pre_score": NO}, 'running PreScore plugin "A": PreScore does not'),
        (ScorePlugin, {"score": ValueError("boom")}, "running Score plugins: plugin"),
        (ScorePlugin, {"score": 101}, "applying score defaultWeights on Score plugins: plugin"),
        (ReservePlugin, {"reserve": ValueError("boom")}, 'running Reserve plugin "A": boom'),
        (PermitPlugin, {"permit": Status.error("boom")}, 'running Permit plugin "A": boom'),
        (
            PreBindPlugin,
            {"pre_bind_pre_flight": Status.error("boom")},
            'running PreBindPreFlight "A": boom',
        ),
        (PreBindPlugin, {"pre_bind": ValueError("boom")}, 'running PreBind plugin "A": boom'),
    ],
)
async def test_errors(kit, point, answers, text) -> None:
    world, condition = await fail(kit, kit.plugin("A", point, **answers), nodes=2)
    assert condition.message.startswith(text)
    assert_error(world, condition, condition.message)


async def test_bind_error(kit) -> None:
    a = kit.plugin("A", BindPlugin, bind=Status.error("the apiserver is asleep"))
    world, condition = await fail(kit, a, binder="A")
    assert_error(world, condition, 'running Bind plugin "A": the apiserver is asleep')


async def test_all_bind_plugins_skip(kit) -> None:
    a = kit.plugin("A", BindPlugin, bind=Status.skip())
    world, condition = await fail(kit, a, binder="A")
    assert_error(world, condition, "no Bind plugin took the pod")


async def test_bind_conflict_is_reported_with_the_apiservers_message(kit) -> None:
    world = kit.World()
    world.add_node("n0")
    world.add_pod()
    queued = world.queue.pop()
    world.api._stores["Pod"]["default/p"] = kit.make_pod("p", node_name="elsewhere").pod
    await world.scheduler.schedule_one(queued)
    await world.settle()
    [note] = world.notes()
    assert note == (
        'running Bind plugin "DefaultBinder": Operation cannot be fulfilled on pods/binding "p": '
        'pod p is already assigned to node "elsewhere"'
    )


# ---- after the choice ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "method"), [(ReservePlugin, "reserve"), (PermitPlugin, "permit")]
)
@pytest.mark.parametrize("make", [Status.unschedulable, Status.unresolvable, Status.pending])
async def test_reserve_and_permit_rejections(kit, point, method, make) -> None:
    undone = []
    books = kit.plugin("Books", ReservePlugin, unreserve=lambda self, *a: undone.append(a[2]))
    a = kit.plugin("A", point, **{method: make("no")})
    world, condition = await fail(kit, books, a, nodes=3)
    assert_rejected(world, condition, "0/1 nodes are available: 1 no.", "A")
    assert len(undone) == 1


@pytest.mark.parametrize("make", [Status.unschedulable, Status.unresolvable, Status.pending])
async def test_a_pre_bind_rejection_names_no_rejector(kit, make) -> None:
    a = kit.plugin("A", PreBindPlugin, pre_bind=make("no"))
    world, condition = await fail(kit, a)
    assert (condition.reason, condition.message) == ("Unschedulable", "no")
    assert world.places() == {"backoff": ["p"]}
    assert world.queued().rejectors == set()


async def test_success(kit) -> None:
    bound: list[tuple[str, ...]] = []
    after = kit.plugin(
        "After", PostBindPlugin, post_bind=lambda self, s, pod, node: bound.append((pod.name, node))
    )
    world = kit.World(after)
    world.add_node("n0")
    world.add_pod()
    assert await world.attempt() == "n0"
    assert world.pod().spec.node_name == "n0"
    assert world.notes("Scheduled") == ["Successfully assigned default/p to n0"]
    assert world.patches == []
    assert bound == [("p", "n0")]
    assert world.places() == {}
    assert (world.cache.pod_count, world.cache.assumed_count) == (1, 0)
    assert world.queue.in_flight_count == 0
    metrics = world.metrics
    assert dict(metrics.schedule_attempts_total.values()) == {("scheduled", "default-scheduler"): 1}
    assert metrics.pod_scheduling_attempts.count == 1
    assert metrics.pod_scheduling_sli_duration_seconds.labels("1").count == 1


async def test_one_feasible_node_is_taken_without_scoring(kit) -> None:
    bad = kit.plugin(
        "Bad",
        PreScorePlugin,
        ScorePlugin,
        pre_score=ValueError("not asked"),
        score=ValueError("not asked"),
    )
    world = kit.World(bad)
    world.add_node("n0")
    world.add_pod()
    assert await world.attempt() == "n0"


async def test_an_event_during_the_attempt_that_helps_makes_the_pod_back_off_only(kit) -> None:
    async def post_filter(self, state: CycleState, pod, verdicts):
        world.add_node("n1")
        return PostFilterResult(NO)

    last = kit.plugin("Last", PostFilterPlugin, post_filter=post_filter)
    world = kit.World(kit.rejecting("A", NO), last)
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    assert world.places() == {"backoff": ["p"]}
    assert world.queued().unschedulable_plugins == {"A"}


async def test_points_are_timed_with_their_outcome(kit) -> None:
    a = kit.plugin("A", ScorePlugin, score=ValueError("boom"))
    world, _ = await fail(kit, a, nodes=2)
    points = world.metrics.framework_extension_point_duration_seconds
    seen = {labels[:2]: histogram.count for labels, histogram in points.histograms()}
    assert seen["PreFilter", "Success"] == 1
    assert seen["PreScore", "Success"] == 1
    assert seen["Score", "Error"] == 1
