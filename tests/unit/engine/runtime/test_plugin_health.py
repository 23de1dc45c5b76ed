"""Plugins that fail: counted, reported, disabled; a whole scheduler offline, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from proreus.base.clock import FakeClock
from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.metrics import SchedulerMetrics
from proreus.config.load import default_configuration
from proreus.config.types import PluginRef, Plugins, PluginSet
from proreus.engine.runtime.instrumentation import instrument
from proreus.engine.runtime.out_of_tree import is_out_of_tree
from proreus.engine.runtime.plugin_health import (
    FailureRules,
    HealthContext,
    PluginHealthMonitor,
    TracebackLog,
)
from proreus.engine.runtime.points import await_plugin
from proreus.engine.runtime.registry import Registry
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.plugin import (
    BindPlugin,
    FetchingPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Code, Status
from proreus.objects.kinds import NODES, PODS
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS

CALM = FailureRules(budget_seconds=60)
"""Of a budget that nobody exceeds, however busy the machine is."""
SKIP = replace(CALM, policy="skip", failures=3, disable_seconds=30, max_disable_seconds=100)


class Cluster:
    """One or more nodes, and a scheduler with some plugins in addition to the default ones."""

    def __init__(self, *plugins: type[Plugin], rules: FailureRules = SKIP, nodes: int = 2) -> None:
        registry = Registry((*IN_TREE_PLUGINS, *plugins))
        gates = FeatureGates()
        sorting = [p.name for p in plugins if issubclass(p, QueueSortPlugin)]
        sets = Plugins(
            multi_point=PluginSet(enabled=tuple(PluginRef(name=p.name) for p in plugins)),
            queue_sort=PluginSet(
                enabled=tuple(PluginRef(name=name) for name in sorting),
                disabled=(PluginRef(name="*"),) if sorting else (),
            ),
        )
        self.reported: list[tuple[str, str]] = []
        self.offline = OfflineCluster(
            default_configuration(registry, gates, sets),
            registry,
            gates,
            OfflineOptions(
                rules=rules,
                record_event=lambda _, reason, note: self.reported.append((reason, note)),
            ),
        )
        for number in range(nodes):
            self.add_node(f"n{number}")
        self._pods = 0

    def add_node(self, name: str) -> None:
        self.offline.api.add(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
            }
        )

    def add_pod(self) -> str:
        """Create a pod and return its name."""
        self._pods += 1
        name = f"p{self._pods}"
        self.offline.api.add(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {
                    "schedulerName": "default-scheduler",
                    "containers": [{"name": "c", "image": "i"}],
                },
            }
        )
        return name

    async def schedule(self, times: int = 1) -> list[str]:
        """Schedule so many new pods, one by one; return their nodes, "" where none was found."""
        found = []
        for _ in range(times):
            name = self.add_pod()
            decided = await self.offline.schedule_next()
            assert decided is not None
            # what was bound in the end, not what was decided before PreBind
            node_name = self.offline.api.store(PODS)[f"default/{name}"].spec.node_name
            found.append(node_name)
            if not node_name:
                self.offline.api.remove("Pod", f"default/{name}")
        return found

    def failures(self, plugin: str, point: str, reason: str) -> float:
        return self.offline.metrics.plugin_failures_total.labels(plugin, point, reason).value

    @property
    def skipped(self) -> dict[str, bool]:
        profile = self.offline.scheduler.profiles["default-scheduler"]
        return {health.plugin: health.disabled for health in profile.health_monitors}


def make(name: str, *bases: type[Plugin], **methods: Any) -> type[Plugin]:
    return type(name, bases, {"__module__": "somebody", **methods})


def fail(*_: Any) -> Any:
    raise ValueError("broken")


def test_what_comes_with_proreus_is_not_brought_along():
    assert not any(map(is_out_of_tree, IN_TREE_PLUGINS))
    assert is_out_of_tree(make("Mine", PermitPlugin, permit=fail))


# ---- reports -----------------------------------------------------------------------------------


async def test_an_exception_fails_the_pod_and_its_traceback_is_logged_once(caplog):
    plugin = make("Raises", FilterPlugin, filter=fail)
    cluster = Cluster(plugin, rules=CALM)
    assert await cluster.schedule(3) == ["", "", ""]
    assert cluster.failures("Raises", "Filter", "raised") == 3
    (record,) = [r for r in caplog.records if r.getMessage() == "Plugin raised"]
    assert 'raise ValueError("broken")' in record.pairs["traceback"]


async def test_it_is_logged_again_after_a_while_with_the_number_of_those_in_between(caplog):
    clock = FakeClock(1000.0)
    tracebacks = TracebackLog(clock)

    def reported() -> list[int]:
        return [record.pairs["unlogged"] for record in caplog.records]

    for seconds in (0, 1, 1):
        clock.advance(seconds)
        tracebacks.record_event("A", "Filter", ValueError("x"))
    tracebacks.record_event("A", "Score", ValueError("x"))
    tracebacks.record_event("A", "Filter", KeyError("x"))
    assert reported() == [0, 0, 0]
    clock.advance(600)
    tracebacks.record_event("A", "Filter", ValueError("x"))
    assert reported() == [0, 0, 0, 2]


async def test_failing_again_and_again_is_reported_once_and_nothing_is_skipped(caplog):
    plugin = make("Raises", PermitPlugin, permit=fail)
    cluster = Cluster(plugin, rules=replace(CALM, failures=3))
    await cluster.schedule(10)
    assert cluster.reported == [
        (
            "PluginFailing",
            "plugin Raises of profile default-scheduler "
            "raised an exception at Permit 3 times in a row",
        )
    ]
    assert cluster.skipped == {"Raises": False}


async def test_a_success_in_between_ends_a_streak():
    calls = iter(range(100))

    def permit(*_: Any) -> None:
        if next(calls) % 3 != 2:
            raise ValueError

    cluster = Cluster(make("Sometimes", PermitPlugin, permit=permit))
    await cluster.schedule(20)
    assert (cluster.reported, cluster.skipped) == ([], {"Sometimes": False})


@pytest.mark.parametrize(
    ("base", "methods", "point", "reason"),
    [
        (FilterPlugin, {"filter": lambda *_: True}, "Filter", "invalid_answer"),
        (FilterPlugin, {"filter": lambda *_: Status.error("x")}, "Filter", "error"),
        (
            FilterPlugin,
            {"filter_all": lambda self, s, p, n, v: v.reject_row(0, Status.error("x"))},
            "Filter",
            "error",
        ),
        (ScorePlugin, {"score": lambda *_: "much"}, "Score", "invalid_answer"),
        (ScorePlugin, {"score": lambda *_: 101}, "Score", "invalid_answer"),
        (PermitPlugin, {"permit": lambda *_: Status.error("x")}, "Permit", "error"),
        (ReservePlugin, {"reserve": lambda *_: 3}, "Reserve", "invalid_answer"),
    ],
)
async def test_wrong_answers_count_as_failures(base, methods, point, reason):
    plugin = make("Wrong", base, **methods)
    cluster = Cluster(plugin)
    assert (await cluster.schedule(4))[:3] == ["", "", ""]
    assert cluster.failures("Wrong", point, reason) >= 3
    assert [reported for reported, _ in cluster.reported] == ["PluginSkipped"]


async def test_a_plugin_over_its_budget_is_slow_and_does_not_fail_the_pod(monkeypatch):
    """Without ``end_at_budget``, as offline: results do not depend on how fast a machine is."""
    stopwatch = FakeClock()
    monkeypatch.setattr("proreus.engine.runtime.plugin_health.perf_counter", stopwatch.now)

    def slow(self: Any, state: Any, pod: Any, node: Any) -> None:
        stopwatch.advance(0.003)

    rules = FailureRules(failures=3, budget_seconds=0.004)
    cluster = Cluster(make("Slow", FilterPlugin, filter=slow), rules=rules, nodes=20)
    assert "" not in await cluster.schedule(5)
    assert cluster.failures("Slow", "Filter", "slow") == 4  # the last one is not evaluated yet
    assert cluster.reported == [
        (
            "PluginFailing",
            "plugin Slow of profile default-scheduler "
            "took longer than 4ms at Filter 3 times in a row",
        )
    ]


@pytest.mark.parametrize(
    ("base", "method", "point"),
    [(FilterPlugin, "filter", "Filter"), (ScorePlugin, "score", "Score")],
)
async def test_a_plugin_over_its_budget_is_not_called_for_further_nodes(
    monkeypatch, base, method, point
):
    stopwatch = FakeClock()
    monkeypatch.setattr("proreus.engine.runtime.plugin_health.perf_counter", stopwatch.now)
    called = []

    def slow(self: Any, state: Any, pod: Any, node: Any) -> int | None:
        called.append(node.name)
        stopwatch.advance(2.0)
        return 0 if method == "score" else None

    plugin = make("Slow", base, **{method: slow})
    rules = replace(SKIP, budget_seconds=3.0, end_at_budget=True)
    cluster = Cluster(plugin, rules=rules, nodes=20)
    name = cluster.add_pod()
    decided = await cluster.offline.schedule_next()
    assert decided is not None
    assert not decided[1]
    assert len(called) == 2
    (message,) = [
        condition.message
        for condition in cluster.offline.api.store(PODS)[f"default/{name}"].status.conditions
    ]
    assert (
        f'plugin "Slow" has taken 4000ms at {point}, at most 3000ms is allowed; it was not called '
        "for further nodes"
    ) in message
    cluster.offline.api.remove("Pod", f"default/{name}")
    assert await cluster.schedule(2) == ["", ""]
    assert len(called) == 6
    assert "" not in await cluster.schedule(2)  # it is disabled by then
    assert len(called) == 6
    assert cluster.failures("Slow", point, "slow") == 3
    assert [reason for reason, _ in cluster.reported] == ["PluginSkipped"]


async def test_what_the_cycle_waits_for_in_front_of_a_point_is_of_its_time(monkeypatch):
    stopwatch = FakeClock()
    for module in ("instrumentation", "plugin_health"):
        name = f"proreus.engine.runtime.{module}.perf_counter"
        monkeypatch.setattr(name, stopwatch.now)

    async def fetch_filter(self: Any, state: Any, pod: Any, rows: Any) -> None:
        stopwatch.advance(0.2)

    bases = FetchingPlugin, FilterPlugin
    plugin = make("Far", *bases, fetch_filter=fetch_filter, filter=lambda *_: None)
    cluster = Cluster(plugin, rules=FailureRules(failures=3, end_at_budget=True))
    assert "" not in await cluster.schedule(5)
    assert cluster.failures("Far", "Filter", "slow") == 4  # the last one is not evaluated yet
    assert [reported for reported, _ in cluster.reported] == ["PluginFailing"]


def test_what_is_called_while_pods_are_bound_is_looked_at_call_by_call(monkeypatch):
    """Many pods may be bound between two attempts; together they are slow, each is not."""
    metrics = SchedulerMetrics()
    health_context = HealthContext(FakeClock(), metrics, FailureRules(budget_seconds=0.004))
    stopwatch = FakeClock()
    monkeypatch.setattr("proreus.engine.runtime.plugin_health.perf_counter", stopwatch.now)

    def post_bind(self: Any, state: Any, pod: Any, node_name: str) -> None:
        stopwatch.advance(pod)

    plugin = make("Notified", PostBindPlugin, post_bind=post_bind)(None, None)
    health = PluginHealthMonitor("Notified", "p", True, health_context)
    instrument(plugin, health)
    for _ in range(10):
        plugin.post_bind(None, 0.001, "n")
    health.begin_attempt()
    slow = metrics.plugin_failures_total.labels("Notified", "PostBind", "slow")
    assert slow.value == 0
    plugin.post_bind(None, 0.005, "n")
    assert slow.value == 1


# ---- being disabled -----------------------------------------------------------------------------


async def test_by_policy_a_failing_plugin_is_left_out_and_tried_again_ever_more_rarely():
    broken = [True]

    def filter(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        if broken[0]:
            raise ValueError("broken")
        return Status.unschedulable("not here") if node.name == "n0" else None

    cluster = Cluster(make("Picky", FilterPlugin, filter=filter))
    gauge = cluster.offline.metrics.plugin_skipped.labels("Picky", "default-scheduler")
    assert await cluster.schedule(3) == ["", "", ""]
    assert "" not in await cluster.schedule(5)
    assert gauge.value == 1
    (said,) = [health.describe() for health in _conducts(cluster)]
    assert (said["skipped"], said["triedAgainInSeconds"]) == (True, 30)
    cluster.offline.advance(29)
    assert "" not in await cluster.schedule()
    cluster.offline.advance(1)
    assert await cluster.schedule() == [""]  # half-open: one failure is enough
    assert "" not in await cluster.schedule()
    cluster.offline.advance(59)
    assert "" not in await cluster.schedule()
    broken[0] = False
    cluster.offline.advance(1)
    assert await cluster.schedule(3) == ["n1", "n1", "n1"]
    assert gauge.value == 0
    assert [reason for reason, _ in cluster.reported] == [
        "PluginSkipped",
        "PluginSkipped",
        "PluginResumed",
    ]
    broken[0] = True
    await cluster.schedule(4)
    assert cluster.reported[-1][1].endswith(
        "is disabled for 30s: it failed at Filter too often in a row"
    )


def _conducts(cluster: Cluster) -> tuple[PluginHealthMonitor, ...]:
    return cluster.offline.scheduler.profiles["default-scheduler"].health_monitors


async def test_answers_that_are_shared_do_not_outlast_being_left_out():
    """A row_local plugin's verdicts are kept: those of the time without it must not be."""
    broken = [False]

    def filter(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        return Status.unschedulable("not here") if node.name == "n0" else None

    def permit(self: Any, state: Any, pod: Any, node_name: str) -> None:
        if broken[0]:
            raise ValueError("broken")

    plugin = make(
        "Shares",
        FilterPlugin,
        PermitPlugin,
        filter=filter,
        permit=permit,
        sign=lambda self, pod: "all alike",
        row_local=True,
    )
    cluster = Cluster(plugin)
    assert await cluster.schedule(2) == ["n1", "n1"]
    broken[0] = True
    await cluster.schedule(3)
    assert "n0" in await cluster.schedule(4)
    broken[0] = False
    cluster.offline.advance(30)
    assert await cluster.schedule(4) == ["n1"] * 4


async def async_fail(*_: Any) -> Any:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("base", "methods"),
    [
        (PreFilterPlugin, {"pre_filter": fail}),
        (FilterPlugin, {"filter": fail}),
        (FilterPlugin, {"filter_all": fail}),
        (FilterPlugin, {"filter": fail, "row_local": True, "sign": lambda *_: 1}),
        (
            FilterPlugin,
            {"filter": lambda *_: None, "row_local": True, "sign": fail},
        ),
        (
            FilterPlugin,
            {
                "filter": lambda *_: None,
                "row_local": True,
                "sign": lambda *_: 1,
                "invalidation_key": lambda *_: [],
            },
        ),
        (PreScorePlugin, {"pre_score": fail}),
        (ScorePlugin, {"score": fail}),
        (ScorePlugin, {"score_all": fail}),
        (ScorePlugin, {"score": lambda *_: 1, "normalize": fail}),
        (ReservePlugin, {"reserve": fail}),
        (PermitPlugin, {"permit": fail}),
        (PreBindPlugin, {"pre_bind": async_fail}),
        (PreBindPlugin, {"pre_bind": async_fail, "pre_bind_pre_flight": fail}),
    ],
)
async def test_at_every_point_a_plugin_that_is_left_out_lets_pods_pass(base, methods):
    cluster = Cluster(make("Broken", base, **methods))
    assert await cluster.schedule(3) == ["", "", ""]
    assert "" not in await cluster.schedule(3)
    assert cluster.skipped == {"Broken": True}


@pytest.mark.parametrize("result", [fail, lambda *_: Status.error("x"), lambda *_: True])
async def test_a_plugin_that_gates_every_pod_is_disabled_by_the_clock(result):
    cluster = Cluster(make("Broken", PreEnqueuePlugin, pre_enqueue=result))
    queue = cluster.offline.scheduler.queue
    for _ in range(3):
        cluster.add_pod()
    assert (len(queue.gated_pods()), queue.pop()) == (3, None)
    cluster.offline.advance(1)
    assert cluster.skipped == {"Broken": True}
    assert (len(queue.gated_pods()), len(queue.active_pods())) == (0, 3)
    cluster.offline.advance(30)
    assert cluster.skipped == {"Broken": False}
    cluster.add_pod()
    assert len(queue.gated_pods()) == 1
    cluster.offline.advance(1)
    assert (cluster.skipped, queue.gated_pods()) == ({"Broken": True}, [])


async def test_a_bind_plugin_that_is_left_out_leaves_pods_to_the_others():
    cluster = Cluster(make("Broken", BindPlugin, bind=async_fail))
    assert "" not in await cluster.schedule(3)  # DefaultBinder comes first


async def test_making_room_goes_on_without_a_plugin_that_is_left_out():
    called = []

    async def post_filter(self: Any, state: Any, pod: Any, verdicts: Any) -> PostFilterResult:
        called.append(pod.uid)
        raise ValueError("broken")

    nowhere = make("Nowhere", FilterPlugin, filter=lambda *_: Status.unschedulable("no"))
    cluster = Cluster(nowhere, make("Broken", PostFilterPlugin, post_filter=post_filter))
    assert await cluster.schedule(5) == [""] * 5
    assert len(called) == 3


async def test_reservations_are_undone_even_of_a_plugin_that_is_left_out():
    undone = []
    plugin = make(
        "Books",
        ReservePlugin,
        reserve=fail,
        unreserve=lambda self, state, pod, node_name: undone.append(pod.uid),
    )
    refusing = make("Zzz", PermitPlugin, permit=lambda *_: Status.unschedulable("no"))
    cluster = Cluster(plugin, refusing)
    assert await cluster.schedule(5) == [""] * 5
    assert cluster.skipped["Books"]
    assert undone == ["p1", "p2", "p3", "p4", "p5"]


# ---- the queue ---------------------------------------------------------------------------------


async def test_a_pod_whose_sort_key_raises_comes_last(caplog):
    def sort_key(self: Any, queued: Any) -> Any:
        if queued.info.name in ("p1", "p3"):
            raise ValueError("broken")
        return (queued.info.name,)

    cluster = Cluster(make("Sorts", QueueSortPlugin, sort_key=sort_key))
    for _ in range(4):
        cluster.add_pod()
    found = [await cluster.offline.schedule_next() for _ in range(4)]
    assert [decided[0] for decided in found] == [f"default/p{number}" for number in (2, 4, 1, 3)]
    assert len([r for r in caplog.records if r.getMessage() == "Plugin raised"]) == 1


async def test_a_hint_that_raises_says_that_the_event_may_help(caplog):
    def events_to_register(self: Any) -> Iterable[ClusterEvent]:
        return [ClusterEvent("Node", 1, hint=fail)]

    methods = {
        "filter": lambda *_: Status.unschedulable("no"),
        "events_to_register": events_to_register,
    }
    cluster = Cluster(make("Hints", FilterPlugin, **methods))
    cluster.add_pod()
    await cluster.offline.schedule_next()
    queue = cluster.offline.scheduler.queue
    assert len(queue.unschedulable_pods()) == 1
    cluster.add_node("new")
    assert queue.unschedulable_pods() == []
    assert cluster.failures("Hints", "QueueingHint", "raised") == 1
    assert [r.getMessage() for r in caplog.records] == ["Plugin raised"]


async def test_signatures_of_any_type_are_shared():
    calls = []

    @dataclass(frozen=True)
    class Own:
        name: str

    methods = {"filter": lambda self, state, pod, node: calls.append(node.name), "row_local": True}
    cluster = Cluster(make("Signs", FilterPlugin, sign=lambda *_: Own("x"), **methods), rules=CALM)
    assert "" not in await cluster.schedule(3)
    # Both nodes for the first pod, and the one that changed for each of the others.
    assert len(calls) == 4


# ---- what would end the scheduler --------------------------------------------------------------


class WithoutText(BaseException):
    """An exception, or a result, of which no text can be made."""

    def __str__(self):
        raise LookupError("no text")

    __repr__ = __str__


def raises_without_text(*_: Any) -> Any:
    raise WithoutText


@pytest.mark.parametrize(
    ("base", "method"),
    [
        (PreFilterPlugin, "pre_filter"),
        (FilterPlugin, "filter"),
        (ScorePlugin, "score"),
        (ReservePlugin, "reserve"),
        (PermitPlugin, "permit"),
        (PreEnqueuePlugin, "pre_enqueue"),
    ],
)
@pytest.mark.parametrize("fails", [raises_without_text, lambda *_: WithoutText()])
async def test_what_has_no_text_is_a_failure_like_any_other(base, method, fails, caplog):
    cluster = Cluster(make("Broken", base, **{method: fails}), rules=CALM)
    cluster.add_pod()
    if base is PreEnqueuePlugin:
        assert await cluster.offline.schedule_next() is None
    else:
        assert await cluster.offline.schedule_next() is not None
        [pod] = cluster.offline.api.store(PODS).values()
        message = next(c.message for c in pod.status.conditions if c.type == "PodScheduled")
        assert "Broken" in message
        assert "whose text raises LookupError" in message
    reason = "raised" if fails is raises_without_text else "invalid_answer"
    point = method.title().replace("_", "")
    assert cluster.failures("Broken", point, reason) == 1


def exits(*_: Any) -> Any:
    sys.exit("broken")


async def is_cut_off(*_: Any) -> Any:
    raise asyncio.CancelledError  # as a future of the plugin's own that was cancelled does


@pytest.mark.parametrize(
    ("base", "methods"),
    [
        (PreFilterPlugin, {"pre_filter": exits}),
        (FilterPlugin, {"filter": exits}),
        (FilterPlugin, {"filter_all": exits}),
        (FilterPlugin, {"filter": lambda *_: None, "row_local": True, "sign": exits}),
        (
            FilterPlugin,
            {
                "filter": lambda *_: None,
                "row_local": True,
                "sign": lambda *_: 1,
                "invalidation_key": exits,
            },
        ),
        (PreScorePlugin, {"pre_score": exits}),
        (ScorePlugin, {"score": exits}),
        (ReservePlugin, {"reserve": exits}),
        (PermitPlugin, {"permit": exits}),
        (PreBindPlugin, {"pre_bind": is_cut_off}),
        (PreBindPlugin, {"pre_bind": async_fail, "pre_bind_pre_flight": exits}),
    ],
)
async def test_whoever_wants_an_end_has_failed_and_no_more(base, methods):
    cluster = Cluster(make("Ends", base, **methods))
    assert await cluster.schedule(3) == ["", "", ""]
    assert "" not in await cluster.schedule(3)
    assert [reported for reported, _ in cluster.reported] == ["PluginSkipped"]


async def async_garbage(*_: Any) -> Status:
    return Status.unschedulable(["a"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base", "methods"),
    [
        (PreFilterPlugin, {"pre_filter": lambda *_: Status.error(ValueError("x"))}),
        (FilterPlugin, {"filter": lambda *_: Status.unschedulable(3)}),
        (FilterPlugin, {"filter": lambda *_: Status("Unschedulable", ("x",))}),
        (FilterPlugin, {"filter": lambda *_: Status(Code.UNSCHEDULABLE, ["x"])}),
        (FilterPlugin, {"filter_all": lambda self, s, p, n, v: v.reject(np.ones(7, bool), "x")}),
        (FilterPlugin, {"filter_all": lambda self, s, p, n, v: v.reject(np.True_, "x")}),
        (ScorePlugin, {"score_all": lambda *_: 10**30}),
        (ScorePlugin, {"score_all": lambda *_: True}),
        (ScorePlugin, {"score": lambda *_: 10**30}),
        (ScorePlugin, {"score": lambda *_: 10**30, "row_local": True, "sign": lambda *_: 1}),
        (ScorePlugin, {"score": lambda *_: True, "row_local": True, "sign": lambda *_: 1}),
        (ReservePlugin, {"reserve": lambda *_: Status.unschedulable(None)}),
        (PermitPlugin, {"permit": lambda *_: Status.wait("5")}),
        (PermitPlugin, {"permit": lambda *_: Status.wait(None)}),
        (PermitPlugin, {"permit": lambda *_: Status.wait(float("nan"))}),
        (PreBindPlugin, {"pre_bind": async_garbage}),
    ],
)
async def test_whatever_is_answered_the_scheduler_goes_on(base, methods):
    cluster = Cluster(make("Garbage", base, **methods))
    assert await cluster.schedule(3) == ["", "", ""]
    assert "" not in await cluster.schedule(3)
    assert [reported for reported, _ in cluster.reported] == ["PluginSkipped"]


async def test_the_queue_survives_plugins_that_want_an_end():
    cluster = Cluster(make("Sorts", QueueSortPlugin, sort_key=exits))
    assert "" not in await cluster.schedule(2)
    assert cluster.failures("Sorts", "QueueSort", "raised") == 2
    cluster = Cluster(make("Gates", PreEnqueuePlugin, pre_enqueue=exits))
    cluster.add_pod()
    assert len(cluster.offline.scheduler.queue.gated_pods()) == 1
    assert cluster.failures("Gates", "PreEnqueue", "raised") == 1


async def test_a_bind_plugin_that_was_cut_off_leaves_no_pod_behind():
    plugin = make("CutOff", PreBindPlugin, pre_bind=is_cut_off)
    cluster = Cluster(plugin, rules=CALM)
    name = cluster.add_pod()
    await cluster.offline.schedule_next()
    scheduler = cluster.offline.scheduler
    assert not scheduler.cache.is_assumed(name)
    assert scheduler.queue.get(f"default/{name}") is not None


def test_a_plugin_is_closed_with_its_caller():
    class Pending:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def pend(*_: Any) -> None:
        await Pending()

    plugin = make("Busy", PreBindPlugin, pre_bind=async_fail)(None, None)
    call = await_plugin(plugin, "PreBind", CycleState(), pend)
    call.send(None)
    call.close()  # raises what GeneratorExit becomes on its way, if anything


async def test_what_comes_from_outside_goes_through():
    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    plugin = make("Busy", PreBindPlugin, pre_bind=async_fail)(None, None)
    # Python's own handler of SIGINT, under which tests run, raises it at any line.
    with pytest.raises(KeyboardInterrupt):
        await await_plugin(plugin, "PreBind", CycleState(), interrupted)
    task = asyncio.create_task(await_plugin(plugin, "PreBind", CycleState(), asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---- what is called outside attempts ------------------------------------------------------------


class Around(PermitPlugin):
    """Raises in handlers and background work."""

    __module__ = "somebody"

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        handle.on_change(NODES, fail)

    def permit(self, state: Any, pod: Any, node_name: str) -> None:
        self.handle.spawn(_work())


async def _work() -> None:
    raise ValueError("broken")


fail.__module__ = "somebody"


async def test_a_handler_that_raises_is_logged_once_not_once_an_object(caplog):
    cluster = Cluster(Around, nodes=30)
    raised = [r for r in caplog.records if "on_change handler" in r.getMessage()]
    assert len(raised) == 1
    assert "in fail" in raised[0].pairs["traceback"]
    cluster.offline.clock.advance(601)
    cluster.add_node("late")
    raised = [r for r in caplog.records if "on_change handler" in r.getMessage()]
    assert [r.pairs["unlogged"] for r in raised] == [0, 29]


async def test_handlers_and_background_work_that_raise_are_logged_only(caplog, monkeypatch):
    monkeypatch.setitem(_work.__globals__, "__name__", "somebody")
    cluster = Cluster(Around)
    assert "" not in await cluster.schedule(2)
    reported = {record.getMessage() for record in caplog.records if record.levelno == logging.ERROR}
    assert reported == {"A plugin's on_change handler raised", "A plugin's background work raised"}


@pytest.mark.parametrize(
    ("methods", "reported"),
    [
        ({"__init__": fail}, "ValueError: broken"),
        ({"__init__": exits}, "SystemExit: broken"),
        ({"__init__": raises_without_text}, "<WithoutText, whose text raises LookupError>"),
        ({"events_to_register": fail}, "ValueError: broken"),
        (
            {"events_to_register": lambda self: ["Node"]},
            "TypeError: events_to_register of Broken has 'Node' in it",
        ),
    ],
)
def test_a_plugin_that_cannot_be_made_is_a_configuration_error(methods, reported):
    plugin = make("Broken", FilterPlugin, filter=lambda *_: None, **methods)
    with pytest.raises(ConfigError) as caught:
        Cluster(plugin)
    assert str(caught.value).endswith(reported)


def test_events_may_come_from_a_generator():
    def events_to_register(self: Any) -> Iterable[ClusterEvent]:
        yield ClusterEvent("Node", 1)

    plugin = make(
        "Yields", FilterPlugin, filter=lambda *_: None, events_to_register=events_to_register
    )
    Cluster(plugin)


def test_a_conduct_of_a_plugin_that_comes_with_proreus_counts_and_logs_only(caplog):
    metrics = SchedulerMetrics()
    health = PluginHealthMonitor("NodeName", "p", False, HealthContext(FakeClock(), metrics, SKIP))
    for _ in range(5):
        health.note("Filter", "raised", ValueError("x"))
        health.begin_attempt()
    assert not health.disabled
    assert metrics.plugin_failures_total.labels("NodeName", "Filter", "raised").value == 5
    assert len(caplog.records) == 1
