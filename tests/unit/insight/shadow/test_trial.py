"""A candidate configuration decides in parallel with the one in force, and changes nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from proreus.base.errors import ConfigError
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import (
    BackgroundPlugin,
    BindPlugin,
    FetchingPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.framework.status import Status
from proreus.insight.shadow.assembly import prepare_shadow
from proreus.insight.shadow.trial import ShadowLimits, ShadowTrial
from proreus.objects.kinds import PODS
from proreus.objects.scheduling import EntityKey
from proreus.plugins import IN_TREE_PLUGINS

ONE_BY_ONE = ShadowLimits(sample=1.0, time_share=1.0)


class Prefer(ScorePlugin):
    """Scores the node that its argument names."""

    name = "Prefer"
    wanted: tuple[str, ...] = ()

    def score(self, state: Any, pod: Any, node: NodeInfo) -> int:
        return 100 if node.name in self.wanted else 0


def preferring(*nodes: str) -> type[Plugin]:
    return type("Prefer", (Prefer,), {"name": "Prefer", "wanted": nodes})


def candidate(world, *plugins: type[Plugin], limits=ONE_BY_ONE, **config) -> ShadowTrial:
    """Start a trial of a profile that has these plugins."""
    registry = Registry([*IN_TREE_PLUGINS, *plugins])
    names = ["PrioritySort", *[p.name for p in plugins], "DefaultBinder"]
    raw = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {
                    "multiPoint": {
                        "enabled": [{"name": name} for name in names],
                        "disabled": [{"name": "*"}],
                    }
                },
            }
        ],
        **config,
    }
    gates = world.feature_gates
    trial = prepare_shadow(world.assembly, load(raw, registry, gates), registry, limits)
    world.scheduler.shadow = trial
    return trial


def nodes(world, *names: str) -> None:
    for name in names:
        world.add_node(name)


async def scheduled(world, pods: int) -> list[str]:
    for number in range(pods):
        world.add_pod(f"p{number}")
    return [await world.attempt() for _ in range(pods)]


async def test_pods_that_it_would_have_put_elsewhere_have_moved(kit) -> None:
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, preferring("b"))
    assert await scheduled(world, 3) == ["a", "a", "a"]
    assert trial.report.counts() == {
        "same": 0,
        "moved": 3,
        "rejected": 0,
        "accepted": 0,
        "failed": 0,
    }
    example = trial.report.examples[0]
    assert (example.pod, example.in_force, example.candidate) == ("default/p0", "a", "b")


@pytest.mark.parametrize("seed", range(4))
async def test_another_choice_among_equals_is_no_difference(kit, seed) -> None:
    world = kit.World(preferring("a", "b", "c"))
    world.assembly.environment.rng.seed(seed)
    nodes(world, "a", "b", "c", "d")
    trial = candidate(world, preferring("c", "b", "a"))
    assert len(set(await scheduled(world, 12))) > 1
    assert trial.report.outcomes == {"same": 12}


async def test_pods_that_only_one_of_them_accepts(kit) -> None:
    no = kit.rejecting("Picky", Status.unschedulable("not here"))
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, no)
    assert await scheduled(world, 1) == ["a"]
    (example,) = trial.report.examples
    assert (example.outcome, example.in_force, example.candidate) == ("rejected", "a", "")
    assert example.reason == "0/2 nodes are available: 2 not here."

    world = kit.World(no)
    nodes(world, "a")
    trial = candidate(world, preferring("a"))
    assert await scheduled(world, 1) == [""]
    (example,) = trial.report.examples
    assert (example.outcome, example.candidate) == ("accepted", "a")
    assert "not here" in example.reason


async def test_a_pod_that_both_reject_is_no_difference(kit) -> None:
    world = kit.World(kit.rejecting("Picky", Status.unschedulable("not here")))
    nodes(world, "a")
    trial = candidate(world, kit.rejecting("Other", Status.unschedulable("nor there")))
    assert await scheduled(world, 1) == [""]
    assert trial.report.outcomes == {"same": 1}


async def test_pods_that_it_would_gate_or_ignore_are_rejected(kit) -> None:
    gate = kit.plugin("Gate", PreEnqueuePlugin, pre_enqueue=Status.unresolvable("closed"))
    world = kit.World(preferring("a"))
    nodes(world, "a")
    trial = candidate(world, gate)
    await scheduled(world, 1)
    (example,) = trial.report.examples
    assert (example.outcome, example.reason) == ("rejected", "closed")

    world = kit.World(preferring("a"), profiles={"other": ["Prefer"]})
    nodes(world, "a")
    trial = candidate(world, preferring("a"))
    world.add_pod("theirs", scheduler_name="other")
    await world.attempt()
    assert trial.report.examples[0].reason == "no profile for its schedulerName"


async def test_decisions_are_made_on_the_nodes_before_the_pod_is_assumed(kit) -> None:
    world = kit.World(preferring("a"), profiles={"default-scheduler": ["NodeResourcesFit"]})
    world.add_node("a", cpu="1")
    trial = candidate(world, next(p for p in IN_TREE_PLUGINS if p.name == "NodeResourcesFit"))
    for number in range(3):
        world.add_pod(f"p{number}", cpu="500m")
    assert [await world.attempt() for _ in range(3)] == ["a", "a", ""]
    assert trial.report.outcomes == {"same": 3}


class Harmful(PreFilterPlugin, FilterPlugin, ScorePlugin, PostFilterPlugin, ReservePlugin,
              PermitPlugin, PreBindPlugin, BindPlugin, PreEnqueuePlugin):  # fmt: skip
    """Does all that a plugin in the shadow must not do."""

    name = "Harmful"
    called: list[str]

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        type(self).called = []

    def pre_enqueue(self, pod: Any) -> None:
        self.called.append("pre_enqueue")

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> None:
        self.called.append("pre_filter")
        state.write("mine", 1)
        pod.pod.metadata.labels["changed"] = "yes"
        self.handle.nominator.add_nominated_pod(pod, None)
        self.handle.nominator.delete_nominated_pod(pod.uid)
        self.handle.activate([pod.key])
        self.handle.event_recorder.event(pod.pod, "Warning", "Odd", "x", "y", "z")
        for waiting in self.handle.waiting_pods():
            waiting.reject(self.name, "no")
        self.handle.cancel_binding(pod.uid, "no")
        self.handle.spawn(self._write(pod))

    async def _write(self, pod: Any) -> None:
        self.called.append("write")
        await self.handle.api.delete_pod(pod.pod)

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return self.handle.rng.randrange(1) + int(node.name == "b")

    async def post_filter(self, state: Any, pod: Any, verdicts: Any) -> Any:
        self.called.append("post_filter")

    def reserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.called.append("reserve")

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.called.append("unreserve")

    def permit(self, state: Any, pod: Any, node_name: str) -> None:
        self.called.append("permit")

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> None:
        self.called.append("pre_bind")

    async def bind(self, state: Any, pod: Any, node_name: str) -> None:
        self.called.append("bind")


async def test_nothing_of_it_takes_effect(kit) -> None:
    def world_with(shadow: bool):
        world = kit.World(preferring("a", "b"))
        nodes(world, "a", "b", "c")
        trial = candidate(world, Harmful) if shadow else None
        return world, trial

    plain, _ = world_with(False)
    watched, trial = world_with(True)
    assert trial is not None
    # Random choices included: the scheduler draws the same numbers with a shadow as without.
    assert await scheduled(watched, 8) == await scheduled(plain, 8)
    await asyncio.sleep(0)
    assert set(Harmful.called) == {"pre_enqueue", "pre_filter", "write"}
    assert all(pod.metadata.labels == {} for pod in _pods(watched))
    assert watched.events.events == plain.events.events
    assert watched.patches == plain.patches
    assert watched.places() == plain.places() == {}
    for name in ("plugin_failures_total", "plugin_evaluation_total", "schedule_attempts_total"):
        ours, others = (getattr(w.metrics, name).values() for w in (watched, plain))
        assert list(ours) == list(others), name
    watched.validate()
    trial.close()


def _pods(world) -> list[Any]:
    return list(world.api.store(PODS).values())


async def test_columns_cannot_be_written_to(kit) -> None:
    class Greedy(FilterPlugin):
        name = "Greedy"

        def filter_all(self, state: Any, pod: Any, nodes: Any, verdicts: Any) -> None:
            nodes.allocatable["cpu"][:] = 0

    world = kit.World(preferring("a"))
    world.add_node("a", cpu="4")
    trial = candidate(world, Greedy)
    assert await scheduled(world, 1) == ["a"]
    assert trial.report.outcomes == {"failed": 1}
    assert "read-only" in trial.report.examples[0].reason
    world.validate()
    world.add_node("b", cpu="1")  # the columns are the scheduler's again


@pytest.mark.parametrize(
    "answer", [RuntimeError("odd"), SystemExit(1), Status.error("odd"), 17], ids=repr
)
async def test_failures_are_the_candidates_own(kit, answer) -> None:
    def filter(self: Any, state: Any, pod: Any, node: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    broken = type("Broken", (FilterPlugin,), {"name": "Broken", "filter": filter})
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, broken)
    assert await scheduled(world, 1) == ["a"]
    assert trial.report.outcomes == {"failed": 1}
    assert trial.report.objection(1.0) == "its plugins failed for 1 of 1 pods"
    (failure,) = trial.report.failures()
    assert (failure["plugin"], failure["extensionPoint"]) == ("Broken", "Filter")


async def test_a_candidate_that_keeps_failing_is_given_up(kit) -> None:
    broken = type("Broken", (ScorePlugin,), {"name": "Broken", "score": lambda *_: 1 / 0})
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, broken)
    await scheduled(world, 20)
    assert trial.finished.is_set()
    assert 5 <= trial.report.outcomes["failed"] <= 10
    assert "plugin Broken of profile default-scheduler raised" in trial.report.ended_early


class Ticks:
    """A stopwatch that plugins move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_attempts_budget_holds_for_it_too(kit, monkeypatch) -> None:
    ticks = Ticks()

    class Slow(PreFilterPlugin):
        name = "Slow"

        def pre_filter(self, state: Any, pod: Any, nodes: Any) -> None:
            ticks.now += 0.6

    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, Slow, type("Slower", (Slow,), {"name": "Slower"}))
    trial._stopwatch, trial._credited_at, trial._attempt_seconds = ticks, 0.0, 1.0
    assert await scheduled(world, 1) == ["a"]
    assert trial.report.outcomes == {"failed": 1}
    assert "1.2s of computation" in trial.report.examples[0].reason


async def test_it_takes_no_more_than_its_share_of_the_time(kit) -> None:
    ticks = Ticks()

    class Slow(PreFilterPlugin):
        name = "Slow"

        def pre_filter(self, state: Any, pod: Any, nodes: Any) -> None:
            ticks.now += 0.1

    world = kit.World(preferring("a"))
    nodes(world, "a")
    trial = candidate(world, Slow, limits=ShadowLimits(sample=1.0, time_share=0.1))
    trial._stopwatch, trial._credited_at = ticks, 0.0
    for number in range(100):
        world.add_pod(f"p{number}")
        await world.attempt()
        ticks.now += 0.1  # what everything else takes
    assert 0.08 <= trial.report.seconds / ticks.now <= 0.13
    assert trial.report.skipped["time"] == 100 - trial.report.compared


async def test_it_ends_after_as_many_pods_as_it_should_compare(kit) -> None:
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    limits = ShadowLimits(pods=3, time_share=1.0)
    trial = candidate(world, preferring("a"), limits=limits)
    await scheduled(world, 5)
    assert trial.finished.is_set()
    assert trial.report.compared == 3
    assert trial.report.objection(0.0) == ""


async def test_a_sample_of_the_pods_is_compared(kit) -> None:
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, preferring("a"), limits=ShadowLimits(sample=0.25, time_share=1.0))
    trial._rng.seed(1)
    await scheduled(world, 200)
    assert 30 <= trial.report.compared <= 70


async def test_differences_up_to_a_share_are_allowed(kit) -> None:
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, preferring("b"))
    await scheduled(world, 4)
    assert "4 of 4 pods" in trial.report.objection(0.5)
    assert trial.report.objection(1.0) == ""
    assert dict(world.metrics.shadow_pods_total.values()) == {("moved",): 4}


async def test_calls_and_decisions_are_timed(kit) -> None:
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    trial = candidate(world, preferring("a"))
    await scheduled(world, 10)
    found = trial.report.describe()
    assert found["decisions"]["pods"] == 10
    assert found["decisions"]["candidateMilliseconds"] > 0
    assert any(
        call["plugin"] == "Prefer" and call["candidateMicroseconds"] for call in found["calls"]
    )


async def test_plugins_that_fetch_are_refused(kit) -> None:
    class Remote(FetchingPlugin, FilterPlugin):
        name = "Remote"

        def filter(self, state: Any, pod: Any, node: Any) -> None:
            return None

    world = kit.World()
    with pytest.raises(ConfigError, match="cannot run in the shadow: Remote"):
        candidate(world, Remote)


async def test_pods_that_extenders_decide_about_are_not_compared(kit) -> None:
    world = kit.World(preferring("a"))
    nodes(world, "a", "b")
    world.assembly._environment = replace(world.assembly._environment, use_extenders=True)
    extender = {"urlPrefix": "http://127.0.0.1:9/", "filterVerb": "filter", "weight": 1}
    trial = candidate(world, preferring("b"), extenders=[extender])
    await scheduled(world, 2)
    assert (trial.report.compared, trial.report.skipped) == (0, {"extenders": 2})
    assert trial.report.objection(1.0) == "no pod was compared"


async def test_pods_for_which_preemption_is_not_tried_are_counted(kit) -> None:
    no = kit.rejecting("Picky", Status.unschedulable("not here"))
    gate = kit.plugin("Gate", PreEnqueuePlugin, pre_enqueue=Status.unresolvable("closed"))
    for in_force, tried, counted in (
        (preferring("a"), no, 1),
        (no, preferring("a"), 1),
        (no, no, 1),
        (preferring("a"), preferring("a"), 0),
        (preferring("a"), gate, 0),  # nothing would have been preempted for it
    ):
        world = kit.World(in_force)
        nodes(world, "a")
        trial = candidate(world, tried)
        await scheduled(world, 1)
        assert trial.report.compared == 1
        assert trial.report.describe()["preemptionNotCompared"] == counted


async def test_attempts_of_pod_groups_are_counted(kit) -> None:
    world = kit.World(preferring("a"))
    trial = candidate(world, preferring("a"))
    attempts = []

    async def run(popped: Any) -> str:
        attempts.append(popped.key)
        return ""

    world.scheduler.pod_group_cycle = SimpleNamespace(run=run)
    group = QueuedPodGroupInfo(EntityKey("PodGroup", "default", "g"), 0, 0.0)
    await world.scheduler.schedule_one(group)
    assert attempts == [group.key]
    assert trial.report.describe()["notCompared"] == {
        "pod group": 1,
        "extenders": 0,
        "time": 0,
        "error in force": 0,
        "not copied": 0,
    }
    trial.end()
    trial.pass_over_group()
    assert trial.report.skipped["pod group"] == 1


async def test_both_walk_the_same_nodes(kit) -> None:
    """Plugins that filter node by node see a part of a large cluster, another one each time."""

    class OneByOne(FilterPlugin):
        name = "OneByOne"

        def filter(self, state: Any, pod: Any, node: NodeInfo) -> None:
            return None

    world = kit.World(OneByOne, preferring("n3", "n140"))
    nodes(world, *(f"n{number}" for number in range(150)))
    trial = candidate(world, OneByOne, preferring("n3", "n140"))
    assert len(set(await scheduled(world, 12))) > 1
    assert trial.report.outcomes == {"same": 12}


async def test_its_handlers_end_with_it(kit) -> None:
    seen: list[str] = []

    class Curious(ScorePlugin):
        name = "Curious"

        def __init__(self, args: Any, handle: Any) -> None:
            super().__init__(args, handle)
            handle.on_change(PODS, lambda old, new: seen.append("own"))
            handle.shared.on_change(PODS, lambda old, new: seen.append("shared"))

        def score(self, state: Any, pod: Any, node: Any) -> int:
            return 0

    world = kit.World()
    trial = candidate(world, Curious)
    world.add_pod("p")
    assert sorted(seen) == ["own", "shared"]
    trial.close()
    world.add_pod("q")
    assert len(seen) == 2


async def test_its_background_work_ends_with_it(kit) -> None:
    running: list[str] = []

    class Busy(BackgroundPlugin, ScorePlugin):
        name = "Busy"

        async def run_in_background(self) -> None:
            running.append("begun")
            try:
                await asyncio.Event().wait()
            finally:
                running.append("ended")

        def score(self, state: Any, pod: Any, node: Any) -> int:
            return 0

    world = kit.World()
    trial = candidate(world, Busy)
    trial.start_background_work()
    await asyncio.sleep(0)
    assert running == ["begun"]
    trial.close()
    await asyncio.sleep(0)
    assert running == ["begun", "ended"]
