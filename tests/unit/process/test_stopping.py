"""The end of a process stays within its time, whatever hangs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from proreus.process.stopping import end_within_time, until_set


async def test_a_hanging_start_is_cancelled_by_the_signal() -> None:
    stopping, happened = asyncio.Event(), []

    async def start() -> None:
        async with until_set(stopping):
            try:
                await asyncio.Event().wait()
            finally:
                happened.append("cancelled")
            happened.append("never")
        happened.append("goes on")
        await asyncio.sleep(0)

    task = asyncio.create_task(start())
    await asyncio.sleep(0)
    stopping.set()
    await task
    assert happened == ["cancelled", "goes on"]
    assert not task.cancelling()


async def test_a_signal_after_the_block_cancels_nothing() -> None:
    stopping = asyncio.Event()
    async with until_set(stopping):
        await asyncio.sleep(0)
    stopping.set()
    for _ in range(3):
        await asyncio.sleep(0)


async def test_errors_and_other_cancellations_go_on() -> None:
    stopping = asyncio.Event()
    with pytest.raises(ValueError, match="x"):
        async with until_set(stopping):
            raise ValueError("x")

    async def wait() -> None:
        async with until_set(stopping):
            await asyncio.Event().wait()

    for signal_too in (False, True):
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        if signal_too:
            stopping.set()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_process_that_does_not_end_is_ended(caplog) -> None:
    killed = threading.Event()
    end_within_time(0.0, killed.set)
    assert killed.wait(30)
    assert "The process does not end and is killed" in caplog.text
