"""How a process ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from proreus.app.process import Process
from proreus.client.informer import InformerGroup
from proreus.client.write_fence import WriteFence
from proreus.errors import ConfigError

pytestmark = pytest.mark.looptime


class Run:
    """A process that is ending, with bindings and an election, and a record of what happens."""

    def __init__(self, *bindings: Any, in_flight: tuple[str, ...] = ()) -> None:
        self.happened: list[str] = []
        self.server_seconds = 0.0
        self.fence = WriteFence(now=asyncio.get_running_loop().time)
        start = asyncio.get_running_loop().create_task
        self.bindings = {start(self._named("binding", work)) for work in bindings}
        self.election = start(self._named("election", asyncio.Event().wait()))
        self.cycle = start(self._named("cycle", asyncio.sleep(0)))
        scheduler = SimpleNamespace(
            stop=lambda: self.happened.append("stop"),
            pods_in_flight=lambda: list(in_flight),
            close=self._close,
        )
        self.process: Any = SimpleNamespace(
            _scheduler=scheduler,
            _background=self.bindings,
            state=SimpleNamespace(leads=True, stopping=False),
            _running={"scheduling": self.cycle, "leader election": self.election},
            _events=SimpleNamespace(flush=self._flush),
            _clients=SimpleNamespace(fence=self.fence),
        )
        self.process._scheduling_tasks = lambda: Process._scheduling_tasks(self.process)

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
        for _ in range(3):  # all begin, and the cycle ends
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        started = loop.time()
        await Process._shut_down(self.process, self._stop_server)
        return loop.time() - started


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
    assert run.happened[-1] == "election ended, closed"
    assert "binding ended" not in " ".join(run.happened)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    await asyncio.wait(run.bindings)
    assert run.happened[-1] == "binding ended, closed"


async def test_what_the_last_cycle_begins_is_waited_for_too() -> None:
    run = Run()
    begun = asyncio.get_running_loop().create_task

    async def last_cycle() -> None:
        await asyncio.sleep(3)
        run.bindings.add(begun(run._named("binding", asyncio.sleep(4))))

    run.process._running["scheduling"] = begun(last_cycle())
    assert await run.wind_down() == 7
    assert "binding ended, open" in run.happened


async def test_a_standby_that_waits_for_the_lease_does_not_wait_for_its_own_scheduling() -> None:
    run = Run()
    run.process.state.leads = False
    run.process._running["scheduling"] = waiting = asyncio.ensure_future(asyncio.Event().wait())
    assert await run.wind_down() == 0
    waiting.cancel()


class Stores:
    """Informers of which some cannot list."""

    def __init__(self, synced: tuple[str, ...], refused: tuple[str, ...]) -> None:
        self.group = InformerGroup()
        for kind in (*synced, *refused):
            informer: Any = SimpleNamespace(
                resource=SimpleNamespace(kind=kind), synced=asyncio.Event()
            )
            self.group.add(informer)
            if kind in synced:
                informer.synced.set()


async def wait_for_sync(stores: Stores, *needed: str) -> None:
    process: Any = SimpleNamespace(_stores=stores, state=SimpleNamespace(synced=True))
    profile_set: Any = SimpleNamespace(kinds={}, needed_kinds=set(needed))
    await Process._wait_for_sync(process, profile_set)


async def test_a_configuration_waits_for_the_kinds_that_it_needs_itself() -> None:
    """A kind that an earlier, refused configuration asked for has nothing to do with it."""
    loop = asyncio.get_running_loop()
    stores = Stores(("Pod", "Node"), ("Quota", "Licence"))
    await wait_for_sync(stores, "Pod")
    assert loop.time() == 0
    with pytest.raises(ConfigError, match="plugins need Licence, which cannot be watched"):
        await wait_for_sync(stores, "Node", "Licence")
    assert loop.time() == 30


async def test_work_that_begins_when_the_process_has_ended_is_dropped() -> None:
    begun = []

    async def work() -> None:
        begun.append("work")

    async def fail() -> None:
        raise LookupError

    async def at_the_end(process: Any) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await Process._spawn(process, work())

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(at_the_end(SimpleNamespace(_tasks=tasks, _background=set())))
            await asyncio.sleep(0)
            tasks.create_task(fail())

    with pytest.raises(ExceptionGroup) as raised:
        await run()
    assert [type(error) for error in raised.value.exceptions] == [LookupError]
    assert not begun


class Informers:
    """A group of informers of which one is not connected until ``connect``."""

    disconnected = ("Pod",)

    def __init__(self) -> None:
        self.connected = asyncio.Event()

    async def wait_until_connected(self) -> None:
        await self.connected.wait()


async def test_a_new_leader_waits_for_its_watches(caplog: pytest.LogCaptureFixture) -> None:
    informers, loop = Informers(), asyncio.get_running_loop()
    process: Any = SimpleNamespace(_stores=SimpleNamespace(group=informers))
    loop.call_later(7, informers.connected.set)
    await Process._catch_up(process)
    assert 7 <= loop.time() < 8
    await Process._catch_up(process)
    assert loop.time() < 8
    assert not caplog.messages
    informers.connected.clear()
    await Process._catch_up(process)
    assert 37 <= loop.time() < 39
    assert caplog.messages == ["Leading, although not everything can be watched"]
