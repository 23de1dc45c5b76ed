"""The watchdog of the event loop: what it names and counts, and when it ends the process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from proreus.base.clock import FakeClock
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.runtime.instrumentation import instrument
from proreus.engine.runtime.plugin_health import HealthContext, PluginCall, PluginHealthMonitor
from proreus.framework.plugin import PreBindPlugin
from proreus.process.blocked_plugins import BlockedPlugins
from proreus.process.loop_watchdog import LoopWatchdog


class Now:
    """A clock to be moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Blocks(PreBindPlugin):
    """Blocks the loop until somebody lets it go."""

    name = "Blocks"

    def __init__(self) -> None:
        self.go_on = threading.Event()

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> None:
        await asyncio.sleep(0)
        assert self.go_on.wait(10)


CALL = PluginCall("Blocks", "Filter", Blocks)


class Notes(BlockedPlugins):
    """Keeps the calls that it is to record."""

    path: Any = "/x"

    def __init__(self) -> None:
        self.calls: list[PluginCall] = []

    def record(self, call: PluginCall) -> bool:
        self.calls.append(call)
        return True


class Watched:
    """A watchdog whose looks and beats are a test's."""

    def __init__(self, report: float = 0.25, leave: float = 0.0) -> None:
        self.now = Now()
        self.metrics = SchedulerMetrics()
        self.notes = Notes()
        self.done: list[object] = []
        self.watchdog = LoopWatchdog(
            report, leave, self.notes, now=self.now, exit_process=self.done.append
        )
        self.watchdog.release = lambda: self.done.append("released")
        self.watchdog.report()

    def pass_(self, seconds: float, call: PluginCall | None = None) -> None:
        """Let time pass in a call, with a look at its end."""
        self.watchdog.current_call.call = call
        self.now.seconds += seconds
        self.watchdog.look()

    def beat(self) -> None:
        self.watchdog.beat(self.metrics, self.now.seconds)

    def blocked(self, plugin: str) -> float:
        return self.metrics.loop_blocked_total.labels(plugin).value


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_lag_is_counted_and_a_block_once(watched, caplog):
    watched.pass_(0.34)
    assert not caplog.records
    watched.pass_(0.1)
    watched.pass_(0.1)
    watched.watchdog.beat(watched.metrics, 100.1)
    watched.beat()
    assert watched.blocked("") == 1
    lag = watched.metrics.loop_lag_seconds
    assert (lag.count, lag.sum) == (2, pytest.approx(0.44))
    (record,) = caplog.records
    assert (record.levelno, record.pairs["blocked"]) == (logging.WARNING, "0.440s")
    assert "source_location.py:" in record.pairs["place"]


def test_the_same_is_logged_once_a_minute_and_counted_always(watched, caplog):
    for _ in range(3):
        watched.pass_(1, CALL)
        watched.beat()
    assert watched.blocked("Blocks") == 3
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert (record.pairs["plugin"], record.pairs["point"]) == ("Blocks", "Filter")
    watched.pass_(60, CALL)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("computes", [True, False])
def test_how_much_of_the_time_was_computed_is_logged(caplog, computes):
    watched = Watched()
    began = time.thread_time()
    if computes:
        while time.thread_time() < began + 0.1:
            pass
    else:
        time.sleep(0.1)
    # as the watchdog's thread does, which has a CPU time of its own
    thread = threading.Thread(target=watched.pass_, args=(1,))
    thread.start()
    thread.join()
    cpu_seconds = float(caplog.records[0].pairs["cpu"].removesuffix("s"))
    assert (cpu_seconds >= 0.1) == computes


def test_nothing_is_reported_before_it_is_to_or_without_a_threshold(caplog):
    silent, unlimited = Watched(), Watched(report=0.0)
    silent.watchdog._reports = False
    for watched in (silent, unlimited):
        watched.pass_(60, CALL)
        watched.beat()
        assert watched.watchdog.silent_seconds == 0
        assert watched.blocked("Blocks") == 0
        assert watched.metrics.loop_lag_seconds.count == 0
    assert not caplog.records


# ---- the end of the process ----------------------------------------------------------------------


def test_a_plugin_that_blocks_ends_the_process_which_names_it(caplog):
    watched = Watched(leave=2)
    for _ in range(20):
        watched.pass_(0.1, CALL)
    assert not watched.done
    watched.pass_(0.1, CALL)
    assert watched.done == ["released", 1]
    assert watched.notes.calls == [CALL]
    record = caplog.records[-1]
    assert record.getMessage() == "A plugin blocks the event loop; the process ends"
    assert (record.pairs["plugin"], record.pairs["point"]) == ("Blocks", "Filter")
    assert record.pairs["notedIn"] == "/x"


def looks(watched: Watched) -> Iterator[None]:
    """Look for ten seconds, with a pause for something else between two looks."""
    for _ in range(100):
        watched.pass_(0.1, CALL)
        yield


def test_calls_in_between_which_the_loop_turns_end_nothing():
    watched = Watched(leave=2)
    for _ in looks(watched):
        watched.beat()
    assert not watched.done


def test_many_short_calls_among_other_work_end_nothing():
    watched = Watched(leave=2)
    for _ in looks(watched):
        watched.pass_(0.1, None)
    assert not watched.done


def test_a_process_that_was_stopped_in_a_call_goes_on():
    watched = Watched(leave=2)
    watched.pass_(3600, CALL)
    watched.pass_(0.1, CALL)
    assert not watched.done


@pytest.mark.parametrize(("leave", "call"), [(0, CALL), (2, None)])
def test_without_a_limit_or_a_plugin_nothing_ends(leave, call):
    watched = Watched(leave=leave)
    for _ in range(1000):
        watched.pass_(0.1, call)
    assert not watched.done


# ---- the thread ----------------------------------------------------------------------------------


async def test_a_plugin_is_found_while_it_blocks_and_the_thread_ends(tmp_path, caplog):
    plugin, metrics = Blocks(), SchedulerMetrics()
    watchdog = LoopWatchdog(0.02, 0.3, Notes(), exit_process=lambda _: plugin.go_on.set())
    context = HealthContext(FakeClock(), metrics, current_call=watchdog.current_call)
    instrument(plugin, PluginHealthMonitor("Blocks", "p", True, context))
    with watchdog:
        task = asyncio.create_task(watchdog.run(metrics))
        await asyncio.sleep(0)
        watchdog.report()
        await plugin.pre_bind(None, None, "n1")
        assert watchdog.current_call.call is None
        await asyncio.sleep(0.2)
        task.cancel()
    assert metrics.loop_blocked_total.labels("Blocks").value == 1
    assert "loop watchdog" not in {thread.name for thread in threading.enumerate()}
    said = [record.pairs for record in caplog.records if record.levelno == logging.ERROR]
    assert [(pairs["plugin"], pairs["point"]) for pairs in said[:2]] == [("Blocks", "PreBind")] * 2
    assert said[0]["place"].startswith(f"{__file__}:")
