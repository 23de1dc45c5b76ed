"""Pods that Permit holds: the first signal decides; time is virtual."""

from __future__ import annotations

import asyncio

import pytest

from proreus.clock import FakeClock
from proreus.framework.status import Code, Status
from proreus.runtime.waiting_pods import WaitingPods


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
    assert held.next_deadline() == 1300
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
    assert held.next_deadline() == 1600
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
    assert (held.get("p"), len(held), held.next_deadline()) == (None, 0, None)
