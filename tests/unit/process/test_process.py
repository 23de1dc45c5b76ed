"""How a process ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from proreus.client.http.write_fence import WriteFence
from proreus.process import gc_tuning
from proreus.process import process as process_module
from proreus.process.process import Process
from proreus.process.process_tasks import ProcessTasks

pytestmark = pytest.mark.looptime


class Run:
    """A process that is ending, with bindings and an election, and a record of what happens."""

    def __init__(self, *bindings: Any, in_flight: tuple[str, ...] = ()) -> None:
        self.happened: list[str] = []
        self.server_seconds = 0.0
        self.fence = WriteFence(now=asyncio.get_running_loop().time)
        self.tasks = ProcessTasks()
        self.cycle: Any = None
        self._bindings = bindings
        scheduler = SimpleNamespace(
            stop=lambda: self.happened.append("stop"),
            pods_in_flight=lambda: list(in_flight),
            close=self._close,
        )
        self.process: Any = SimpleNamespace(
            _scheduler=scheduler,
            _tasks=self.tasks,
            state=SimpleNamespace(leads=True, stopping=False),
            _events=SimpleNamespace(flush=self._flush),
            _clients=SimpleNamespace(fence=self.fence),
        )
        self.process._scheduling_tasks = lambda: Process._scheduling_tasks(self.process)

    def bind(self, work: Any) -> None:
        """Begin a binding."""
        self.tasks.spawn(self._named("binding", work))

    async def _named(self, name: str, work: Any) -> None:
        try:
            await work
        finally:
            self.happened.append(f"{name} ended, {'open' if self.fence.open else 'closed'}")

    async def _flush(self, seconds: float) -> None:
        self.happened.append(f"flush {seconds:g}")

    async def _close(self) -> None:
        self.happened.append("close")

    async def _stop_server(self) -> None:
        assert "close" in self.happened, "probes are answered until scheduling has ended"
        await asyncio.sleep(self.server_seconds)

    async def wind_down(self) -> float:
        """Return how many seconds it took."""
        loop = asyncio.get_running_loop()
        async with self.tasks:
            for work in self._bindings:
                self.bind(work)
            self.tasks.start("leader election", self._named("election", asyncio.Event().wait()))
            self.tasks.start("scheduling", self._named("cycle", self.cycle or asyncio.sleep(0)))
            for _ in range(3):  # all begin, and the cycle ends
                await asyncio.sleep(0)
            started = loop.time()
            await Process._shut_down(self.process, self._stop_server)
            seconds = loop.time() - started
            self.at_the_end = list(self.happened)
            self.tasks.cancel()
        return seconds


async def test_without_anything_to_wait_for_it_is_quick(caplog) -> None:
    run = Run()
    assert await run.wind_down() == 0
    assert run.happened == [
        "cycle ended, open",
        "stop",
        "close",
        "flush 3",
        "election ended, closed",
    ]
    assert caplog.records == []


async def test_requests_in_progress_end_while_the_lease_is_released() -> None:
    run = Run()
    run.server_seconds = 5.0

    async def hang(seconds: float) -> None:
        await asyncio.sleep(seconds)

    run.process._events = SimpleNamespace(flush=hang)
    assert await run.wind_down() == 5


async def test_bindings_may_end(caplog) -> None:
    run = Run(asyncio.sleep(5), asyncio.sleep(12))
    assert await run.wind_down() == 12
    assert run.happened.count("binding ended, open") == 2
    assert run.happened[-1] == "election ended, closed"
    assert caplog.records == []


async def test_a_binding_that_hangs_is_cancelled_before_the_lease_is_given_back(caplog) -> None:
    names = tuple(f"default/p{number:02}" for number in range(25))
    run = Run(asyncio.sleep(45), in_flight=names)
    assert await run.wind_down() == 20
    assert sorted(run.happened[2:4]) == ["binding ended, open", "close"]
    assert run.happened[-1] == "election ended, closed"
    (record,) = caplog.records
    assert record.pairs == {"count": 25, "pods": list(names[:20])}


async def test_a_binding_that_will_not_be_cancelled_meets_a_closed_fence(caplog) -> None:
    async def stubborn() -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(45)

    run = Run(stubborn())
    assert await run.wind_down() == 22
    assert run.at_the_end[-1] == "election ended, closed"
    assert "binding ended" not in " ".join(run.at_the_end)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert run.happened[-1] == "binding ended, closed"


async def test_waits_for_bindings_of_the_last_cycle_too() -> None:
    run = Run()

    async def last_cycle() -> None:
        await asyncio.sleep(3)
        run.bind(asyncio.sleep(4))

    run.cycle = last_cycle()
    assert await run.wind_down() == 7
    assert "binding ended, open" in run.happened


async def test_a_standby_that_waits_for_the_lease_does_not_wait_for_its_own_scheduling() -> None:
    run = Run()
    run.process.state.leads = False
    run.cycle = asyncio.Event().wait()
    assert await run.wind_down() == 0
    assert "cycle ended, open" not in run.at_the_end


async def test_a_standby_gives_memory_back_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, its caches and garbage grew with whatever tenants created, as long as it lived."""
    monkeypatch.setattr(gc_tuning, "freeze_startup_heap", lambda: None)
    monkeypatch.setattr(process_module, "_RETURN_MEMORY_SECONDS", 2)
    called: list[str] = []
    returned: list[int] = []
    monkeypatch.setattr(gc_tuning, "return_free_memory", lambda: returned.append(len(called) - 1))
    loop = asyncio.get_running_loop()
    synced, ended = asyncio.Event(), asyncio.Event()

    async def first_lists() -> None:
        called.append("first lists")

    process: Any = SimpleNamespace(
        _scheduler=SimpleNamespace(cache=SimpleNamespace(node_count=0)),
        _assembly=SimpleNamespace(
            housekeeping=SimpleNamespace(
                tick=lambda: called.append("tick"), age_caches=lambda: called.append("age")
            )
        ),
        stores=SimpleNamespace(group=SimpleNamespace(run=ended.wait)),
        _informer_sync=SimpleNamespace(wait_for_first_lists=first_lists),
        _options=SimpleNamespace(cache_compare_interval_seconds=0),
        _watchdog=SimpleNamespace(report=lambda: None),
        _clock=SimpleNamespace(monotonic=loop.time),
        debugger=SimpleNamespace(run=lambda *_: ended.wait()),
        state=SimpleNamespace(leads=False, synced=False),
        synced=synced,
        _tasks=ProcessTasks(),
    )
    process._tick = lambda: Process._tick(process)
    async with process._tasks:
        await Process._fill_stores(process)
        await asyncio.sleep(2.5)
        process.state.leads = True
        await asyncio.sleep(2.0)
        process._tasks.cancel()
    assert called == ["first lists", "age", "age", "tick", "tick"]
    assert returned == [2, 4]
