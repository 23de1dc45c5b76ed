import asyncio
import logging
import os
import signal
import subprocess
import sys

import pytest

from proreus.base import logs
from proreus.base.errors import CacheCorrupted, ConfigError, LeaseLost
from proreus.process import run as app
from proreus.process.options import RunOptions

# the package's own "run" is the function
run_module = sys.modules["proreus.process.run"]


@pytest.fixture(autouse=True)
def restore_logging():
    root, ours = logging.getLogger(), logging.getLogger("proreus")
    levels = root.level, ours.level
    yield
    if logs._Settings.handler is not None:
        root.removeHandler(logs._Settings.handler)
        logs._Settings.handler = None
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def body(monkeypatch):
    """Let a function stand in for what a process does between start and end."""

    def use(work):
        monkeypatch.setattr(run_module, "_run_until", work)

    return use


async def test_a_signal_ends_with_0(body, capsys):
    async def work(stopping, options, watchdog):
        os.kill(os.getpid(), signal.SIGTERM)
        await stopping.wait()

    body(work)
    assert await app.run(RunOptions()) == 0
    assert '"Requested to terminate, exiting"' in capsys.readouterr().err


async def test_an_error_is_one_sentence_and_1(body, capsys):
    async def work(stopping, options, watchdog):
        raise ConfigError("open /x: no such file or directory")

    body(work)
    assert await app.run(RunOptions()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("E")
    assert line.endswith('] "command failed" err="open /x: no such file or directory"')


async def test_a_lost_lease_is_1_also_from_within_a_task_group(body, capsys):
    async def lose():
        raise LeaseLost("another holds it")

    async def work(stopping, options, watchdog):
        async with asyncio.TaskGroup() as group:
            group.create_task(lose())

    body(work)
    assert await app.run(RunOptions()) == 1
    assert '"Leaderelection lost" err="another holds it"' in capsys.readouterr().err


async def test_a_corrupted_cache_is_the_end_however_deep_a_handler_runs(body, capsys):
    """As an informer raises it: in nested task groups, while other tasks go on."""

    async def handle():
        raise CacheCorrupted("pod p moved from node a to b")

    async def informers():
        async with asyncio.TaskGroup() as group:
            group.create_task(handle())
            group.create_task(asyncio.Event().wait())

    async def work(stopping, options, watchdog):
        async with asyncio.TaskGroup() as group:
            group.create_task(informers())
            group.create_task(asyncio.Event().wait())
            await stopping.wait()

    body(work)
    assert await app.run(RunOptions()) == 1
    assert 'err="pod p moved from node a to b"' in capsys.readouterr().err


async def test_a_bug_is_not_hidden(body):
    async def work(stopping, options, watchdog):
        raise KeyError("x")

    body(work)
    with pytest.raises(KeyError):
        await app.run(RunOptions())


async def test_flags_without_effect_are_said_once(body, capsys):
    async def work(stopping, options, watchdog):
        pass

    body(work)
    await app.run(RunOptions(flags_without_effect=("--contention-profiling",)))
    err = capsys.readouterr().err
    assert err.count("--contention-profiling") == 1
    assert err.startswith("W")


def test_a_second_signal_ends_at_once_with_1():
    script = """
import asyncio, os, signal, sys
from proreus.process import run as app

async def work(stopping, options, watchdog):
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(30)

sys.modules["proreus.process.run"]._run_until = work
raise SystemExit(asyncio.run(app.run(app.RunOptions())))
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=20, capture_output=True)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
