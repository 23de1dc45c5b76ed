"""Deadlines of methods that wait; a whole scheduler offline, in the loop's virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from proreus.base.errors import BudgetExceeded, DeadlineExceeded
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.config.types import PluginRef, Plugins, PluginSet
from proreus.engine.runtime.await_deadline import with_deadline
from proreus.engine.runtime.plugin_health import CurrentCall, FailureRules, PluginCall
from proreus.engine.runtime.registry import Registry
from proreus.framework.attempt_budget import AttemptBudget
from proreus.framework.plugin import (
    BindPlugin,
    FetchingPlugin,
    FilterPlugin,
    Plugin,
    PostFilterPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from proreus.framework.status import Status
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS

pytestmark = pytest.mark.looptime

RULES = FailureRules(budget_seconds=60, await_seconds=30, bind_seconds=600)


def make(name: str, *bases: type[Plugin], **methods: Any) -> type[Plugin]:
    return type(name, bases, {"__module__": "somebody", **methods})


async def hangs(*_: Any) -> Any:
    await asyncio.sleep(100_000)


async def returns_when_cancelled(*_: Any) -> Any:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(100_000)


async def raises_when_cancelled(*_: Any) -> Any:
    try:
        await asyncio.sleep(100_000)
    finally:
        raise ValueError("clean-up failed")


async def cleans_up(*_: Any) -> Any:
    try:
        await asyncio.sleep(100_000)
    finally:
        await asyncio.sleep(0.5)


class Cluster:
    """One node, and a scheduler with some plugins in addition to the default ones."""

    def __init__(self, *plugins: type[Plugin], rules: FailureRules = RULES) -> None:
        registry, gates = Registry((*IN_TREE_PLUGINS, *plugins)), FeatureGates()
        enabled = [PluginRef(name=plugin.name) for plugin in plugins]
        binding = [PluginRef(name=p.name) for p in plugins if issubclass(p, BindPlugin)]
        sets = Plugins(
            multi_point=PluginSet(enabled=tuple(enabled)),
            bind=PluginSet(
                enabled=tuple(binding), disabled=(PluginRef(name="*"),) if binding else ()
            ),
        )
        configuration = default_configuration(registry, gates, sets)
        self.offline = OfflineCluster(configuration, registry, gates, OfflineOptions(rules=rules))
        self.scheduler = self.offline.scheduler
        self.add("Node", "n", status={"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}})

    def add(self, kind: str, name: str, **fields: Any) -> None:
        metadata = {"name": name, "uid": name} | ({"namespace": "default"} if kind == "Pod" else {})
        self.offline.api.add({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})

    def add_pod(self, name: str, cpu: str = "1") -> None:
        requests = {"requests": {"cpu": cpu}}
        container = {"name": "c", "image": "i", "resources": requests}
        self.add(
            "Pod", name, spec={"schedulerName": "default-scheduler", "containers": [container]}
        )

    def node_of(self, name: str) -> str:
        return self.offline.api.store(PODS)[f"default/{name}"].spec.node_name

    def message_of(self, name: str) -> str:
        pod = self.offline.api.store(PODS)[f"default/{name}"]
        return next(c.message for c in pod.status.conditions if c.type == "PodScheduled")

    def timeouts(self, plugin: str, point: str) -> float:
        failures = self.offline.metrics.plugin_failures_total
        return failures.labels(plugin, point, "timeout").value


def now() -> float:
    return asyncio.get_running_loop().time()


# ---- the scheduling cycle ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("post_filter", "seconds"),
    [
        (hangs, 30),
        (returns_when_cancelled, 30),
        (raises_when_cancelled, 30),
        (cleans_up, 30.5),
    ],
)
async def test_a_post_filter_that_never_returns_fails_its_attempt(post_filter, seconds) -> None:
    cluster = Cluster(make("Hangs", PostFilterPlugin, post_filter=post_filter))
    cluster.add_pod("big", cpu="64")
    started = now()
    await cluster.offline.schedule_next()
    assert now() - started == pytest.approx(seconds, abs=0.01)
    text = 'plugin "Hangs" has not returned from PostFilter within 30s and was cancelled'
    assert cluster.message_of("big").endswith(text)
    assert cluster.timeouts("Hangs", "PostFilter") == 1
    cluster.add_pod("small")
    await cluster.offline.schedule_next()
    assert cluster.node_of("small") == "n"
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_fetch_that_never_returns_fails_its_attempt() -> None:
    class Reads(FetchingPlugin, FilterPlugin):
        """Fetches for ever."""

        __module__ = "somebody"
        fetch_filter = hangs

        def filter_all(self, *_: Any) -> None:
            pass

    cluster = Cluster(Reads)
    cluster.add_pod("p")
    started = now()
    await cluster.offline.schedule_next()
    assert now() - started == pytest.approx(30, abs=0.01)
    assert cluster.message_of("p") == (
        'running "Reads" filter plugin: '
        'plugin "Reads" has not returned from Filter within 30s and was cancelled'
    )
    assert cluster.timeouts("Reads", "Filter") == 1


async def test_a_reload_waits_for_the_cycle_no_longer_than_the_deadline() -> None:
    cluster = Cluster(make("Hangs", PostFilterPlugin, post_filter=hangs))
    cluster.add_pod("big", cpu="64")
    running = asyncio.create_task(cluster.scheduler.run())
    await asyncio.sleep(5)
    assert cluster.scheduler.cycle_started_at is not None
    reloaded = asyncio.get_running_loop().create_future()
    cluster.scheduler.between_cycles(lambda: reloaded.set_result(now()))
    started = now() - 5
    assert await reloaded - started == pytest.approx(30, abs=0.01)
    cluster.scheduler.stop()
    await running


async def test_an_exceeded_deadline_is_a_failure_of_the_plugin() -> None:
    rules = FailureRules("skip", budget_seconds=60, failures=2, await_seconds=30)
    cluster = Cluster(make("Hangs", PostFilterPlugin, post_filter=hangs), rules=rules)
    for number in range(3):
        cluster.add_pod(f"big{number}", cpu="64")
    started = now()
    for _ in range(3):
        await cluster.offline.schedule_next()
    assert now() - started == pytest.approx(60, abs=0.01)


async def test_without_a_deadline_it_may_wait_for_long() -> None:
    cluster = Cluster(make("Hangs", PostFilterPlugin, post_filter=hangs), rules=FailureRules())
    cluster.add_pod("big", cpu="64")
    started = now()
    await cluster.offline.schedule_next()
    assert now() - started == pytest.approx(100_000)


# ---- the binding cycle -------------------------------------------------------------------------


class Books(ReservePlugin):
    """Records what is undone, in which order."""

    __module__ = "somebody"
    undone: list[str]

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.undone.append(self.name)


@pytest.mark.parametrize(
    ("base", "method", "prefix"),
    [
        (PreBindPlugin, "pre_bind", 'running PreBind plugin "Hangs": '),
        (BindPlugin, "bind", 'running Bind plugin "Hangs": '),
    ],
)
@pytest.mark.parametrize("behaviour", [hangs, cleans_up, returns_when_cancelled])
async def test_a_binding_that_never_ends_fails_and_is_undone(
    base, method, prefix, behaviour
) -> None:
    undone: list[str] = []
    first, second = make("First", Books, undone=undone), make("Second", Books, undone=undone)
    cluster = Cluster(first, second, make("Hangs", base, **{method: behaviour}))
    cluster.add_pod("p")
    await cluster.offline.schedule_next()
    assert cluster.scheduler.cache.is_assumed("p")
    await asyncio.sleep(599)
    assert cluster.scheduler.cache.is_assumed("p")
    await asyncio.sleep(2.1)
    assert not cluster.scheduler.cache.is_assumed("p")
    assert undone == ["Second", "First"]
    point = method.title().replace("_", "")
    assert cluster.message_of("p") == (
        f'{prefix}plugin "Hangs" has not returned from {point} within 600s and was cancelled'
    )
    assert cluster.timeouts("Hangs", point) == 1
    assert cluster.scheduler.queue.get("default/p") is not None


# ---- one call ----------------------------------------------------------------------------------


def limited(method: Callable[[], Awaitable[Any]], seconds: float = 30) -> Awaitable[Any]:
    call = PluginCall("P", "PostFilter")
    return with_deadline(method, call, CurrentCall(), seconds)()


async def test_who_does_not_wait_is_not_delayed() -> None:
    turned = []

    async def at_once() -> Status:
        return Status.error("x")

    asyncio.get_running_loop().call_soon(turned.append, True)
    assert await limited(at_once) == Status.error("x")
    assert turned == []


async def test_waits_of_every_kind_end_as_usual() -> None:
    async def raises() -> None:
        await asyncio.sleep(1)
        raise ValueError("x")

    async def waits() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.sleep(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2)
        first, second = await asyncio.gather(
            asyncio.sleep(1, "one"), raises(), return_exceptions=True
        )
        assert isinstance(second, ValueError)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(asyncio.sleep(2, "two"))
        await asyncio.sleep(0)
        return f"{first} {task.result()}"

    started = now()
    assert await limited(waits) == "one two"
    assert now() - started == pytest.approx(8, abs=0.01)
    with pytest.raises(ValueError, match="x"):
        await limited(raises)
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)
    assert await limited(lambda: future) == 3


@pytest.mark.parametrize("seconds", [5, 30.2])
async def test_a_cancellation_from_outside_passes_through(seconds) -> None:
    task = asyncio.create_task(_await(limited(cleans_up)))
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait((task,), timeout=40)
    assert task.cancelled()


async def _await(work: Awaitable[Any]) -> Any:
    return await work


async def test_a_deadline_within_a_deadline() -> None:
    async def inner() -> None:
        with pytest.raises(DeadlineExceeded, match="within 10s"):
            await limited(hangs, 10)
        await limited(hangs, 50)

    started = now()
    with pytest.raises(DeadlineExceeded, match="within 30s"):
        await limited(inner)
    assert now() - started == pytest.approx(30, abs=0.01)


async def test_the_computing_time_between_waits_counts_for_the_budget() -> None:
    seconds = 0.0
    budget = AttemptBudget(1.0, lambda: seconds)

    async def computes() -> None:
        nonlocal seconds
        for _ in range(3):
            seconds += 0.4
            budget.check("P", "PostFilter")
            await asyncio.sleep(1)

    async def awaits() -> None:
        await limited(computes)

    with pytest.raises(BudgetExceeded):
        await budget.measure(awaits())
    assert budget.used == pytest.approx(1.2)


async def test_a_call_is_the_current_one_between_its_waits_only() -> None:
    current_call, seen = CurrentCall(), []
    call = PluginCall("P", "PreBind")

    async def method() -> None:
        seen.append(current_call.call)
        await asyncio.sleep(0)
        seen.append(current_call.call)

    for seconds in (0, 30):
        task = asyncio.ensure_future(with_deadline(method, call, current_call, seconds)())
        asyncio.get_running_loop().call_soon(lambda: seen.append(current_call.call))
        await task
        assert seen == [call, None, call]
        assert current_call.call is None
        seen.clear()
