"""The note of plugins that blocked, and what the next process makes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from proreus.engine.runtime.disabled_plugin import NeverCalled
from proreus.engine.runtime.plugin_health import PluginCall
from proreus.process.blocked_plugins import BlockedPlugins, default_path
from proreus.process.loading.load import PluginSources, load
from proreus.process.loading.loaded_plugins import LoadedPlugins

SOURCE = """\
import words
from proreus.framework.plugin import FilterPlugin

class Blocks(FilterPlugin):
    def filter(self, state, pod, node):
        return None

class Other(FilterPlugin):
    def filter(self, state, pod, node):
        return None
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "plugins"
    made.mkdir()
    (made / "blocks.py").write_text(SOURCE)
    (made / "words.py").write_text("")
    return made


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "blocked.json"


def loaded(folder) -> LoadedPlugins:
    return load(PluginSources(folders=(str(folder),), packages=False))


def call(plugins: LoadedPlugins, point: str = "Filter") -> PluginCall:
    return PluginCall("Blocks", point, plugins.found["Blocks"].plugin)


def recorded(path, folder) -> None:
    """Let a process end at the plugin Blocks."""
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(path, "fail")
    blocked_plugins.apply(plugins)
    assert blocked_plugins.record(call(plugins))


def test_by_policy_skip_the_plugin_is_disabled_and_the_others_are_not(path, folder, caplog):
    recorded(path, folder)
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(path, "skip")
    blocked_plugins.apply(plugins)
    blocks, other = (plugins.registry[name] for name in ("Blocks", "Other"))
    assert issubclass(blocks, NeverCalled)
    assert "blocked the event loop at Filter" in blocks.disabled_because
    assert not issubclass(other, NeverCalled)
    assert caplog.records[-1].getMessage() == "Plugin is disabled until it is changed"
    entries = blocked_plugins.describe()["entries"]
    assert list(entries) == ["Blocks"]
    assert entries["Blocks"]["point"] == "Filter"


def test_by_policy_fail_the_plugin_is_called_again_and_named(path, folder, caplog):
    recorded(path, folder)
    plugins = loaded(folder)
    BlockedPlugins(path, "fail").apply(plugins)
    assert not issubclass(plugins.registry["Blocks"], NeverCalled)
    assert caplog.records[-1].getMessage() == "Plugin ended the last process"
    assert caplog.records[-1].pairs["plugin"] == "Blocks"


@pytest.mark.parametrize("changed", ["blocks.py", "words.py"])
def test_a_changed_plugin_is_tried_again(path, folder, changed):
    """It may be repaired in a file that it imports."""
    recorded(path, folder)
    file = folder / changed
    file.write_text(file.read_text() + "\n")
    plugins = loaded(folder)
    BlockedPlugins(path, "skip").apply(plugins)
    assert not issubclass(plugins.registry["Blocks"], NeverCalled)


def test_the_content_that_blocked_counts_not_that_of_the_file_by_then(path, folder):
    blocked_plugins, old = BlockedPlugins(path, "skip"), loaded(folder)
    blocked_plugins.apply(old)
    (folder / "blocks.py").write_text(SOURCE + "\n")
    new = loaded(folder)
    blocked_plugins.apply(new)
    assert blocked_plugins.record(call(old, "PreBind"))
    again = loaded(folder)
    blocked_plugins.apply(again)
    assert not issubclass(again.registry["Blocks"], NeverCalled)


def test_only_loaded_plugins_are_recorded(path, folder):
    blocked_plugins = BlockedPlugins(path, "skip")
    assert not blocked_plugins.record(PluginCall("handler", "on_change"))
    assert not blocked_plugins.record(call(loaded(folder)))
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"Blocks": {"point": 1}}'])
def test_an_unreadable_note_is_logged_and_replaced(path, folder, content, caplog):
    path.parent.mkdir()
    path.write_text(content)
    recorded(path, folder)
    assert "Cannot read the blocked plugins" in {r.getMessage() for r in caplog.records}
    assert list(json.loads(path.read_text())) == ["Blocks"]
    assert os.listdir(path.parent) == [path.name]


def test_another_users_note_is_ignored(path, folder, monkeypatch, caplog):
    recorded(path, folder)
    plugins = loaded(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", lambda self: SimpleNamespace(st_uid=54321))
        BlockedPlugins(path, "skip").apply(plugins)
    assert not issubclass(plugins.registry["Blocks"], NeverCalled)
    assert "it belongs to another user" in caplog.records[-1].err


def test_a_place_that_cannot_be_written_is_logged(folder, caplog):
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(folder / "words.py" / "x", "skip")
    blocked_plugins.apply(plugins)
    assert not blocked_plugins.record(call(plugins))
    assert caplog.records[-1].getMessage() == "Cannot record a blocked plugin"


def test_the_default_place_is_the_users_own():
    assert default_path().parent.name == f"proreus-{os.getuid()}"
