"""Fetching plugins: awaited together right before the point, and timed once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proreus.base.errors import PluginError
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.runtime.node_points import run_filter_plugin
from proreus.engine.runtime.points import PluginTimer
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.scheduling_points import fetch
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FetchingPlugin, FilterPlugin, ReservePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.plugins.priority_sort import PrioritySort
from proreus.testing.builders import make_pod
from proreus.testing.fake_handle import FakeHandle


class Far(FetchingPlugin, FilterPlugin, ReservePlugin):
    """Returns ``outcome`` once ``connect`` allows it."""

    outcome: Any = None
    connect: Any = None

    def __init__(self) -> None:
        self.fetched: list[Any] = []

    async def fetch_filter(
        self, state: CycleState, pod: PodInfo, rows: Rows | None
    ) -> Status | None:
        self.fetched.append(rows)
        if self.connect is not None:
            await self.connect()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        pass


class Farther(Far):
    """Another one."""


def profile_of(*plugins: Any, **points: Any) -> Profile:
    by_point = {"queueSort": (PrioritySort(None, FakeHandle()),), "filter": plugins, **points}
    table, metrics = ClusterTable(), SchedulerMetrics()
    return Profile("p", by_point, {}, table=table, metrics=metrics)


POD = make_pod("p")


def test_a_profile_without_such_plugins_has_nobody_to_wait_for() -> None:
    assert profile_of().fetching == {}
    assert profile_of(Far()).fetching.keys() == {"Filter"}
    both = Far()
    assert profile_of(both, reserve=(both,)).fetching.keys() == {"Filter", "Reserve"}


async def test_plugins_of_a_point_are_waited_for_together() -> None:
    barrier = asyncio.Barrier(2)
    far, farther = Far(), Farther()
    far.connect = farther.connect = barrier.wait
    async with asyncio.timeout(5):
        await fetch(profile_of(far, farther), "Filter", CycleState(), POD, None)
    assert far.fetched == farther.fetched == [None]


async def test_where_one_fails_the_others_have_ended_too() -> None:
    ended = asyncio.Event()

    async def later() -> None:
        await asyncio.sleep(0)
        ended.set()

    far, farther = Far(), Farther()
    far.outcome, farther.connect = Status.error("no luck"), later
    with pytest.raises(PluginError, match='running "Far" filter plugin: no luck'):
        await fetch(profile_of(far, farther), "Filter", CycleState(), POD, None)
    assert ended.is_set()


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (ValueError("broken"), 'running "Far" filter plugin: broken'),
        (Status.unschedulable("x"), "Filter does not allow the status Unschedulable: x"),
    ],
)
async def test_what_a_fetch_must_not_do(outcome: Any, text: str) -> None:
    far = Far()
    far.outcome = outcome
    with pytest.raises(PluginError, match=text):
        await fetch(profile_of(far), "Filter", CycleState(), POD, None)


async def test_who_skips_or_is_left_out_is_not_fetched_for() -> None:
    far = Far()
    state = CycleState()
    state.skip_filter = frozenset({"Far"})
    await fetch(profile_of(far), "Filter", state, POD, None)
    disabled = Far()
    profile = profile_of(disabled)
    disabled.health = type(disabled.health)()
    disabled.health.disabled = True
    await fetch(profile, "Filter", CycleState(), POD, None)
    await fetch(profile, "Reserve", CycleState(), POD, "n")
    assert far.fetched == disabled.fetched == []


async def test_the_fetch_is_what_is_timed() -> None:
    far, metrics = Far(), SchedulerMetrics()
    state = CycleState()
    state.timer = PluginTimer(metrics)
    await fetch(profile_of(far), "Filter", state, POD, None)
    run_filter_plugin(far, state, POD, ClusterTable(), Verdicts(0))
    timed = metrics.plugin_execution_duration_seconds.labels("Far", "Filter", "Success")
    assert timed.count == 1
