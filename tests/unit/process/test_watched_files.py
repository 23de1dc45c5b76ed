"""Which files say how to schedule, and when they are other files than those that were read."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from proreus.process import watched_files
from proreus.process.loading.load import PluginSources, load
from proreus.process.watched_files import WatchedFiles

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
def test_a_plugin_module_is_followed_from_when_it_was_read(module, when) -> None:
    def change(moment: str) -> None:
        if moment == when:
            module.write_text(PLUGIN + "# changed\n")

    sources = PluginSources(modules=(f"{module.stem}:Own",))
    files = WatchedFiles("", sources)
    loaded_plugins = load(sources)
    change("while others are read")
    files.set_loaded(loaded_plugins)
    change("later")
    assert files.has_changed() == (when != "never")
    assert not files.has_changed()


BAD = PLUGIN.replace("return None", "raise ValueError")


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "own.py").write_text(PLUGIN)
    return folder


def test_a_rollback_after_the_load_is_a_change_also_if_the_look_before_saw_the_same(folder) -> None:
    sources = PluginSources(folders=(str(folder),), packages=False)
    files = WatchedFiles("", sources)
    (folder / "own.py").write_text(BAD)
    loaded_plugins = load(sources)
    (folder / "own.py").write_text(PLUGIN)
    files.set_loaded(loaded_plugins)
    assert files.has_changed()


def test_the_same_for_a_module_that_is_loaded_again(module) -> None:
    sources = PluginSources(modules=(f"{module.stem}:Own",), packages=False)
    files = WatchedFiles("", sources)
    files.set_loaded(load(sources))
    module.write_text(BAD)
    loaded_plugins = load(sources)
    module.write_text(PLUGIN)
    files.set_loaded(loaded_plugins)
    assert files.has_changed()


def test_the_same_for_a_module_that_is_there_only_while_it_is_loaded(folder) -> None:
    sources = PluginSources(folders=(str(folder),), packages=False)
    files = WatchedFiles("", sources)
    (folder / "other.py").write_text("X = 1")
    loaded_plugins = load(sources)
    (folder / "other.py").unlink()
    files.set_loaded(loaded_plugins)
    assert files.has_changed()
    (folder / "other.py").write_text("X = 1")
    assert files.has_changed()
    files.set_loaded(loaded_plugins)
    assert not files.has_changed()


def test_the_same_for_the_configuration_file(config, folder) -> None:
    sources = PluginSources(folders=(str(folder),), packages=False)
    files = WatchedFiles(str(config), sources)
    files.set_loaded(load(sources))
    files.set_loaded_config(b"bad")
    assert files.has_changed()


def test_unreadable_files_are_loaded_once(folder) -> None:
    (folder / "folder.py").mkdir()
    (folder / "dangling.py").symlink_to("nowhere.py")
    (folder / "null.py").symlink_to("/dev/null")
    (folder / "broken.py").write_text("(")
    sources = PluginSources(folders=(str(folder),), packages=False)
    files = WatchedFiles("", sources)
    for _ in range(3):
        files.set_loaded(load(sources))
        assert not files.has_changed()


@pytest.mark.parametrize("failing", ["open", "scandir"])
async def test_files_that_nobody_can_open_now_have_not_changed(
    config, tmp_path, monkeypatch, failing
) -> None:
    """The process has no file descriptor left: nothing is known of the files."""
    (tmp_path / "own.py").write_text(PLUGIN)
    files = WatchedFiles(str(config), PluginSources(folders=(str(tmp_path),)))

    def exhausted(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as context:
        context.setattr("io.open" if failing == "open" else "os.scandir", exhausted)
        assert not files.has_changed()
    assert not files.has_changed()
    config.write_text("second")
    assert files.has_changed()
