"""The record of plugins that blocked, and what the next process makes of it."""

from __future__ import annotations

import json
import os

import pytest

from proreus.app.blocked_plugins import BlockedPlugins, default_path
from proreus.loading import LoadedPlugins, PluginSources, load
from proreus.runtime.disabled_plugin import NeverCalled

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


def recorded(path, folder) -> None:
    """Let a process end at the plugin Blocks."""
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(path, "fail")
    blocked_plugins.apply(plugins)
    place = f"{folder}/blocks.py:6"
    assert blocked_plugins.record(plugins.found["Blocks"].plugin, "Filter", place)


def test_by_policy_skip_the_plugin_is_disabled_and_the_others_are_not(path, folder, caplog):
    recorded(path, folder)
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(path, "skip")
    blocked_plugins.apply(plugins)
    blocks, other = (plugins.registry[name] for name in ("Blocks", "Other"))
    assert issubclass(blocks, NeverCalled)
    assert "blocked the event loop at Filter" in blocks.disabled_because
    assert not issubclass(other, NeverCalled)
    assert caplog.records[-1].getMessage() == "Plugin is disabled until it is changed"
    (entry,) = blocked_plugins.describe()["entries"]
    assert (entry["plugin"], entry["point"]) == ("Blocks", "Filter")


def test_by_policy_fail_the_plugin_is_refused_where_it_is_enabled(path, folder):
    recorded(path, folder)
    plugins = loaded(folder)
    BlockedPlugins(path, "fail").apply(plugins)
    assert "Blocks" not in plugins.registry
    assert plugins.problems_with(["Other"]) == []
    (problem,) = plugins.problems_with(["Blocks"])
    assert problem.startswith(f"plugin Blocks cannot be used: {folder}/blocks.py:4: it blocked")
    assert str(path) in problem


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
    assert blocked_plugins.record(old.found["Blocks"].plugin, "PreBind", "x")
    again = loaded(folder)
    blocked_plugins.apply(again)
    assert not issubclass(again.registry["Blocks"], NeverCalled)


def test_what_is_no_loaded_plugin_is_not_recorded(path, folder):
    blocked_plugins = BlockedPlugins(path, "skip")
    assert not blocked_plugins.record(None, "on_change", "x")
    assert not blocked_plugins.record(loaded(folder).found["Blocks"].plugin, "Filter", "x")
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"blockedPlugins": [{"plugin": 1}]}'])
def test_an_unreadable_record_is_logged_and_replaced(path, folder, content, caplog):
    path.parent.mkdir()
    path.write_text(content)
    recorded(path, folder)
    assert "Cannot read the record of blocked plugins" in {r.getMessage() for r in caplog.records}
    assert len(json.loads(path.read_text())["blockedPlugins"]) == 1


def test_another_users_record_is_ignored(path, folder, monkeypatch, caplog):
    recorded(path, folder)
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(path, "skip")
    with monkeypatch.context() as patch:
        # neither ours nor root's
        patch.setattr(os, "getuid", lambda: 12345)
        real = os.fstat
        patch.setattr(os, "fstat", lambda number: Owned(real(number)))
        blocked_plugins.apply(plugins)
    assert blocked_plugins.entries == []
    assert "it belongs to another user" in caplog.records[-1].err


class Owned:
    """A file's status, of another owner."""

    st_uid = 54321

    def __init__(self, status: os.stat_result) -> None:
        self._status = status

    def __getattr__(self, name: str) -> object:
        return getattr(self._status, name)


def test_a_place_that_cannot_be_written_is_logged(folder, tmp_path, caplog):
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(folder / "words.py" / "x", "skip")
    blocked_plugins.apply(plugins)
    caplog.clear()
    assert not blocked_plugins.record(plugins.found["Blocks"].plugin, "Filter", "x")
    assert caplog.records[-1].getMessage() == "Cannot record a plugin that blocks"


def test_the_record_has_a_limit_and_nothing_is_left_beside_it(path, folder):
    plugins, blocked_plugins = loaded(folder), BlockedPlugins(path, "skip")
    blocked_plugins.apply(plugins)
    for number in range(110):
        blocked_plugins.record(plugins.found["Blocks"].plugin, "Filter", str(number))
    entries = json.loads(path.read_text())["blockedPlugins"]
    assert [entry["place"] for entry in entries] == [str(number) for number in range(10, 110)]
    assert os.listdir(path.parent) == [path.name]


def test_the_default_place_is_the_users_own():
    assert default_path().parent.name == f"proreus-{os.getuid()}"
