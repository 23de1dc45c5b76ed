"""The watchdog of plugins' calls, its looks made by hand."""

from __future__ import annotations

import re
import signal
import threading
from typing import Any

import pytest

from proreus.app import call_watchdog as module
from proreus.app.blocked_plugins import BlockedPlugins
from proreus.app.call_watchdog import CallLimits, CallWatchdog
from proreus.framework.plugin import PermitPlugin
from proreus.runtime.running_call import PluginCall, interruptible

LIMITS = CallLimits(interrupt_seconds=5, exit_seconds=15)


class Mine(PermitPlugin):
    """A plugin."""


class Watched:
    """A watchdog, and what it has done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, limits: CallLimits) -> None:
        self.done: list[Any] = []
        records = BlockedPlugins(tmp_path / "blocked.json", "skip")

        def record(plugin: Any, point: str, place: str) -> bool:
            self.done.append(("record", plugin, point))
            return True

        monkeypatch.setattr(records, "record", record)
        monkeypatch.setattr(signal, "pthread_kill", lambda *_: self.done.append("interrupt"))
        self.watchdog = CallWatchdog(
            limits, records, exit_process=lambda code: self.done.append(("exit", code))
        )
        self.watchdog.release = lambda: self.done.append("release")

    def begin(self, started: float = 1.0) -> None:
        call = PluginCall("Mine", "Permit", Mine)
        call.started = started
        self.watchdog.running_call.current = call

    def look(self, seconds: float) -> None:
        """Look eight times a second, for some time."""
        for _ in range(round(seconds * 8)):
            self.watchdog.look(0.125)


@pytest.fixture
def watch(monkeypatch, tmp_path):
    return lambda limits=LIMITS: Watched(monkeypatch, tmp_path, limits)


def test_a_call_over_the_limit_is_interrupted_again_and_again(watch, caplog):
    watched = watch()
    watched.look(10)
    watched.begin()
    watched.look(0.125)  # this one sees the call for the first time
    watched.look(5)
    assert watched.done == []
    watched.look(1)
    assert watched.done == ["interrupt"] * 8
    (record,) = caplog.records
    assert (record.pairs["plugin"], record.pairs["point"]) == ("Mine", "Permit")


def test_another_call_of_the_same_method_begins_anew(watch):
    watched = watch()
    for started in range(1, 20):
        watched.begin(started)
        watched.look(4)
    assert watched.done == []


def test_what_cannot_be_interrupted_is_recorded_and_ends_the_process(watch, caplog):
    watched = watch()
    watched.begin()
    watched.look(20.125)
    assert "release" not in watched.done
    watched.look(0.125)
    assert watched.done[-3:] == [("record", Mine, "Permit"), "release", ("exit", 1)]
    last = caplog.records[-1]
    assert last.getMessage() == "A plugin blocks the event loop; the process ends"
    assert last.pairs["recordedIn"].endswith("blocked.json")


def test_time_in_which_the_process_was_stopped_does_not_count(watch):
    watched = watch()
    watched.begin()
    watched.look(1)
    watched.watchdog.look(3600)
    assert watched.done == []


def test_without_a_limit_nothing_is_done(watch):
    watched = watch(CallLimits(0, 15))
    watched.begin()
    watched.look(100)
    assert watched.done == []


def test_without_a_limit_for_its_end_the_process_goes_on(watch):
    watched = watch(CallLimits(5, 0))
    watched.begin()
    watched.look(100)
    assert set(watched.done) == {"interrupt"}


def test_a_process_that_is_to_end_waits_for_a_plugin_for_20_seconds(watch, caplog):
    watched = watch(CallLimits(0, 0))
    watched.begin()
    watched.look(100)
    watched.watchdog.termination_requested()
    watched.look(20)
    assert watched.done == []
    watched.look(0.125)
    assert watched.done[:2] == ["release", ("exit", 1)]
    assert caplog.records[-1].err == "the process was asked to end"


def test_a_signal_raises_in_the_call_that_blocks(tmp_path, monkeypatch):
    """With the real thread and the real signals."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    limits = CallLimits(interrupt_seconds=0.01, exit_seconds=0)
    before = signal.getsignal(module._SIGNAL)
    watchdog = CallWatchdog(limits, BlockedPlugins(tmp_path / "blocked.json", "skip"))
    call = PluginCall("Mine", "Permit", Mine)
    with watchdog:
        with pytest.raises(Exception, match="blocked the event loop at Permit"):
            interruptible(call, watchdog.running_call, threading.Event().wait)(60)
        with pytest.raises(Exception, match="blocked the event loop at Permit"):
            interruptible(call, watchdog.running_call, loop)()
        # This one holds the interpreter lock, so that the thread cannot run.
        with pytest.raises(Exception, match="blocked the event loop at Permit"):
            interruptible(call, watchdog.running_call, re.match)("(a+)+$", "a" * 64 + "b")
    assert signal.getsignal(module._SIGNAL) == before
    assert "call watchdog" not in {thread.name for thread in threading.enumerate()}


def loop() -> None:
    for _ in range(10**9):
        pass
