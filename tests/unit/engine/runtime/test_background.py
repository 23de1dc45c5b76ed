"""Background work of plugins, in virtual time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from proreus.base.clock import FakeClock
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.runtime.background import BackgroundWork
from proreus.engine.runtime.plugin_health import HealthContext, PluginHealthMonitor
from proreus.framework.plugin import BackgroundPlugin, Plugin
from proreus.testing import FakeHandle

pytestmark = pytest.mark.looptime


class Worker(BackgroundPlugin):
    """Records when it is called and cancelled; fails a given number of times."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__(None, FakeHandle())
        self.failures = failures
        self.lines: list[tuple[str, int]] = []

    def note(self, text: str) -> None:
        self.lines.append((text, round(asyncio.get_running_loop().time())))

    async def run_in_background(self) -> None:
        self.note("begun")
        try:
            await asyncio.sleep(10)
            if self.failures:
                self.failures -= 1
                raise ConnectionError("nobody there")
            await asyncio.sleep(1000)
        finally:
            self.note("ended")


async def test_it_lasts_as_long_as_its_plugin_is_kept() -> None:
    work, first, second = BackgroundWork(), Worker(), Worker()
    without = Plugin(None, FakeHandle())
    work.sync([first, without])
    await asyncio.sleep(5)
    work.sync([first, second])
    await asyncio.sleep(5)
    work.sync([second])
    await asyncio.sleep(5)
    await work.close()
    assert first.lines == [("begun", 0), ("ended", 10)]
    assert second.lines == [("begun", 5), ("ended", 15)]


async def test_work_that_fails_is_begun_again_after_growing_pauses() -> None:
    work, worker = BackgroundWork(), Worker(failures=3)
    work.sync([worker])
    await asyncio.sleep(100)
    await work.close()
    begun = [when for text, when in worker.lines if text == "begun"]
    assert begun == [0, 11, 23, 37]


async def test_failures_of_one_kind_are_counted_and_logged_once_in_ten_minutes(caplog) -> None:
    work, worker = BackgroundWork(), Worker(failures=3)
    health_context = HealthContext(FakeClock(0.0), SchedulerMetrics())
    worker.health = PluginHealthMonitor("Worker", "default-scheduler", True, health_context)
    with caplog.at_level(logging.ERROR, "proreus"):
        work.sync([worker])
        await asyncio.sleep(100)
        await work.close()
    assert [record.msg for record in caplog.records] == ["Plugin raised"]
    failures = health_context.metrics.plugin_failures_total
    assert failures.labels("Worker", "Background", "raised").value == 3


async def test_work_that_fails_while_it_is_cancelled_has_ended(caplog) -> None:
    class Careless(BackgroundPlugin):
        async def run_in_background(self) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                raise ConnectionError("cannot say goodbye")

    work = BackgroundWork()
    work.sync([Careless(None, FakeHandle())])
    await asyncio.sleep(1)
    await work.close()
    assert asyncio.get_running_loop().time() == 1
    assert "does not end" not in caplog.text


async def test_work_that_does_not_end_does_not_keep_the_process_from_ending(caplog) -> None:
    class Stubborn(BackgroundPlugin):
        async def run_in_background(self) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(60)

    work = BackgroundWork()
    work.sync([Stubborn(None, FakeHandle())])
    await asyncio.sleep(1)
    with caplog.at_level(logging.ERROR, "proreus"):
        await work.close()
    assert asyncio.get_running_loop().time() == 3
    assert "Background work does not end" in caplog.text
    await asyncio.sleep(100)
