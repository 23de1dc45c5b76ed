"""The elector's thread: what it may do while the scheduler's loop stands still, and how it ends."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from proreus.base.clock import RealClock
from proreus.base.errors import ConfigError, LeaseLost
from proreus.base.metrics import SchedulerMetrics
from proreus.client.http.write_fence import WriteFence
from proreus.config.types import LeaderElection
from proreus.process import election_thread
from proreus.process.election_thread import ElectionThread, make_election
from proreus.process.loop_errors import handle_loop_error

CONNECT_TIMEOUT_SECONDS = 20


class Elector:
    """Stands in for ``LeaderElector``; tests say what its ``run`` does."""

    def __init__(self, work: Any) -> None:
        self.run = work
        self.threads: set[int] = set()


@asynccontextmanager
async def connected() -> AsyncIterator[Any]:
    yield "client"


def election(work: Any, fence: WriteFence | None = None, **more: Any) -> ElectionThread:
    made: Any = Elector(work)
    more.setdefault("end_process", lambda: None)
    return ElectionThread(connected, lambda _: made, fence or WriteFence(), **more)


async def test_it_works_while_the_loop_stands_still() -> None:
    renewed = threading.Event()

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(0.001)
        renewed.set()

    thread = election(work)
    running = asyncio.create_task(thread.run())
    await asyncio.sleep(0)
    assert renewed.wait(CONNECT_TIMEOUT_SECONDS)  # which keeps the loop
    await running
    thread.process_ended()


async def test_errors_of_its_loop_are_handled_as_elsewhere() -> None:
    handlers = []

    async def work() -> None:
        handlers.append(asyncio.get_running_loop().get_exception_handler())

    thread = election(work)
    await thread.run()
    assert handlers == [handle_loop_error]
    thread.process_ended()


async def test_a_lost_lease_is_raised_on_the_schedulers_loop() -> None:
    async def work() -> None:
        raise LeaseLost("z holds it now")

    thread = election(work)
    with pytest.raises(LeaseLost, match="z holds it now"):
        await thread.run()
    thread.process_ended()


async def test_a_client_that_cannot_be_made_raises_too() -> None:
    @asynccontextmanager
    async def refused() -> AsyncIterator[Any]:
        raise ConfigError("no such file")
        yield

    unused: Any = None
    thread = ElectionThread(refused, unused, WriteFence(), end_process=lambda: None)
    with pytest.raises(ConfigError):
        await thread.run()
    thread.process_ended()


async def test_cancelled_it_waits_until_the_lease_is_released() -> None:
    happened, begun = [], threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            happened.append("released")

    thread = election(work)
    running = asyncio.create_task(thread.run())
    await asyncio.sleep(0)
    assert begun.wait(CONNECT_TIMEOUT_SECONDS)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert happened == ["released"]
    thread.process_ended()


async def test_another_thread_may_give_the_lease_up_while_the_loop_stands_still() -> None:
    happened, begun = [], threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            happened.append("released")

    thread = election(work)
    running = asyncio.create_task(thread.run())
    await asyncio.sleep(0)
    assert begun.wait(CONNECT_TIMEOUT_SECONDS)
    other = threading.Thread(target=thread.give_up, args=(CONNECT_TIMEOUT_SECONDS,))
    other.start()
    other.join()  # which keeps the loop
    assert happened == ["released"]
    await running
    thread.process_ended()


def test_there_is_nothing_to_give_up_before_the_election() -> None:
    election(None).give_up(CONNECT_TIMEOUT_SECONDS)


async def test_cancelled_before_the_thread_has_begun_it_never_elects() -> None:
    begun = threading.Event()

    async def work() -> None:
        begun.set()

    thread = election(work)
    thread._cancel()
    await thread.run()
    assert not begun.is_set()
    thread.process_ended()


async def test_a_thread_that_hangs_costs_the_lease(monkeypatch) -> None:
    """In a call that cannot be cancelled; the fence is closed by then, by the clock."""
    monkeypatch.setattr(election_thread, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(election_thread, "_LAST_WORD_SECONDS", 0.01)
    begun, go_on, fence = threading.Event(), threading.Event(), WriteFence()

    async def work() -> None:
        begun.set()
        go_on.wait(CONNECT_TIMEOUT_SECONDS)

    thread = election(work, fence)
    running = asyncio.create_task(thread.run())
    await asyncio.sleep(0)
    assert begun.wait(CONNECT_TIMEOUT_SECONDS)
    fence.until = -math.inf
    with pytest.raises(LeaseLost, match="does not respond"):
        await running
    go_on.set()
    thread.process_ended()


async def test_a_process_that_does_not_end_without_its_lease_is_ended() -> None:
    """Its loop stands still: it neither hears of the loss nor of any signal."""
    ended = threading.Event()

    async def work() -> None:
        raise LeaseLost("the event loop has been blocked for 61 s")

    thread = election(work, end_process=ended.set, end_seconds=0.01)
    running = asyncio.create_task(thread.run())
    await asyncio.sleep(0)
    assert ended.wait(CONNECT_TIMEOUT_SECONDS)  # which keeps the loop
    with pytest.raises(LeaseLost):
        await running


async def test_a_process_that_ends_by_itself_is_not_ended() -> None:
    ended = threading.Event()

    async def work() -> None:
        raise LeaseLost("")

    thread = election(work, end_process=ended.set, end_seconds=0.5)
    with pytest.raises(LeaseLost):
        await thread.run()
    thread.process_ended()
    for left in threading.enumerate():
        if left.name == "end within time":
            left.join()
    assert not ended.is_set()


async def test_its_metrics_are_named_as_kube_schedulers_whatever_the_lease_is_called() -> None:
    clients: Any = SimpleNamespace(connect_for_lease=None, fence=WriteFence())
    events: Any = None
    metrics = SchedulerMetrics()
    make_election(
        clients,
        LeaderElection().model_copy(update={"resource_name": "mine"}),
        metrics,
        lambda: None,
        health_problem=lambda: None,
        recorder=events,
        component="proreus",
        clock=RealClock(),
    )
    assert list(metrics.leader_election_master_status.values()) == [(("kube-scheduler",), 0)]
    assert list(metrics.leader_election_slowpath_total.values()) == [(("kube-scheduler",), 0)]
