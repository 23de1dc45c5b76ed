"""Pods that Permit holds: the first signal decides; time is virtual."""

from __future__ import annotations

import asyncio

import pytest

from proreus.base.clock import FakeClock
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.status import Code, Status


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000)


@pytest.fixture
def held(clock) -> WaitingPods:
    return WaitingPods(clock)


async def test_the_last_hold_withdrawn_lets_the_pod_go(held, kit) -> None:
    waiting = held.add(kit.make_pod("p"), {"A": 10, "B": 20})
    outcome = asyncio.ensure_future(waiting.outcome())
    waiting.allow("A")
    await asyncio.sleep(0)
    assert waiting.pending_plugins() == ["B"]
    assert not outcome.done()
    waiting.allow("B")
    assert await outcome is None


async def test_who_does_not_hold_it_cannot_let_it_go(held, kit) -> None:
    waiting = held.add(kit.make_pod("p"), {"A": 10})
    waiting.allow("B")
    assert waiting.pending_plugins() == ["A"]


async def test_only_the_first_signal_counts(held, kit) -> None:
    waiting = held.add(kit.make_pod("p"), {"A": 10})
    assert waiting.reject("A", "no")
    assert not waiting.preempt("B", "preempted")
    assert not waiting.reject("C", "never")
    waiting.allow("A")
    assert await waiting.outcome() == Status(Code.UNSCHEDULABLE, ("no",), "A")


async def test_preemption_is_an_error(held, kit) -> None:
    waiting = held.add(kit.make_pod("p"), {"A": 10})
    assert waiting.preempt("DefaultPreemption", "preempted")
    assert await waiting.outcome() == Status(Code.ERROR, ("preempted",), "DefaultPreemption")


async def test_the_shortest_timeout_decides(held, clock, kit) -> None:
    waiting = held.add(kit.make_pod("p"), {"A": 600, "B": 300})
    assert waiting.deadline == 1300
    clock.advance(299.9)
    held.expire()
    assert waiting.pending_plugins() == ["A", "B"]
    clock.advance(0.1)
    held.expire()
    assert await waiting.outcome() == Status(
        Code.UNSCHEDULABLE, ("rejected due to timeout after waiting 5m0s at plugin B",), "B"
    )


async def test_a_hold_that_was_withdrawn_does_not_time_out(held, clock, kit) -> None:
    waiting = held.add(kit.make_pod("p"), {"A": 600, "B": 300})
    waiting.allow("B")
    assert waiting.deadline == 1600
    clock.advance(600)
    held.expire()
    status = await waiting.outcome()
    assert status is not None
    assert status.message == "rejected due to timeout after waiting 10m0s at plugin A"


def test_pods_are_found_by_uid_until_they_are_removed(held, kit) -> None:
    waiting = held.add(kit.make_pod("p"), {"A": 600})
    assert held.get("p") is waiting
    assert list(held) == [waiting]
    held.remove("p")
    held.remove("p")
    assert (held.get("p"), len(held)) == (None, 0)


class LoopClock:
    """Wall time that follows the virtual loop."""

    def now(self) -> float:
        return 1000 + asyncio.get_running_loop().time()

    monotonic = now


@pytest.mark.looptime
async def test_time_is_over_to_the_moment(kit) -> None:
    held, clock = WaitingPods(LoopClock()), LoopClock()
    await asyncio.sleep(0.3)
    waiting = held.add(kit.make_pod("p"), {"A": 600, "B": 2.25})

    status = await held.outcome(waiting)
    assert status is not None
    assert status.message == "rejected due to timeout after waiting 2.25s at plugin B"
    assert clock.now() == pytest.approx(1002.55, abs=0.01)


@pytest.mark.looptime
async def test_a_hold_that_is_withdrawn_prolongs_the_wait(kit) -> None:
    held, clock = WaitingPods(LoopClock()), LoopClock()
    waiting = held.add(kit.make_pod("p"), {"A": 10.5, "B": 2})
    outcome = asyncio.ensure_future(held.outcome(waiting))
    await asyncio.sleep(1)
    waiting.allow("B")

    status = await outcome
    assert status is not None
    assert status.plugin == "A"
    assert clock.now() == pytest.approx(1010.5, abs=0.01)


@pytest.mark.looptime
async def test_a_signal_ends_the_wait_at_once(kit) -> None:
    held, clock = WaitingPods(LoopClock()), LoopClock()
    waiting = held.add(kit.make_pod("p"), {"A": 10})
    asyncio.get_running_loop().call_later(1, waiting.allow, "A")

    assert await held.outcome(waiting) is None
    assert clock.now() == pytest.approx(1001, abs=0.01)
