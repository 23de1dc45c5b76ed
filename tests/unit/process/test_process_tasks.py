"""The tasks of a process."""

from __future__ import annotations

import asyncio

import pytest

from proreus.process.process_tasks import ProcessTasks


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


async def test_unfinished_tasks_of_a_part() -> None:
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


async def run_part(work, during=None) -> None:
    async with ProcessTasks() as tasks:
        tasks.start("other", asyncio.sleep(1000))
        tasks.start("scheduling", work)
        if during is not None:
            await during(tasks)


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt()])
async def test_an_exception_that_would_end_the_loop_ends_the_process_as_a_bug(error) -> None:
    async def ends() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(ExceptionGroup) as raised:
        await run_part(ends())
    [bug] = raised.value.exceptions
    assert type(error).__name__ in str(bug)
    assert bug.__cause__ is error


async def test_a_part_that_is_cancelled_too_early_ends_the_process() -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1000)

    with pytest.raises(ExceptionGroup) as raised:
        await run_part(cancels_itself())
    [bug] = raised.value.exceptions
    assert str(bug) == "scheduling was cancelled while the process was running"


async def test_parts_that_are_cancelled_because_another_failed_are_no_bugs() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(ExceptionGroup) as raised:
        await run_part(fails())
    assert [type(error) for error in raised.value.exceptions] == [LookupError]

    async def body_fails(tasks: ProcessTasks) -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(ExceptionGroup) as raised:
        await run_part(asyncio.sleep(1000), body_fails)
    assert [type(error) for error in raised.value.exceptions] == [LookupError]
