"""The watchdog of the event loop: which plugin it names, what it counts, and that it ends."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from proreus.app import loop_watchdog
from proreus.app.loop_watchdog import BlockingCall, LoopWatchdog, find_blocking_call
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreBindPlugin,
    PreEnqueuePlugin,
)
from proreus.loading import PluginSources, load
from proreus.metrics import SchedulerMetrics
from proreus.runtime.calls import await_plugin, call_plugin

SOURCE = """\
from proreus.framework.plugin import PermitPlugin, PreBindPlugin
import words

class Blocks(PermitPlugin, PreBindPlugin):
    def permit(self, state, pod, node_name):
        return words.deeper(pod)

    async def pre_bind(self, state, pod, node_name):
        return words.deeper(pod)

    def handler(self, old, new):
        return words.deeper(new)
"""
DEEPER = "\ndef deeper(call):\n    return call()\n"


@pytest.fixture
def plugin(tmp_path) -> Any:
    (tmp_path / "blocks.py").write_text(SOURCE)
    (tmp_path / "words.py").write_text(DEEPER)
    loaded_plugins = load(PluginSources(folders=(str(tmp_path),), packages=False))
    return loaded_plugins.registry["Blocks"](None, None)


class Now:
    """A clock to be moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def here() -> BlockingCall:
    """Stand in for what blocks: say who is to blame for being here."""
    return find_blocking_call(sys._getframe())


def test_the_called_plugin_is_named_with_its_own_line(plugin, tmp_path):
    blocking_call = call_plugin(
        plugin, "Permit", CycleState(), plugin.permit, CycleState(), here, "node"
    )
    assert blocking_call == BlockingCall("Blocks", "Permit", f"{tmp_path}/words.py:3")


async def test_a_plugin_in_an_async_point_is_named_too(plugin, tmp_path):
    blocking_call = await await_plugin(
        plugin, "PreBind", CycleState(), plugin.pre_bind, CycleState(), here, "node"
    )
    assert blocking_call == BlockingCall("Blocks", "PreBind", f"{tmp_path}/words.py:3")


def test_a_plugin_called_outside_of_a_call_site_is_named_by_its_method(plugin, tmp_path):
    assert plugin.handler(None, here) == BlockingCall("Blocks", "handler", f"{tmp_path}/words.py:3")
    # As in a loop over nodes, which asks without going by way of ``call_plugin``.
    blocking_call = plugin.permit(CycleState(), here, "node")
    assert blocking_call == BlockingCall("Blocks", "Permit", f"{tmp_path}/words.py:3")


def test_without_a_plugin_there_is_a_line():
    blocking_call = here()
    assert (blocking_call.plugin, blocking_call.point) == ("", "")
    assert blocking_call.place.startswith(f"{__file__}:")


def test_of_two_plugins_the_inner_one_is_named(plugin):
    class Outer(PermitPlugin):
        def permit(self, state: Any, pod: Any, node_name: str) -> Any:
            return call_plugin(plugin, "Permit", state, plugin.permit, state, pod, node_name)

    outer = Outer(None, None)  # type: ignore[arg-type]
    state = CycleState()
    blocking_call: Any = call_plugin(outer, "Permit", state, outer.permit, state, here, "node")
    assert blocking_call.plugin == "Blocks"


# ---- counting and logging ----------------------------------------------------------------------


def frame() -> FrameType:
    return sys._getframe()


def test_lag_is_counted_and_a_block_once(caplog):
    now, metrics = Now(), SchedulerMetrics()
    watchdog = LoopWatchdog(0.25, metrics, now=now)
    now.seconds += 0.34
    assert not watchdog.late
    now.seconds += 0.1
    assert watchdog.late
    watchdog.check(frame())
    watchdog.check(frame())
    watchdog.beat(100.1)
    assert not watchdog.late
    watchdog.beat(now.seconds)
    assert metrics.loop_blocked_total.labels("").value == 1
    assert metrics.loop_lag_seconds.count == 2
    assert metrics.loop_lag_seconds.sum == pytest.approx(0.34)
    (record,) = caplog.records
    assert (record.levelno, record.pairs["blocked"]) == (logging.WARNING, "0.440s")


@pytest.mark.parametrize("computes", [True, False])
def test_how_much_of_the_time_was_computed_is_logged(caplog, computes):
    watchdog = LoopWatchdog(0.25, SchedulerMetrics())
    began = time.thread_time()
    if computes:
        while time.thread_time() < began + 0.1:
            pass
    else:
        time.sleep(0.1)
    here = frame()
    # as the watchdog's thread does, which has a CPU time of its own
    thread = threading.Thread(target=watchdog.check, args=(here,))
    thread.start()
    thread.join()
    cpu_seconds = float(caplog.records[0].pairs["cpu"].removesuffix("s"))
    assert (cpu_seconds >= 0.1) == computes


def test_the_same_is_logged_once_a_minute_and_counted_always(caplog, plugin):
    now, metrics = Now(), SchedulerMetrics()
    watchdog = LoopWatchdog(0.25, metrics, now=now)

    def block() -> None:
        now.seconds += 1
        watchdog.check(sys._getframe())
        watchdog.beat(now.seconds)

    state = CycleState()
    for _ in range(3):
        call_plugin(plugin, "Permit", state, plugin.permit, state, block, "node")
    assert metrics.loop_blocked_total.labels("Blocks").value == 3
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert (record.pairs["plugin"], record.pairs["point"]) == ("Blocks", "Permit")
    now.seconds += 60
    call_plugin(plugin, "Permit", state, plugin.permit, state, block, "node")
    assert len(caplog.records) == 2


@pytest.mark.looptime
async def test_until_it_is_to_watch_it_only_knows_for_how_long_the_loop_stands_still():
    """At the start much is read at once: that is no lag, and nobody's fault."""
    metrics = SchedulerMetrics()
    loop = asyncio.get_running_loop()
    watchdog = LoopWatchdog(0.25, metrics, now=loop.time)
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(10.05)
    assert watchdog.silent_seconds == pytest.approx(0.05, abs=0.01)
    assert metrics.loop_lag_seconds.count == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(70)
    assert watchdog.silent_seconds > 70


# ---- the thread --------------------------------------------------------------------------------


class Blocking(PreBindPlugin):
    """Blocks the loop until it is found out."""

    def __init__(self, found_out: threading.Event) -> None:
        self.found_out = found_out

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> None:
        assert self.found_out.wait(10)


async def test_a_plugin_is_caught_in_the_act_and_the_thread_ends(monkeypatch):
    monkeypatch.setattr(loop_watchdog, "_BEAT_SECONDS", 0.01)
    found_out, metrics = threading.Event(), SchedulerMetrics()
    watchdog = LoopWatchdog(0.02, metrics)

    def check(frame: FrameType) -> None:
        LoopWatchdog.check(watchdog, frame)
        if watchdog._seen is not None and watchdog._seen.plugin:
            found_out.set()
        else:
            watchdog._seen = None  # this machine was slow, not the plugin: look again

    monkeypatch.setattr(watchdog, "check", check)
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0)
    watchdog.watch()
    plugin: Plugin = Blocking(found_out)
    await await_plugin(plugin, "PreBind", CycleState(), plugin.pre_bind, None, None, "")
    watchdog.beat()
    assert metrics.loop_blocked_total.labels("Blocking").value == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "loop watchdog" not in {thread.name for thread in threading.enumerate()}


async def test_what_blocked_the_loop_is_not_kept_alive(monkeypatch):
    monkeypatch.setattr(loop_watchdog, "_BEAT_SECONDS", 0.01)
    looked = threading.Event()
    watchdog = LoopWatchdog(0.02, SchedulerMetrics())
    # It does not look again: another frame would take the place of the one that may be kept.
    monkeypatch.setattr(LoopWatchdog, "late", property(lambda self: not looked.is_set()))

    def check(frame: FrameType) -> None:
        LoopWatchdog.check(watchdog, frame)
        if "large" in frame.f_locals or "large" in getattr(frame.f_back, "f_locals", {}):
            looked.set()

    monkeypatch.setattr(watchdog, "check", check)
    gone = threading.Event()

    def block() -> None:
        large = Large()
        weakref.finalize(large, gone.set)
        while not looked.is_set():
            pass

    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0)
    watchdog.watch()
    block()
    assert gone.wait(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_does_not_end_keeps_nothing_of_when_the_loop_was_blocked():
    handled: asyncio.Queue[object] = asyncio.Queue()

    class Watch:
        async def run(self) -> None:
            while True:
                event = await handled.get()
                here()
                del event

    task = asyncio.create_task(Watch().run())
    large = Large()
    gone = weakref.ref(large)
    handled.put_nowait(large)
    del large
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert handled.empty()
    assert gone() is None
    task.cancel()


class Large:
    """What a function that blocks has in a local variable."""


# ---- many short calls --------------------------------------------------------------------------


class Short(PreEnqueuePlugin, FilterPlugin):
    """Tells the watchdog in each call that this is where the loop is."""

    def __init__(self, watchdog: LoopWatchdog) -> None:
        self.watchdog = watchdog

    def pre_enqueue(self, pod: Any) -> None:
        self.watchdog.look(sys._getframe())

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        self.watchdog.look(sys._getframe())


def looks(short: Short, work: Callable[[], object], share: float, turns: int = 80) -> None:
    """Have the watchdog look for ten seconds, and find some of the time ``work``."""
    for number in range(turns):
        work() if number < share * turns else short.watchdog.look(sys._getframe())


@pytest.mark.parametrize(("share", "reported"), [(0.9, 1), (0.5, 1), (0.4, 0)])
def test_a_plugin_that_many_short_calls_are_of_is_reported(caplog, share, reported):
    metrics = SchedulerMetrics()
    watchdog = LoopWatchdog(0.25, metrics, now=Now())
    short = Short(watchdog)
    looks(short, lambda: short.pre_enqueue(None), share)
    assert len(caplog.records) == reported
    watchdog.beat()
    assert metrics.loop_blocked_total.labels("Short").value == reported
    if reported:
        assert caplog.records[0].getMessage() == "A plugin keeps the event loop busy"
        values = caplog.records[0].pairs
        assert (values["plugin"], values["point"]) == ("Short", "PreEnqueue")


def test_it_is_logged_once_a_minute_and_counted_always(caplog):
    metrics, now = SchedulerMetrics(), Now()
    watchdog = LoopWatchdog(0.25, metrics, now=now)
    short = Short(watchdog)
    for _ in range(3):
        looks(short, lambda: short.pre_enqueue(None), 1)
        watchdog.beat()
    assert len(caplog.records) == 1
    assert metrics.loop_blocked_total.labels("Short").value == 3


def test_pods_that_are_scheduled_all_the_time_are_no_fault_of_a_plugin(caplog):
    watchdog = LoopWatchdog(0.25, SchedulerMetrics(), now=Now())
    short = Short(watchdog)
    looks(short, lambda: short.filter(None, None, None), 1)
    assert not caplog.records
