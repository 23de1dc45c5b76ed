"""Long searches are logged, with the steps that took long."""

from __future__ import annotations

import logging

import pytest

from proreus.engine.cycles import scheduling_cycle as trace
from proreus.framework.plugin import FilterPlugin, PostFilterPlugin, ScorePlugin
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status


class Stopwatch:
    """Time passes when a plugin says so."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float, answer: object) -> object:
        def give(plugin: object, *_: object) -> object:
            self.now += seconds
            return answer

        return give


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Stopwatch:
    stopwatch = Stopwatch()
    monkeypatch.setattr(trace, "perf_counter", stopwatch)
    monkeypatch.setattr(trace.log, "threshold", 2)
    caplog.set_level(logging.INFO, trace.log.name)
    return stopwatch


def traces(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [r.pairs for r in caplog.records if r.message == "Trace"]  # type: ignore[attr-defined]


async def test_a_long_search_is_logged_step_by_step(kit, watch, caplog) -> None:
    world = kit.World(
        kit.plugin("F", FilterPlugin, filter=watch.takes(0.06, None)),
        kit.plugin("S", ScorePlugin, score=watch.takes(0.01, 1)),
    )
    world.add_node("n0")
    world.add_node("n1")
    world.add_pod()

    await world.attempt()
    assert traces(caplog) == [
        {
            "name": "Scheduling",
            "pod": "default/p",
            "totalTime": "140ms",
            "steps": "Computing predicates done: 120ms",
        }
    ]


async def test_a_quick_search_is_not_logged(kit, watch, caplog) -> None:
    world = kit.World(kit.plugin("F", FilterPlugin, filter=watch.takes(0.099, None)))
    world.add_node("n0")
    world.add_pod()

    await world.attempt()
    assert traces(caplog) == []


async def test_preemption_does_not_count(kit, watch, caplog) -> None:
    async def post_filter(plugin: object, *_: object) -> PostFilterResult:
        watch.now += 5
        return PostFilterResult(Status.unschedulable("neither"))

    world = kit.World(
        kit.plugin("F", FilterPlugin, filter=watch.takes(0.01, Status.unschedulable("no"))),
        kit.plugin("P", PostFilterPlugin, post_filter=post_filter),
    )
    world.add_node("n0")
    world.add_pod()

    await world.attempt()
    assert watch.now > 55
    assert world.notes() == ["0/1 nodes are available: 1 no. neither"]
    assert traces(caplog) == []


def test_without_verbosity_nothing_is_logged(watch, monkeypatch, caplog) -> None:
    monkeypatch.setattr(trace.log, "threshold", 1)
    one = trace._Trace()
    watch.now += 10
    one.log_if_long("Scheduling", "default/p")
    assert traces(caplog) == []


def test_all_steps_are_logged_with_v4(watch, monkeypatch, caplog) -> None:
    monkeypatch.setattr(trace.log, "threshold", 4)
    one = trace._Trace()
    one.step("first")
    watch.now += 0.5
    one.step("second")
    one.log_if_long("Scheduling", "default/p")
    assert traces(caplog)[0]["steps"] == "first: 0ms, second: 500ms"
