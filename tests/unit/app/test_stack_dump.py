"""What a process leaves behind that ended in C code, and what the next one makes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proreus.app.blocked_plugins import BlockedPlugins
from proreus.app.stack_dump import PluginInUse, StackDump
from proreus.loading import PluginSources, load
from proreus.runtime.disabled_plugin import NeverCalled

PLUGINS = """\
from proreus.framework.plugin import FilterPlugin

class First(FilterPlugin):
    def filter(self, state, pod, node):
        sum(range(10**12))

class Second(FilterPlugin):
    def filter(self, state, pod, node):
        sum(range(10**12))
"""
PROCESS = """\
import sys
from pathlib import Path
from proreus.app.blocked_plugins import BlockedPlugins
from proreus.app.call_watchdog import CallLimits, CallWatchdog
from proreus.loading import PluginSources, load

record, folder = sys.argv[1:]
blocked_plugins = BlockedPlugins(Path(record), "fail")
plugins = load(PluginSources(folders=(folder,), packages=False))
blocked_plugins.apply(plugins)
blocked_plugins.set_in_use(plugins)
with CallWatchdog(CallLimits(0.2, 0.3), blocked_plugins):
    plugins.registry["Second"](None, None).filter(None, None, None)
"""
DUMP = """\
Thread 0x00007f3a6c1b76c0 (most recent call first):
  File "/p/a.py", line 2 in elsewhere

Current thread 0x00007f3a6cc11b80 (most recent call first):
  File "/p/words.py", line 14 in deeper
  File "/p/a.py", line 15 in filter
  File "/x/proreus/runtime/calls.py", line 15 in call_plugin
"""


def in_use(name: str, line: int) -> PluginInUse:
    return PluginInUse(plugin=name, file="/p/a.py", line=line, content=f"content of {name}")


def left(folder: Path, dump: str, header: Any = None) -> None:
    """Leave the file of a process that has ended."""
    if header is None:
        header = {"plugins": [in_use("First", 1), in_use("Second", 10), in_use("Third", 20)]}
    (folder / "blocked.json.1.stack").write_text(json.dumps(header) + "\n" + dump)


def test_c_code_that_holds_the_interpreter_lock_ends_the_process_and_is_recorded(tmp_path):
    folder, record = tmp_path / "plugins", tmp_path / "state" / "blocked.json"
    folder.mkdir()
    (folder / "a.py").write_text(PLUGINS)
    command = [sys.executable, "-c", PROCESS, str(record), str(folder)]
    assert subprocess.run(command, timeout=60).returncode == signal.SIGPROF
    plugins, blocked_plugins = (
        load(PluginSources(folders=(str(folder),), packages=False)),
        BlockedPlugins(record, "skip"),
    )
    blocked_plugins.apply(plugins)
    (entry,) = blocked_plugins.entries
    assert (entry["plugin"], entry["point"]) == ("Second", "Filter")
    assert entry["place"] == f"{folder}/a.py:9"
    assert issubclass(plugins.registry["Second"], NeverCalled)
    assert not issubclass(plugins.registry["First"], NeverCalled)
    assert os.listdir(record.parent) == [record.name]


def test_the_innermost_plugin_of_the_current_thread_is_named(tmp_path):
    left(tmp_path, DUMP)
    (call,) = StackDump(tmp_path / "blocked.json").take_earlier()
    assert (call["plugin"], call["function"]) == (in_use("Second", 10), "filter")
    assert call["place"] == "/p/a.py:15"
    assert list(StackDump(tmp_path / "blocked.json").take_earlier()) == []


@pytest.mark.parametrize(
    ("dump", "header"),
    [
        ("", None),  # it was killed by something else
        (DUMP.replace("/p/a.py", "/p/b.py"), None),
        (DUMP, []),
        (DUMP, {"plugins": [{}]}),
    ],
)
def test_without_a_plugin_there_is_nothing_to_record(tmp_path, dump, header):
    left(tmp_path, dump, header)
    assert list(StackDump(tmp_path / "blocked.json").take_earlier()) == []
    assert os.listdir(tmp_path) == []


def test_the_file_of_a_process_that_runs_is_left_alone(tmp_path):
    record = tmp_path / "blocked.json"
    running = StackDump(record)
    running.prepare([in_use("First", 1)])
    try:
        assert list(StackDump(record).take_earlier()) == []
        (file,) = tmp_path.iterdir()
        running.prepare([in_use("Second", 1)])  # as after a reload
        assert json.loads(file.read_text())["plugins"] == [in_use("Second", 1)]
    finally:
        running.close()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_read_is_no_error(tmp_path, monkeypatch) -> None:
    def exhausted(_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "scandir", exhausted)
    assert list(StackDump(tmp_path / "blocked.json").take_earlier()) == []
