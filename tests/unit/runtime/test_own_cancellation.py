"""Methods of plugins that cancel the task in which they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from proreus.errors import DeadlineExceeded
from proreus.runtime.await_deadline import with_deadline
from proreus.runtime.own_cancellation import OwnCancellation, without_own_cancellations

pytestmark = pytest.mark.looptime


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def cancel_later(seconds: float) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(seconds, task.cancel)


async def at_once() -> str:
    cancel()
    await asyncio.sleep(1)
    return "not reached"


async def at_its_end() -> str:
    cancel()
    return "done"


async def by_a_timer() -> str:
    cancel_later(5)
    await asyncio.sleep(100)
    return "not reached"


async def by_a_timer_that_it_heeds() -> str:
    cancel_later(5)
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(100)
    return "timed out"


async def twice() -> str:
    cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(1)
    cancel()
    raise ValueError("x")


def wrapped(
    method: Callable[[], Awaitable[Any]], *, ending: bool = False, seconds: float = 0.0
) -> Awaitable[Any]:
    limited = with_deadline(method, "Cancels", "PreBind", seconds)
    return without_own_cancellations(limited, lambda: ending)()


@pytest.mark.parametrize("seconds", [0, 30])
@pytest.mark.parametrize(
    ("method", "outcome"),
    [
        (at_once, OwnCancellation),
        (at_its_end, "done"),
        (by_a_timer, OwnCancellation),
        (by_a_timer_that_it_heeds, "timed out"),
        (twice, ValueError),
    ],
)
async def test_nothing_of_it_is_left_in_the_task(method, outcome, seconds) -> None:
    if isinstance(outcome, str):
        assert await wrapped(method, seconds=seconds) == outcome
    else:
        with pytest.raises(outcome):
            await wrapped(method, seconds=seconds)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(1)  # raises what is still pending
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.sleep(10)


async def test_a_deadline_after_it_is_the_deadline() -> None:
    async def ignores() -> None:
        cancel()
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(100)

    with pytest.raises((DeadlineExceeded, OwnCancellation)):
        await wrapped(ignores, seconds=30)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_at_the_end_of_the_process_a_cancellation_is_what_it_is() -> None:
    async def hangs() -> None:
        await asyncio.sleep(100)

    task = asyncio.ensure_future(_await(wrapped(hangs, ending=True)))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def _await(work: Awaitable[Any]) -> Any:
    return await work
