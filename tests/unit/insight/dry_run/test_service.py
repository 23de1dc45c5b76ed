"""Many dry runs at once, dry runs that take long, and what they must not disturb."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from typing import Any

import pytest

from proreus.config.load import load
from proreus.framework.plugin import FilterPlugin, ReservePlugin
from proreus.framework.status import Status
from proreus.insight.dry_run.replica import ClusterReplica
from proreus.insight.dry_run.service import Busy
from proreus.insight.dry_run.slices import Slices
from proreus.objects.kinds import PODS

from .conftest import World, node, pod, spec


async def answer(world: World, *pods: Any, **fields: Any) -> Any:
    with world.service.admit():
        return await world.service.answer(spec(*pods, **fields))


def test_more_than_the_limit_are_refused(make_world: Any) -> None:
    world = make_world(max_waiting=2)
    world.add(node("a"))

    async def ask_many() -> list[Any]:
        questions = [answer(world, pod(f"p{number}")) for number in range(10)]
        async with world.service._turn:
            asked = asyncio.gather(*questions, return_exceptions=True)
            await asyncio.sleep(0.01)
        return await asked

    answers = world.run(ask_many())
    refused = [one for one in answers if isinstance(one, Busy)]
    assert len(refused) == 7  # one would run, two would wait for it
    assert all(one.all_fit for one in answers if not isinstance(one, Busy))
    assert world.service.under_way == 0
    assert world.ask(pod("p")).all_fit
    metrics = world.scheduler.metrics
    assert dict(metrics.dry_runs_total.values()) == {("refused",): 7, ("answered",): 4}
    assert metrics.dry_run_duration_seconds.count == 4


def test_memory_does_not_grow_with_dry_runs(make_world: Any) -> None:
    world = make_world()
    world.add(*(node(f"n{number}") for number in range(100)))

    async def client(number: int) -> None:
        # No two of a round ask alike: each makes new shared results. The next round asks the same,
        # since what differs in its requests is kept elsewhere, in caches with a budget.
        question = {"pod": pod(f"p{number}", cpu=f"{number + 1}m"), "count": 3}
        template = {"name": f"t{number}", "count": 5, "node": node("x")}
        while True:
            try:
                assert (await answer(world, question, nodeTemplates=[template])).all_fit
                return
            except Busy:
                await asyncio.sleep(0.001)

    async def round_of_clients() -> int:
        await asyncio.gather(*map(client, range(100)))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        world.run(round_of_clients())
        first, second = (world.run(round_of_clients()) for _ in range(2))
    finally:
        tracemalloc.stop()
    # A copy of the cluster, or the results of each dry run, would be several megabytes.
    assert second - first < 100_000


def test_other_work_has_turns_while_a_dry_run_lasts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(*(node(f"n{number}", cpu="64") for number in range(200)))
    monkeypatch.setattr("proreus.insight.dry_run.service.Slices", lambda busy: Slices(busy, 0))
    turns = 0

    async def ask() -> Any:
        asked = asyncio.ensure_future(
            answer(world, *({"pod": pod(f"p{n}", cpu=f"{n + 1}m"), "count": 5} for n in range(50)))
        )
        nonlocal turns
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
        return await asked

    assert world.run(ask()).all_fit
    # One for each node that is copied, and for each pod that is placed.
    assert turns >= 200 + 250


class WaitingFilter(FilterPlugin):
    """Calls ``between`` while it filters."""

    name = "WaitingFilter"
    between: Any = None

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        if type(self).between is not None:
            type(self).between()
        return None


class OddNodes(FilterPlugin):
    """Rejects nodes with an even number, one by one."""

    name = "OddNodes"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        if pod.name == "nowhere":
            return Status.unschedulable("nowhere")
        if int(node.name[1:]) % 2 == 0:
            return Status.unschedulable("even")
        return None


class SharedOddNodes(OddNodes):
    """The same, with results that pods share."""

    name = "SharedOddNodes"
    row_local = True
    looks_at_pods = False

    def sign(self, pod: Any) -> str:
        return str(pod.name)


class CountingReserve(ReservePlugin):
    """Counts what is reserved."""

    name = "CountingReserve"
    reserved = 0

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        type(self).reserved += 1
        return None

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        type(self).reserved -= 1


def with_plugins(*names: str) -> Any:
    enabled = "".join(f"\n        - name: {name}" for name in names)
    text = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled:{enabled}
"""
    return lambda registry, gates: load(text, registry, gates)


@pytest.mark.parametrize("plugin", [OddNodes, SharedOddNodes])
def test_a_plugin_that_filters_one_by_one_answers_as_the_scheduler(
    make_world: Any, plugin: type[OddNodes]
) -> None:
    world = make_world(plugins=(plugin,), configure=with_plugins(plugin.name))
    world.add(*(node(f"n{number}") for number in range(1000)))
    nowhere = world.ask(pod("nowhere")).pods[0]
    assert nowhere.message == "0/1000 nodes are available: 1000 nowhere."
    somewhere = world.ask(pod("somewhere")).pods[0]
    assert int(somewhere.node[1:]) % 2 == 1
    # A search node by node ends where enough are found: 42 % of 1000 nodes.
    assert somewhere.feasible_nodes == (420 if plugin is OddNodes else 500)
    # The scheduler itself says the same.
    real = {**pod("nowhere")}
    world.schedule(real)
    status = world.cluster.api.store(PODS)["default/nowhere"].status
    assert status.conditions[0].message.startswith(nowhere.message)


def test_a_dry_run_sees_the_cluster_of_its_beginning(make_world: Any) -> None:
    world = make_world(plugins=(WaitingFilter,), configure=with_plugins("WaitingFilter"))
    world.add(node("a", cpu="2"), node("b", cpu="2"))
    removed: list[str] = []

    def remove_once() -> None:
        if not removed:
            removed.append("b")
            world.cluster.api.remove("Node", "b")

    WaitingFilter.between = staticmethod(remove_once)
    try:
        first = world.ask({"pod": pod("p", cpu="2"), "count": 2})
    finally:
        WaitingFilter.between = None
    assert first.all_fit
    assert first.cluster_nodes == 2
    second = world.ask({"pod": pod("p", cpu="2"), "count": 2})
    assert [one.fits for one in second.pods] == [True, False]
    assert second.cluster_nodes == 1


def test_reserve_of_plugins_of_ones_own_is_not_called(make_world: Any) -> None:
    world = make_world(plugins=(CountingReserve,), configure=with_plugins("CountingReserve"))
    world.add(node("a"))
    world.schedule(pod("real"))
    assert CountingReserve.reserved == 1
    assert world.ask({"pod": pod("p"), "count": 3}).all_fit
    assert CountingReserve.reserved == 1


def test_a_dry_run_that_takes_too_long_is_undone(make_world: Any) -> None:
    world = make_world(plugins=(WaitingFilter,), configure=with_plugins("WaitingFilter"))
    world.add(*(node(f"n{number}", cpu="2") for number in range(5)))
    assert world.ask(pod("p")).all_fit

    async def ask() -> None:
        asked = asyncio.ensure_future(answer(world, {"pod": pod("p", cpu="2"), "count": 5}))
        attempts = 0

        def cancel_late() -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 8:
                asked.cancel()

        WaitingFilter.between = staticmethod(cancel_late)
        slices: Any = Slices(slice_seconds=0)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("proreus.insight.dry_run.service.Slices", lambda *_: slices)
                with pytest.raises(asyncio.CancelledError):
                    await asked
        finally:
            WaitingFilter.between = None

    world.run(ask())
    # All five nodes are free again.
    assert world.ask({"pod": pod("p", cpu="2"), "count": 5}).all_fit
    world.service._environment.replica.cache.validate()


def test_the_time_limit(make_world: Any) -> None:
    world = make_world()
    world.add(node("a"))

    async def ask() -> None:
        async with world.service._turn:  # another one runs
            with pytest.raises(TimeoutError):
                await answer(world, pod("p"), timeoutSeconds=1)

    world.run(ask())
    assert world.ask(pod("p")).all_fit


def test_plugins_are_made_anew_after_a_change_of_the_configuration(make_world: Any) -> None:
    world = make_world()
    world.add(node("a", taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert not world.ask(pod("p")).all_fit
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {filter: {disabled: [{name: TaintToleration}]}}
"""

    async def change() -> None:
        assembly = world.cluster.assembly
        registry = world.scheduler.profile_set.registry
        config = load(text, registry, assembly.environment.feature_gates)
        assembly.use(assembly.prepare(config, registry))

    world.run(change())
    assert world.ask(pod("p")).all_fit


def test_the_copy_is_freed_when_nobody_asks(make_world: Any) -> None:
    world = make_world(idle_seconds=0.02)
    world.add(node("a"))
    assert world.ask(pod("p")).all_fit
    copy = weakref.ref(table := world.service._environment.replica.cache.table)
    assert table.size == 1
    world.run(asyncio.sleep(0.1))
    assert world.service._environment is None
    # What is large is gone at once, the rest when the collector finds it.
    assert table.size == 0
    del table
    gc.collect()
    assert copy() is None
    assert world.ask(pod("p")).all_fit


def test_nominated_pods_count(world: World) -> None:
    world.add(node("a", cpu="2"))
    preemptor = pod("preemptor", cpu="2", priority=10)
    world.add({**preemptor, "status": {"nominatedNodeName": "a"}})
    assert list(world.scheduler.queue.nominator.nominated_nodes()) == ["a"]
    assert not world.ask(pod("p", cpu="1")).all_fit
    assert world.ask(pod("p", cpu="1", priority=20)).all_fit
    # Its own nomination does not count against a pod.
    assert world.ask(pod("preemptor", cpu="2", priority=10)).all_fit


def test_a_copy_of_a_cluster_that_changes_meanwhile(world: World) -> None:
    world.add(*(node(f"n{number}", cpu="2") for number in range(100)))
    cache = world.scheduler.cache
    replica = ClusterReplica(cache, world.cluster.clock)

    class Changing(Slices):
        pauses = 0

        async def pause_if_due(self) -> None:
            self.pauses += 1
            if self.pauses == 30:
                world.cluster.api.remove("Node", "n3")
                world.cluster.api.remove("Node", "n99")
                world.add(node("new", cpu="3"))
            if self.pauses == 60:
                world.add(pod("bound", cpu="1", nodeName="n7"))

    world.run(replica.sync(Changing()))
    copy = replica.cache
    assert copy.table.rows.keys() == cache.table.rows.keys()
    for info in cache.table:
        own = copy.table[copy.table.rows[info.name]]
        assert own.node is info.node
        assert own.pods == info.pods
    copy.validate()
