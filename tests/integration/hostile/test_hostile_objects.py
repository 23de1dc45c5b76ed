"""Hostile objects of every kind, and malformed lines: no crash, and other pods are scheduled.

A small version of ``make hostile``; the generator is ``objects``.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys

import pytest

from proreus.base.bounded_cache import AGE_INTERVAL_SECONDS
from proreus.objects.kinds import BY_KIND, PODS

from .cluster import HostileCluster
from .objects import NAMED, Objects, event_line, malformed_lines

OBJECTS = 200
LINES = 500
SCALE = 0.01

WAVES_TO_FILL = 6
"""After how many waves the queue's history of its last 10,000 moves is full."""

WAVES = WAVES_TO_FILL + 2


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("proreus").setLevel(logging.CRITICAL)


@pytest.mark.parametrize("kind", list(BY_KIND))
async def test_hostile_objects_affect_no_other_pod(kind: str) -> None:
    cluster = HostileCluster(nodes=10, attempt_seconds=0)
    objects = Objects(kind, 1, SCALE)
    for number in range(OBJECTS):
        made = objects.make(number)
        assert await cluster.watch(kind, [event_line("ADDED", made)])
        if number % 10 == 0:
            # Raises if the pod is lost, or if nothing is left to schedule before it is bound.
            await cluster.wait_of_another_pod("plain")
            cluster.tick()
        # A bound pod stays on its node: no apiserver sends anything else.
        if number % 3 == 0 and kind != "Pod":
            assert await cluster.watch(kind, [event_line("MODIFIED", objects.make(number))])
    await cluster.schedule_all()

    cluster.remove_all_of(kind, f"{kind.lower()}-")
    for _ in range(AGE_INTERVAL_SECONDS):
        cluster.tick()
    await cluster.schedule_all()
    await cluster.wait_of_another_pod("last")
    cluster.scheduler.cache.table.validate()
    cluster.scheduler.queue.validate()
    assert not cluster.failures
    assert cluster.handler_failures() == 0
    assert not [key for key in cluster.api.store(PODS) if key.startswith("default/pod-")]


async def test_the_same_objects_again_add_no_memory() -> None:
    cluster = HostileCluster(nodes=10, attempt_seconds=0)
    blocks = []
    for _ in range(WAVES):
        for kind in ("Node", "Pod"):
            objects = Objects(kind, 1, SCALE)
            for number in range(OBJECTS):
                await cluster.watch(kind, [event_line("ADDED", objects.make(number))])
                await cluster.wait_of_another_pod("plain")
            cluster.remove_all_of(kind, f"{kind.lower()}-")
        for _ in range(3 * AGE_INTERVAL_SECONDS + 1):
            cluster.tick()
        await cluster.schedule_all()
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    # Each object that leaks takes dozens of blocks.
    assert (blocks[-1] - blocks[WAVES_TO_FILL - 1]) / (2 * 2 * OBJECTS) < 3


async def test_malformed_lines_cost_a_new_list_at_most() -> None:
    cluster = HostileCluster(nodes=5, attempt_seconds=0)
    understood = 0
    kinds = itertools.cycle(BY_KIND)
    for line, kind in zip(itertools.islice(malformed_lines(1), LINES), kinds, strict=False):
        understood += await cluster.watch(kind, [line])
    assert 0 < understood < LINES
    await cluster.wait_of_another_pod("last")
    cluster.scheduler.cache.table.validate()
    assert not cluster.failures


def test_equal_seeds_give_equal_objects() -> None:
    for kind in BY_KIND:
        first, again, other = (Objects(kind, seed, SCALE) for seed in (1, 1, 2))
        made = [first.make(number) for number in range(20)]
        assert made == [again.make(number) for number in range(20)]
        assert made != [other.make(number) for number in range(20)]
    assert [*itertools.islice(malformed_lines(3), 50)] == [
        *itertools.islice(malformed_lines(3), 50)
    ]
    assert set(NAMED) <= set(BY_KIND)
