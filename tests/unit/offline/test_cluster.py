"""An offline cluster: virtual time, settling, errors of background tasks."""

from __future__ import annotations

import asyncio

import pytest

from proreus.objects.kinds import PODS


async def test_pods_are_bound_one_by_one(kit) -> None:
    cluster = kit.cluster(kit.node("n0"), kit.pod("a"), kit.pod("b"))
    assert await cluster.schedule_next() == ("default/a", "n0")
    assert await cluster.schedule_next() == ("default/b", "n0")
    assert await cluster.schedule_next() is None
    assert {pod.spec.node_name for pod in cluster.api.store(PODS).values()} == {"n0"}


async def test_a_failed_pod_comes_back_at_the_second_after_its_back_off(kit) -> None:
    cluster = kit.cluster(kit.pod("a"))
    assert await cluster.schedule_next() == ("default/a", "")
    cluster.advance(1.99)
    assert await cluster.schedule_next() is None
    cluster.advance(0.01)
    assert await cluster.schedule_next() == ("default/a", "")


async def test_time_does_not_drift(kit) -> None:
    cluster = kit.cluster()
    start = cluster.clock.now()
    ticks = []
    cluster.assembly.housekeeping.tick = lambda: ticks.append(cluster.clock.now() - start)
    for _ in range(1000):
        cluster.advance(0.01)
    assert cluster.clock.now() - start == 10
    assert ticks == list(range(1, 11))


async def test_exceptions_of_tasks_are_raised(kit) -> None:
    cluster = kit.cluster()

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError("a bug")

    cluster.tasks.spawn(broken())
    with pytest.raises(ZeroDivisionError):
        await cluster.settle()
    await cluster.settle()


async def test_a_waiting_task_does_not_block_settle(kit) -> None:
    cluster = kit.cluster()
    never = asyncio.Event()

    async def wait() -> None:
        await never.wait()

    task = cluster.tasks.spawn(wait())
    await cluster.settle()
    assert not task.done()
    never.set()
    await cluster.settle()
    assert task.done()


async def test_the_same_seed_makes_the_same_choices(kit) -> None:
    async def choices(seed: int) -> list[str]:
        nodes = [kit.node(f"n{i}") for i in range(20)]
        cluster = kit.cluster(*nodes, *[kit.pod(f"p{i}", "10m") for i in range(5)], seed=seed)
        return [(await cluster.schedule_next())[1] for _ in range(5)]

    assert await choices(1) == await choices(1) != await choices(2)
