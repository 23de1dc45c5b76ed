"""The tasks of a process."""

from __future__ import annotations

import asyncio

import pytest

from proreus.app.process_tasks import ProcessTasks


async def test_work_that_begins_when_the_process_has_ended_is_dropped() -> None:
    begun = []

    async def work() -> None:
        begun.append("work")

    async def fail() -> None:
        raise LookupError

    async def at_the_end(tasks: ProcessTasks) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await tasks.spawn(work())

    async def run() -> None:
        async with ProcessTasks() as tasks:
            tasks.spawn(at_the_end(tasks))
            await asyncio.sleep(0)
            tasks.start("part", fail())

    with pytest.raises(ExceptionGroup) as raised:
        await run()
    assert [type(error) for error in raised.value.exceptions] == [LookupError]
    assert not begun


async def test_what_is_unfinished() -> None:
    over = asyncio.Event()

    async def wait() -> None:
        await over.wait()

    async with ProcessTasks() as tasks:
        tasks.start("part", wait())
        tasks.start("another", wait())
        tasks.spawn(wait())
        assert {task.get_name() for task in tasks.unfinished("part")} > {"part"}
        assert len(tasks.unfinished("part")) == 2
        [spawned] = tasks.unfinished()
        await tasks.end("part")
        await tasks.end("a part that was never started")
        assert tasks.unfinished("part") == {spawned}
        over.set()
        await spawned
        assert tasks.unfinished() == set()


async def test_everything_is_cancelled() -> None:
    async with asyncio.timeout(1), ProcessTasks() as tasks:
        tasks.start("part", asyncio.sleep(1000))
        tasks.spawn(asyncio.sleep(1000))
        tasks.cancel()
