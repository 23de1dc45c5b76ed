"""The window of writes: how it grows and shrinks, and whose turn it is."""

import asyncio

import pytest

from proreus.client.request_window import Priority, RequestWindow


class Time:
    def __init__(self):
        self.now = 1.0

    def __call__(self):
        return self.now


async def load(window, rounds, seconds, *, waiting=True):
    """Answer whole rounds of requests, each after ``seconds``."""
    for _ in range(rounds):
        held = window.limit
        for _ in range(held):
            await window.acquire(Priority.NORMAL)
        held_up = asyncio.create_task(window.acquire(Priority.NORMAL)) if waiting else None
        await asyncio.sleep(0)
        for _ in range(held):
            window.answered(seconds)
            window.release()
        if held_up is not None:
            await held_up
            window.release()


async def test_it_grows_while_latency_is_steady_and_writes_wait():
    window = RequestWindow(64, largest=100)
    await load(window, 10, 0.02)
    assert 70 <= window.limit <= 74
    await load(window, 100, 0.02)
    assert window.limit == 100
    assert not window.shrinks


async def test_it_does_not_grow_where_nobody_waits_for_it():
    window = RequestWindow(64)
    await load(window, 50, 0.02, waiting=False)
    assert window.limit == 64


async def test_rising_latency_shrinks_it_and_it_recovers():
    window = RequestWindow(64, smallest=4)
    await load(window, 50, 0.01)
    before = window.limit
    await load(window, 10, 0.1)
    assert window.limit < before / 2
    assert window.shrinks["latency"] == 10
    shrunk = window.limit
    await load(window, 200, 0.01)
    assert window.limit > max(shrunk, 64)


async def test_one_event_halves_it_once():
    time = Time()
    window = RequestWindow(64, smallest=10, now=time)
    for _ in range(20):  # they were in flight together
        window.overloaded("rejected", sent_at=1.0)
    assert window.limit == 32
    time.now = 2.0
    window.overloaded("unanswered", sent_at=1.5)
    assert window.limit == 16
    for second in range(3, 10):
        time.now = second
        window.overloaded("rejected", sent_at=second - 0.5)
    assert window.limit == 10
    assert window.shrinks == {"rejected": 8, "unanswered": 1}


async def test_a_rejection_counts_although_a_round_ended_since_it_was_sent():
    time = Time()
    window = RequestWindow(8, now=time)
    time.now = 2.0
    await load(window, 3, 0.01, waiting=False)
    window.overloaded("rejected", sent_at=1.5)
    assert window.limit == 4


async def test_no_more_are_in_flight_than_the_window_has_room_for():
    window = RequestWindow(2)
    most = 0

    async def write():
        nonlocal most
        async with window.turn():
            most = max(most, window.in_flight)
            await asyncio.sleep(0)

    await asyncio.gather(*(write() for _ in range(20)))
    assert most == 2
    assert window.in_flight == 0


async def test_events_come_last_but_do_come():
    window = RequestWindow(1)
    order = []

    async def write(name, priority):
        async with window.turn(priority):
            order.append(name)

    await window.acquire(Priority.NORMAL)
    tasks = [asyncio.create_task(write("event", Priority.LOW)) for _ in range(3)]
    tasks += [asyncio.create_task(write("bind", Priority.NORMAL)) for _ in range(40)]
    await asyncio.sleep(0)
    assert window.waiting(Priority.LOW) == 3
    assert window.waiting(Priority.NORMAL) == 40
    window.release()
    await asyncio.gather(*tasks)
    assert order[:15] == ["bind"] * 15
    assert order.index("event") == 15
    assert order.count("event") == 3
    assert order[-1] == "event"


@pytest.mark.parametrize("admitted", [False, True])
async def test_a_cancelled_write_takes_no_place(admitted):
    window = RequestWindow(1)
    await window.acquire(Priority.NORMAL)
    waiting = asyncio.create_task(window.acquire(Priority.NORMAL))
    other = asyncio.create_task(window.acquire(Priority.NORMAL))
    await asyncio.sleep(0)
    if admitted:  # and cancelled in the same tick
        window.release()
    waiting.cancel()
    await asyncio.wait((waiting,))
    if not admitted:
        window.release()
    await other
    window.release()
    assert window.in_flight == 0
    assert window.waiting(Priority.NORMAL) == 0


async def test_a_place_given_back_in_the_tick_of_a_cancellation_goes_to_the_next():
    window = RequestWindow(1)
    await window.acquire(Priority.NORMAL)
    cancelled = asyncio.create_task(window.acquire(Priority.NORMAL))
    other = asyncio.create_task(window.acquire(Priority.NORMAL))
    await asyncio.sleep(0)
    cancelled.cancel()
    window.release()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await other
    window.release()
    assert window.in_flight == 0


async def test_a_place_is_free_for_others_for_a_while():
    window = RequestWindow(1)
    back = asyncio.Event()

    async def retry():
        async with window.turn(), window.place_for_others(Priority.NORMAL):
            await back.wait()

    task = asyncio.create_task(retry())
    await asyncio.sleep(0)
    async with window.turn():
        back.set()
        await asyncio.sleep(0)
        assert window.in_flight == 1
    await task
    assert window.in_flight == 0
    task = asyncio.create_task(retry())
    back.clear()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert window.in_flight == 0


async def test_latency_alone_leaves_room_for_kube_schedulers_rate():
    """Binding takes five seconds because of a webhook, however few requests there are."""
    time = Time()
    window = RequestWindow(64, now=time)
    await load(window, 20, 0.005)
    await load(window, 100, 5.0)
    assert window.limit >= 63
    for second in range(2, 9):
        time.now = float(second)
        window.overloaded("rejected", sent_at=time.now)
    assert window.limit == 4
    await load(window, 100, 5.0)
    assert window.limit >= 63


@pytest.mark.parametrize(("seconds", "needed"), [(0.02, 8), (0.2, 10), (0.6, 30)])
async def test_high_latency_shrinks_it_to_what_that_rate_needs(seconds, needed):
    window = RequestWindow(64)
    await load(window, 5, 0.001)
    await load(window, 40, seconds)
    assert needed <= window.limit <= needed + 8
