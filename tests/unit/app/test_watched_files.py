"""Which files say how to schedule, and when they are other files than those that were read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proreus.app import watched_files
from proreus.app.watched_files import WatchedFiles
from proreus.loading import PluginSources, load

PLUGIN = """
from proreus.framework.plugin import FilterPlugin

class Own(FilterPlugin):
    def filter(self, state, pod, node):
        return None
"""


@pytest.fixture
def config(tmp_path) -> Path:
    file = tmp_path / "scheduler.yaml"
    file.write_text("first")
    return file


@pytest.fixture
def module(tmp_path, monkeypatch) -> Path:
    file = tmp_path / "own_module_of_a_test.py"
    file.write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    return file


async def changed(files: WatchedFiles) -> bool:
    """Follow until a look finds something else."""
    async with asyncio.timeout(20):
        async for _ in files.changes():
            if files.has_changed():
                return True
    return False


async def test_a_change_before_anybody_follows_is_one(config) -> None:
    files = WatchedFiles(str(config), PluginSources())
    assert not files.has_changed()
    config.write_text("second")
    assert await changed(files)


async def test_a_change_that_the_file_system_does_not_report(config, monkeypatch) -> None:
    """Some network file systems are like that; folders are watched, so a link shows nothing."""
    monkeypatch.setattr(watched_files, "_LOOK_AGAIN_MILLISECONDS", 50)
    folder = config.parent / "elsewhere"
    folder.mkdir()
    config.rename(folder / "real.yaml")
    config.symlink_to("elsewhere/real.yaml")
    files = WatchedFiles(str(config), PluginSources())
    looks = 0
    async with asyncio.timeout(20):
        async for _ in files.changes():
            if files.has_changed():
                break
            looks += 1
            if looks == 3:
                (folder / "real.yaml").write_text("second")
    assert looks >= 3


@pytest.mark.parametrize("when", ["never", "while others are read", "later"])
def test_a_plugin_module_is_followed_from_when_it_was_read(module, when, monkeypatch) -> None:
    def change(moment: str) -> None:
        if moment == when:
            module.write_text(PLUGIN + "# changed\n")

    if when == "never":  # it is new, so that its time may be that of the first look
        monkeypatch.setattr(watched_files, "_GRAIN_NANOSECONDS", 0)
    sources = PluginSources(modules=(f"{module.stem}:Own",))
    files = WatchedFiles("", sources)
    loaded_plugins = load(sources)
    change("while others are read")
    files.add_modules_of(loaded_plugins)
    change("later")
    assert files.has_changed() == (when != "never")
    assert not files.has_changed()
