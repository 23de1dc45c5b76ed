"""PreBind, Bind and PostBind: the effect of each status, and which plugins run concurrently."""

from __future__ import annotations

import asyncio

import pytest

from proreus.base.errors import PluginError
from proreus.engine.runtime.binding_points import (
    run_bind,
    run_post_bind,
    run_pre_bind,
    run_pre_bind_pre_flight,
)
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import BindPlugin, PostBindPlugin, PreBindPlugin
from proreus.framework.status import Code, Status

REJECTIONS = [Status.unschedulable("no"), Status.unresolvable("no"), Status.pending("no")]


# ---- pre-flight ----------------------------------------------------------------------------------


def pre_flight(kit, **results: object) -> frozenset[str]:
    plugins = [
        kit.plugin(name, PreBindPlugin, pre_bind_pre_flight=a) for name, a in results.items()
    ]
    profile = kit.SearchHarness(*plugins).profile
    return run_pre_bind_pre_flight(profile, CycleState(), kit.make_pod("p"), "n")


def test_pre_flight_names_who_has_work(kit) -> None:
    assert pre_flight(kit, A=None, B=Status.skip(), C=Status(Code.SUCCESS)) == {"A", "C"}


@pytest.mark.parametrize("result", [Status.error("boom"), ValueError("boom")])
def test_pre_flight_error(kit, result) -> None:
    with pytest.raises(PluginError) as caught:
        pre_flight(kit, A=result)
    assert str(caught.value) == 'running PreBindPreFlight "A": boom'


@pytest.mark.parametrize("result", [*REJECTIONS, Status.wait(1)])
def test_pre_flight_must_not_reject(kit, result) -> None:
    with pytest.raises(PluginError) as caught:
        pre_flight(kit, A=result)
    assert str(caught.value) == (
        f'PreBindPreFlight A returned "{result.code.label}", which is unsupported. '
        "It is supposed to return Success, Skip, or Error status"
    )


# ---- PreBind -------------------------------------------------------------------------------------


class CallLog:
    """PreBind plugins that write down when they begin and end."""

    def __init__(self, kit) -> None:
        self.kit = kit
        self.lines: list[str] = []
        self.plugins: list[type] = []

    def add(self, name: str, parallel: bool = False, turns: int = 2, result: object = None) -> None:
        async def pre_bind(plugin, state, pod, node_name):
            self.lines.append(f"{name} begins")
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                self.lines.append(f"{name} is cancelled")
                raise
            if isinstance(result, Exception):
                raise result
            self.lines.append(f"{name} ends")
            return result

        self.plugins.append(
            self.kit.plugin(name, PreBindPlugin, pre_bind=pre_bind, allow_parallel=parallel)
        )

    async def run(self, *without: str) -> Status | None:
        profile = self.kit.SearchHarness(*self.plugins).profile
        busy = frozenset(plugin.name for plugin in self.plugins) - set(without)
        return await run_pre_bind(profile, CycleState(), self.kit.make_pod("p"), "n", busy)


@pytest.fixture
def call_log(kit) -> CallLog:
    return CallLog(kit)


async def test_pre_bind_runs_in_order(call_log) -> None:
    call_log.add("A")
    call_log.add("B", parallel=True)
    call_log.add("C")
    assert await call_log.run() is None
    assert call_log.lines == ["A begins", "A ends", "B begins", "B ends", "C begins", "C ends"]


async def test_neighbours_that_allow_it_run_together(call_log) -> None:
    call_log.add("A", parallel=True)
    call_log.add("B", parallel=True)
    call_log.add("C")
    assert await call_log.run() is None
    assert call_log.lines[:2] == ["A begins", "B begins"]
    assert call_log.lines[-2:] == ["C begins", "C ends"]


async def test_a_skipped_plugin_that_does_not_allow_it_still_parts_a_group(call_log) -> None:
    call_log.add("A", parallel=True)
    call_log.add("B")
    call_log.add("C", parallel=True)
    assert await call_log.run("B") is None
    assert call_log.lines == ["A begins", "A ends", "C begins", "C ends"]


async def test_a_skipped_plugin_is_not_run(call_log) -> None:
    call_log.add("A")
    call_log.add("B")
    assert await call_log.run("A") is None
    assert call_log.lines == ["B begins", "B ends"]


@pytest.mark.parametrize("result", REJECTIONS)
async def test_a_rejection_ends_pre_bind(call_log, result) -> None:
    call_log.add("A", result=result)
    call_log.add("B")
    assert await call_log.run() == result.with_plugin("A")
    assert "B begins" not in call_log.lines


@pytest.mark.parametrize("result", [Status.unschedulable("no"), ValueError("boom")])
async def test_the_first_failure_cancels_its_group(call_log, result) -> None:
    call_log.add("A", parallel=True, turns=50)
    call_log.add("B", parallel=True, turns=1, result=result)
    call_log.add("C")
    if isinstance(result, Status):
        assert await call_log.run() == result.with_plugin("B")
    else:
        with pytest.raises(PluginError, match=r'^running PreBind plugin "B": boom$'):
            await call_log.run()
    assert "A is cancelled" in call_log.lines
    assert "C begins" not in call_log.lines


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Status.error("boom"), "boom"),
        (ValueError("boom"), "boom"),
        (Status.skip(), "PreBind does not allow the status Skip"),
        (Status.wait(1), "PreBind does not allow the status Wait"),
        ("fine", "PreBind must return a Status or None, not 'fine'"),
    ],
)
async def test_what_pre_bind_must_not_return(call_log, result, text) -> None:
    call_log.add("A", result=result)
    with pytest.raises(PluginError) as caught:
        await call_log.run()
    assert str(caught.value) == f'running PreBind plugin "A": {text}'


# ---- Bind, PostBind ------------------------------------------------------------------------------


async def bind(kit, **results: object) -> Status | None:
    plugins = [kit.plugin(name, BindPlugin, bind=a) for name, a in results.items()]
    return await run_bind(kit.SearchHarness(*plugins).profile, CycleState(), kit.make_pod("p"), "n")


async def test_the_first_that_does_not_skip_binds(kit) -> None:
    assert await bind(kit, A=Status.skip(), B=None, C=ValueError("never called")) is None


async def test_all_skip(kit) -> None:
    status = await bind(kit, A=Status.skip(), B=Status.skip())
    assert status is not None
    assert status.code == Code.SKIP
    assert status.message


@pytest.mark.parametrize("result", REJECTIONS)
async def test_a_rejection_ends_bind(kit, result) -> None:
    assert await bind(kit, A=result, B=None) == result.with_plugin("A")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Status.error("boom"), "boom"),
        (ValueError("boom"), "boom"),
        (Status.wait(1), "Bind does not allow the status Wait"),
    ],
)
async def test_what_bind_must_not_return(kit, result, text) -> None:
    with pytest.raises(PluginError) as caught:
        await bind(kit, A=result, B=None)
    assert str(caught.value) == f'running Bind plugin "A": {text}'


def test_post_bind_goes_on_after_a_failure(kit) -> None:
    bound = []
    bad = kit.plugin("A", PostBindPlugin, post_bind=ValueError("boom"))
    good = kit.plugin("B", PostBindPlugin, post_bind=lambda self, *args: bound.append(args[2]))
    run_post_bind(kit.SearchHarness(bad, good).profile, CycleState(), kit.make_pod("p"), "n")
    assert bound == ["n"]
