"""A round of the cache debugger: what counts, what is said, and when it runs."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

import pytest

from proreus.base.errors import ApiError
from proreus.client.watching.store_comparer import Correction
from proreus.engine.debugger.debugger import (
    PAUSE_SECONDS,
    SETTLE_SECONDS,
    SLICE_SECONDS,
    CacheDebugger,
    TimeSlices,
)
from proreus.objects.kinds import PODS

pytestmark = pytest.mark.looptime


class FakeStore:
    """The comparer of the pods' store; ``lost``: keys whose events it believes to be lost."""

    kind = "Pod"

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.error: ApiError | None = None
        self.healed: list[str] = []
        self.bound: set[str] = set()

    async def suspects(self, checkpoint) -> dict[str, object]:
        if self.error is not None:
            raise self.error
        return dict.fromkeys(self.lost)

    async def agrees(self, key: str) -> bool:
        return key not in self.bound

    async def confirm(self, key: str, seen: object) -> Correction | None:
        return Correction(key, None, object()) if key in self.lost else None

    def heal(self, correction: Correction) -> bool:
        self.healed.append(correction.key)
        self.lost.remove(correction.key)
        return True


class Bench:
    """A debugger of a world with one node and two pods."""

    def __init__(self, world) -> None:
        self.world = world
        world.add_node("n0")
        world.add_pod("a", node_name="n0", cpu="1")
        world.add_pod("p")
        self.store = FakeStore()
        self.delayed: list[Callable[[], None]] | None = None
        self.metrics = world.metrics
        self.debugger = CacheDebugger(
            comparer=world.assembly.comparer,
            stores=self._stores,
            cache=world.cache,
            queue=world.queue,
            between_cycles=self._between_cycles,
            metrics=world.metrics,
            stopwatch=lambda: 0.0,
            rng=random.Random(1),
        )

    def _stores(self) -> Iterable[FakeStore]:
        return [self.store]

    def _between_cycles(self, change: Callable[[], None]) -> None:
        if self.delayed is None:
            change()
        else:
            self.delayed.append(change)

    def count(self, result: str) -> float:
        return self.metrics.cache_comparisons_total.labels(result).value

    def differences(self, structure: str) -> float:
        return self.metrics.cache_differences_total.labels(structure).value

    def corrupt(self) -> None:
        self.world.cache.table._node_state.pod_count[0] = 9


@pytest.fixture
def bench(kit) -> Bench:
    return Bench(kit.World())


def said(caplog) -> list[dict[str, object]]:
    return [r.pairs for r in caplog.records if r.levelno == logging.ERROR]


async def test_without_a_difference_a_round_is_quick_and_silent(bench, caplog) -> None:
    began = asyncio.get_running_loop().time()
    assert await bench.debugger.compare() == []
    assert asyncio.get_running_loop().time() == began
    assert (bench.count("success"), caplog.records) == (1, [])


async def test_what_persists_is_named_counted_and_healed(bench, caplog) -> None:
    bench.corrupt()
    bench.store.lost = [f"default/lost-{number}" for number in range(12)]
    healed = await bench.debugger.compare()
    assert len(healed) == 13
    assert (bench.differences("store"), bench.differences("columns")) == (12, 1)
    assert len(bench.store.healed) == 12
    stores, columns = said(caplog)
    assert stores["count"] == 12
    assert stores["objects"][-2:] == ["Pod default/lost-9 is missing", "2 more"]
    assert columns["objects"] == ["Node n0 has a wrong pod_count"]
    bench.world.validate()
    assert await bench.debugger.compare() == []


async def test_what_passes_does_not_count(bench, caplog) -> None:
    bench.corrupt()
    bench.store.lost = ["default/late"]
    round_ = asyncio.create_task(bench.debugger.compare())
    await asyncio.sleep(SETTLE_SECONDS / 2)
    bench.world.cache.table._node_state.pod_count[0] = 1
    bench.store.lost = []
    assert await round_ == []
    assert said(caplog) == []


async def test_nothing_is_healed_during_a_cycle(bench) -> None:
    bench.corrupt()
    bench.delayed = []
    round_ = asyncio.create_task(bench.debugger.compare())
    await asyncio.sleep(2 * SETTLE_SECONDS)
    assert bench.world.cache.table._node_state.pod_count[0] == 9
    bench.delayed.pop()()
    assert await round_ == ["Node n0 has a wrong pod_count"]
    bench.world.validate()


async def test_an_assumed_pod_is_only_forgotten_if_the_apiserver_says_so(bench) -> None:
    world, store = bench.world, bench.store
    info = world.queued("p").info
    world.queue.delete(info)
    world.cache.assume(info, "n0")
    # Bound, and the event is late: to forget it would give its resources away twice.
    store.bound = {"default/p"}
    assert await bench.debugger.compare() == []
    assert world.cache.is_assumed(info.uid)
    store.bound = set()
    assert await bench.debugger.compare() == ["Pod default/p is assumed although nothing binds it"]
    assert world.places() == {"active": ["p"]}


async def test_an_apiserver_that_fails_leaves_the_rest_to_be_compared(bench) -> None:
    bench.corrupt()
    bench.store.error = ApiError(503, "ServiceUnavailable", "away")
    assert await bench.debugger.compare() == ["Node n0 has a wrong pod_count"]
    assert (bench.count("success"), bench.count("failure")) == (0, 1)


async def test_what_cannot_be_healed_does_not_keep_the_rest_from_it(bench, caplog) -> None:
    bench.corrupt()
    del bench.world.api.store(PODS)["default/p"]
    heal, comparer = bench.world.assembly.comparer.heal, bench.world.assembly.comparer

    def fail_for_nodes(difference) -> None:
        if difference.kind == "Node":
            raise ValueError("no")
        heal(difference)

    comparer.heal = fail_for_nodes
    assert await bench.debugger.compare() == ["Pod default/p does not exist any more"]
    assert said(caplog)[0]["object"] == "Node n0 has a wrong pod_count"


@pytest.mark.parametrize(("leads", "rounds"), [(True, 3), (False, 0)])
async def test_it_compares_every_few_minutes_while_it_leads(bench, leads, rounds) -> None:
    running = asyncio.create_task(bench.debugger.run(300, lambda: leads))
    await asyncio.sleep(1000)
    running.cancel()
    assert bench.count("success") == rounds


async def test_on_request_it_compares_and_dumps(bench, caplog) -> None:
    caplog.set_level(logging.INFO)
    running = asyncio.create_task(bench.debugger.run(0, lambda: False))
    await asyncio.sleep(100_000)
    assert bench.count("success") == 0
    bench.world.cache.assume(bench.world.queue.pop().info, "n0")
    bench.debugger.request()
    await asyncio.sleep(SETTLE_SECONDS + 1)
    running.cancel()
    assert bench.count("success") == 1
    lines = [(r.getMessage(), r.pairs) for r in caplog.records]
    (node,) = [pairs for message, pairs in lines if message == "Dump of cached node"]
    assert node["pods"] == ["default/a", "default/p (assumed)"]
    assert node["requested"]["cpu"] == 1000
    queues = [p for message, p in lines if message == "Dump of scheduling queue"]
    assert {"queue": "in flight", "pods": ["default/p"]} in queues


async def test_a_bug_of_the_comparison_does_not_end_the_process(bench, caplog) -> None:
    bench.store.suspects = None
    running = asyncio.create_task(bench.debugger.run(300, lambda: True))
    await asyncio.sleep(700)
    assert bench.count("failure") == 2
    assert not running.done()
    running.cancel()


async def test_work_pauses_once_its_slice_is_over() -> None:
    now = 0.0
    loop = asyncio.get_running_loop()
    slices = TimeSlices(lambda: now)
    began = loop.time()
    for step in range(1, 8):
        now = step * SLICE_SECONDS / 3
        await slices.checkpoint()
    assert loop.time() - began == pytest.approx(2 * PAUSE_SECONDS)
