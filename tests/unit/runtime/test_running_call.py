"""Interrupting a plugin's call: where the exception is raised, and where it is not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FunctionType
from typing import Any

import pytest

from proreus.clock import FakeClock
from proreus.errors import CallBlocked, PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.plugin import (
    BackgroundPlugin,
    FetchingPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.status import Code
from proreus.metrics import SchedulerMetrics
from proreus.runtime.calls import await_plugin, call_plugin, invalid_result_error
from proreus.runtime.instrumentation import SortKey, instrument, instrument_hint
from proreus.runtime.out_of_tree import (
    config_errors_from,
    interruptible_code,
    log_exceptions,
    log_exceptions_of_task,
)
from proreus.runtime.plugin_health import HealthContext, PluginHealthMonitor
from proreus.runtime.running_call import CallInterrupted, PluginCall, RunningCall, interruptible

STATE = CycleState()


@pytest.fixture
def context() -> HealthContext:
    return HealthContext(FakeClock(), SchedulerMetrics())


@pytest.fixture
def running(context) -> RunningCall:
    return context.running_call


def make(context: HealthContext, *bases: type[Plugin], **methods: Any) -> Any:
    """Return an instrumented plugin."""
    plugin = type("Blocks", bases, {"__module__": "somebody", **methods})(None, None)  # type: ignore[arg-type]
    plugin.health = PluginHealthMonitor("Blocks", "p", True, context)
    instrument(plugin, plugin.health)
    return plugin


def interrupt(running: RunningCall, limit: float = -1.0) -> None:
    """Do what the signal's handler does, in the frame of the caller."""
    running.interrupt(limit, sys._getframe(1))


def test_it_is_raised_in_the_plugins_code_and_is_its_failure(context, running):
    plugin = make(context, PermitPlugin, permit=lambda *_: interrupt(running))
    with pytest.raises(PluginError) as raised:
        call_plugin(plugin, "Permit", STATE, plugin.permit, STATE, None, "n")
    assert 'plugin "Blocks" has blocked the event loop at Permit for' in str(raised.value)
    failures = context.metrics.plugin_failures_total
    assert failures.labels("Blocks", "Permit", "blocked").value == 1
    assert running.current is None
    interrupt(running)  # nothing is running: nothing is raised


def test_it_is_not_raised_before_the_limit(context, running):
    plugin = make(context, PermitPlugin, permit=lambda *_: interrupt(running, 60))
    assert plugin.permit(STATE, None, "n") is None


def test_what_catches_exceptions_does_not_catch_it(context, running):
    def permit(*_: Any) -> None:
        while True:
            with suppress(Exception):
                interrupt(running)

    plugin = make(context, PermitPlugin, permit=permit)
    with pytest.raises(CallBlocked):
        plugin.permit(STATE, None, "n")


def test_what_was_caught_is_raised_again(context, running):
    caught = []

    def permit(*_: Any) -> None:
        try:
            interrupt(running)
        except BaseException as error:
            caught.append(error)
        interrupt(running)

    plugin = make(context, PermitPlugin, permit=permit)
    with pytest.raises(CallBlocked):
        plugin.permit(STATE, None, "n")
    assert len(caught) == 1


def in_module(name: str, function: Callable[..., Any]) -> Any:
    """Return the function as if a module had defined it."""
    return FunctionType(function.__code__, {**function.__globals__, "__name__": name})


def calls_back(function: Callable[[], Any]) -> Any:
    return function()


@pytest.mark.parametrize(
    "module", ["proreus", "proreus.queue.scheduling_queue", "logging", "asyncio.tasks"]
)
def test_code_that_has_shared_state_is_left_alone(context, running, module):
    innermost = in_module(module, interrupt_here)
    further_out = in_module(module, calls_back)
    plugin = make(context, PermitPlugin, permit=lambda *_: innermost(running))
    assert plugin.permit(STATE, None, "n") is None
    plugin = make(context, PermitPlugin, permit=lambda *_: further_out(lambda: interrupt(running)))
    assert plugin.permit(STATE, None, "n") is None
    with pytest.raises(CallBlocked):
        make(
            context,
            PermitPlugin,
            permit=lambda *_: in_module("proreus_plugin_folder_1.a", interrupt_here)(running),
        ).permit(STATE, None, "n")


def interrupt_here(running: RunningCall) -> None:
    import sys

    running.interrupt(-1.0, sys._getframe())


def test_a_call_site_itself_is_not_interrupted(context, running):
    """It has the result already, or an exception of the plugin's to hand on."""
    running.current = PluginCall("Blocks", "Permit")
    site = interruptible(running.current, running, lambda: None)
    running.interrupt(-1.0, frame_in(site))
    running.current = None


def frame_in(function: Callable[[], Any]) -> Any:
    """Return a frame of a function while it runs."""
    frames = []

    def trace(frame: Any, event: str, _: Any) -> None:
        if frame.f_code is function.__code__:
            frames.append(frame)

    sys.setprofile(trace)
    try:
        function()
    finally:
        sys.setprofile(None)
    return frames[0]


def test_a_call_within_a_call_is_the_inner_plugins(context, running):
    inner = make(context, FilterPlugin, filter=lambda *_: interrupt(running))
    seen = []

    def permit(*_: Any) -> None:
        with suppress(CallBlocked):
            inner.filter(STATE, None, None)
        seen.append(running.current.point)  # type: ignore[union-attr]

    outer = make(context, PermitPlugin, permit=permit)
    outer.permit(STATE, None, "n")
    assert seen == ["Permit"]
    assert running.current is None


# ---- methods that wait -------------------------------------------------------------------------


async def test_a_method_that_waits_is_a_call_only_where_it_does_not(context, running):
    turn = asyncio.Event()
    waiting = []

    async def pre_bind(*_: Any) -> None:
        await asyncio.sleep(0)
        waiting.append(running.current)
        await turn.wait()
        interrupt(running)

    plugin = make(context, PreBindPlugin, pre_bind=pre_bind)
    binding = asyncio.ensure_future(
        await_plugin(plugin, "PreBind", STATE, plugin.pre_bind, STATE, None, "n")
    )
    for _ in range(4):
        await asyncio.sleep(0)
    assert running.current is None
    turn.set()
    with pytest.raises(PluginError, match="blocked the event loop at PreBind"):
        await binding
    assert running.current is None
    (call,) = waiting
    assert call.owner is type(plugin)


async def test_what_a_wait_ends_with_reaches_the_method(context, running):
    ends = []

    async def pre_bind(*_: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    plugin = make(context, PreBindPlugin, pre_bind=pre_bind)
    binding = asyncio.ensure_future(plugin.pre_bind(STATE, None, "n"))
    await asyncio.sleep(0)
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert ends == ["cancelled"]


# ---- every method -------------------------------------------------------------------------------


def test_every_method_that_does_not_wait_may_be_interrupted(context, running):
    def block(*_: Any) -> None:
        interrupt(running)

    bases = (FilterPlugin, ScorePlugin, ReservePlugin, PreEnqueuePlugin, QueueSortPlugin)
    methods = ("filter", "filter_all", "score", "reserve", "unreserve", "sign", "invalidation_key")
    plugin = make(context, *bases, **dict.fromkeys((*methods, "pre_enqueue", "sort_key"), block))
    for name in methods:
        arguments = (None,) * (1 if name in ("sign", "invalidation_key") else 3)
        with pytest.raises((CallBlocked, PluginError), match="blocked the event loop"):
            getattr(plugin, name)(*arguments)
    status = plugin.pre_enqueue(None)
    assert (status.code, "blocked the event loop" in status.message) == (Code.ERROR, True)

    class Queued:
        info = type("Info", (), {"priority": 0})
        timestamp = 1.0

    assert isinstance(plugin.sort_key(Queued()), SortKey)
    hint = instrument_hint(ClusterEvent("Node", 1, hint=block), plugin).hint
    assert hint is not None
    assert hint(None, None, None)  # type: ignore[arg-type]
    assert running.current is None


async def test_fetches_and_background_work_may_be_interrupted(context, running):
    async def block(*_: Any) -> None:
        interrupt(running)

    bases = (FetchingPlugin, BackgroundPlugin, FilterPlugin)
    names = ("fetch_filter", "run_in_background")
    plugin = make(context, *bases, filter=lambda *_: None, **dict.fromkeys(names, block))
    with pytest.raises(CallBlocked, match="at Filter"):
        await plugin.fetch_filter(STATE, None, None)
    with pytest.raises(CallBlocked, match="at Background"):
        await plugin.run_in_background()


def test_constructors_and_registrations_may_be_interrupted(context, running):
    def block(*_: Any) -> None:
        interrupt(running)

    def events_to_register(_: Any) -> Iterable[ClusterEvent]:
        yield ClusterEvent("Node", 1)
        interrupt(running)

    methods = {"__init__": block, "filter": block}
    cls = type("Blocks", (FilterPlugin,), {"__module__": "somebody", **methods})
    with pytest.raises(Exception, match="blocked the event loop at New"), config_errors_from(cls):
        interruptible_code(cls, "New", context, cls)(None, None)
    plugin = make(context, FilterPlugin, filter=block, events_to_register=events_to_register)
    with pytest.raises(CallBlocked, match="at EventsToRegister"):
        plugin.events_to_register()


async def test_handlers_and_spawned_work_may_be_interrupted(context, running, caplog):
    def handler(old: Any, new: Any) -> None:
        interrupt(running)

    async def work() -> None:
        interrupt(running)

    log_exceptions(handler, context)(None, None)
    await log_exceptions_of_task(work(), context)
    assert [r.getMessage() for r in caplog.records] == [
        "A plugin's on_change handler raised",
        "A plugin's background work raised",
    ]
    assert all("blocked the event loop" in r.err for r in caplog.records)


def test_nothing_of_it_leaves_a_call(context, running):
    """The class that plugins may not catch is never seen by callers."""
    call = interruptible(PluginCall("Blocks", "x"), running, lambda: interrupt(running))
    with pytest.raises(CallBlocked) as raised:
        call()
    assert isinstance(raised.value.__cause__, CallInterrupted)


class Endless(Exception):
    """An exception whose text never ends, unless it is interrupted."""

    running: RunningCall

    def __str__(self) -> str:
        interrupt(self.running)
        return "it was not interrupted"


def plainly(error: BaseException) -> BaseException:
    return error


def as_argument(error: BaseException) -> BaseException:
    return ValueError(error)


def as_cause(error: BaseException) -> BaseException:
    outer = ValueError("outer")
    outer.__cause__ = error
    return outer


def as_context(error: BaseException) -> BaseException:
    outer = ValueError("outer")
    outer.__context__ = as_cause(error)
    return outer


def in_a_group(error: BaseException) -> BaseException:
    return BaseExceptionGroup("several", [ValueError("a"), error])


@pytest.mark.parametrize("how", [plainly, as_argument, as_cause, as_context, in_a_group])
@pytest.mark.parametrize("waits", [False, True])
async def test_the_text_of_an_exception_is_made_in_the_call(context, running, how, waits, caplog):
    """Elsewhere it would block the event loop, and nobody could tell whose it is."""
    Endless.running = running

    def permit(*_: Any) -> None:
        raise how(Endless())

    async def pre_bind(*_: Any) -> None:
        raise how(Endless())

    plugin = make(context, PermitPlugin, PreBindPlugin, permit=permit, pre_bind=pre_bind)

    async def call() -> None:
        if waits:
            await await_plugin(plugin, "PreBind", STATE, plugin.pre_bind, STATE, None, "n")
        else:
            call_plugin(plugin, "Permit", STATE, plugin.permit, STATE, None, "n")

    with pytest.raises(PluginError) as raised:
        await call()
    assert 'plugin "Blocks" has blocked the event loop' in str(raised.value)
    (record,) = caplog.records
    assert "__str__" in record.pairs["traceback"]
    assert "it was not interrupted" not in record.pairs["traceback"]
    assert running.current is None


@pytest.mark.parametrize("base", [PermitPlugin, PreEnqueuePlugin])
def test_the_repr_of_a_result_is_made_in_a_call_too(context, running, base):
    class Result:
        def __repr__(self) -> str:
            interrupt(running)
            return "it was not interrupted"

    if base is PreEnqueuePlugin:
        plugin = make(context, base, pre_enqueue=lambda *_: Result())
        message = plugin.pre_enqueue(None).message
    else:
        plugin = make(context, base, permit=lambda *_: Result())
        message = str(invalid_result_error(plugin, "Permit", "a Status", plugin.permit()))
    assert 'plugin "Blocks" has blocked the event loop' in message
    assert running.current is None


def test_a_chain_of_exceptions_may_be_a_circle(context):
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one

    def permit(*_: Any) -> None:
        raise one

    plugin = make(context, PermitPlugin, permit=permit)
    with pytest.raises(ValueError, match="one"):
        plugin.permit(STATE, None, "n")
