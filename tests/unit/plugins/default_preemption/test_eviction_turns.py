"""The order in which victims of several preemptions are evicted."""

import asyncio

import pytest

from proreus.plugins.default_preemption.eviction_turns import EvictionTurns


async def evict(turns, preemption, name, evicted, seconds=0.01):
    async with turns.turn(preemption):
        evicted.append(name)
        await asyncio.sleep(seconds)


async def test_victims_of_the_first_preemption_come_first():
    turns, evicted = EvictionTurns(1), []
    first, second = turns.next_preemption(), turns.next_preemption()
    async with asyncio.TaskGroup() as tasks:
        for name in ("b1", "b2", "b3"):
            tasks.create_task(evict(turns, second, name, evicted))
        await asyncio.sleep(0)
        for name in ("a1", "a2", "a3"):
            tasks.create_task(evict(turns, first, name, evicted))
    # The one that had begun is not interrupted.
    assert evicted == ["b1", "a1", "a2", "a3", "b2", "b3"]


async def test_only_so_many_at_once():
    turns, running, most = EvictionTurns(3), 0, 0

    async def one():
        nonlocal running, most
        async with turns.turn(0):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(one())
    assert most == 3


@pytest.mark.parametrize("given_first", [False, True])
async def test_a_cancelled_eviction_gives_its_turn_to_the_next(given_first):
    turns, evicted = EvictionTurns(1), []
    release = asyncio.Event()

    async def holder():
        async with turns.turn(0):
            await release.wait()

    tasks = [asyncio.create_task(holder())]
    await asyncio.sleep(0)
    cancelled = asyncio.create_task(evict(turns, 1, "cancelled", evicted))
    tasks.append(asyncio.create_task(evict(turns, 2, "next", evicted)))
    await asyncio.sleep(0)
    if given_first:
        release.set()
        await asyncio.sleep(0)  # the holder ends and passes its turn on in this tick
        cancelled.cancel()
    else:
        cancelled.cancel()
        release.set()
    await asyncio.gather(*tasks, cancelled, return_exceptions=True)
    assert cancelled.cancelled()
    assert evicted == ["next"]


async def test_a_failed_eviction_gives_its_turn_back():
    turns = EvictionTurns(1)
    with pytest.raises(ValueError, match="refused"):
        async with turns.turn(0):
            raise ValueError("refused")
    async with asyncio.timeout(1), turns.turn(1):
        pass


@pytest.mark.looptime
async def test_evictions_that_hang_do_not_stop_others():
    """A webhook of the victims' namespace never answers."""
    turns, evicted, loop = EvictionTurns(2), [], asyncio.get_running_loop()
    hanging = [asyncio.create_task(evict(turns, 0, "a", evicted, 100)) for _ in range(6)]
    await asyncio.sleep(0)
    await evict(turns, 1, "b", evicted)
    assert 3 <= loop.time() < 3.1, "the earlier preemption's go first, two a second"
    await evict(turns, 1, "b", evicted)
    assert loop.time() < 4.1
    await asyncio.gather(*hanging)
    assert turns._free == 2
