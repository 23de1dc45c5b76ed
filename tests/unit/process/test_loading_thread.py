"""Code of plugins that runs in a thread before they are in use."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from proreus.base.errors import ConfigError
from proreus.process import loading_thread
from proreus.process.loading_thread import run_in_loading_thread

LOOPS = """
import time

def works(ended):
    while not ended.is_set():
        time.sleep(0.001)
"""


def threads(what: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == what]


async def test_a_result_or_an_error_comes_back() -> None:
    assert await run_in_loading_thread(lambda: 3, "counting", ()) == 3

    def fails() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        await run_in_loading_thread(fails, "failing", (), 10)


async def test_code_that_does_not_return_in_time_is_an_error_with_its_line(tmp_path) -> None:
    file = tmp_path / "loops.py"
    file.write_text(LOOPS)
    names: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    ended = threading.Event()
    with pytest.raises(ConfigError) as raised:
        await run_in_loading_thread(lambda: names["works"](ended), "loading", [str(tmp_path)], 0.2)
    ended.set()
    assert str(raised.value).startswith(f"{file}:")
    assert str(raised.value).endswith(": loading has not ended after 0.2s (--plugin-await-timeout)")
    async with asyncio.timeout(10):
        while threads("loading"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_slow_code_is_logged_with_its_line(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(loading_thread, "_SLOW_SECONDS", 0.05)
    await run_in_loading_thread(lambda: time.sleep(0.3), "importing", ())
    [record] = caplog.records
    assert record.getMessage() == "Plugins take long"
    assert record.pairs["doing"] == "importing"
    assert record.pairs["place"].startswith(f"{__file__}:")


async def test_one_that_is_not_waited_for_any_more_is_ignored() -> None:
    ended = threading.Event()

    def late() -> None:
        ended.wait(10)

    waiting = asyncio.ensure_future(run_in_loading_thread(late, "late", ()))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.wait((waiting,))
    ended.set()
    async with asyncio.timeout(10):
        while threads("late"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
