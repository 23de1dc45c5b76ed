"""The window of writes: how it grows and shrinks, and whose turn it is."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from proreus.client.writing.request_window import Priority, RequestWindow, WritePlace


class Time:
    def __init__(self):
        self.now = 1.0

    def __call__(self):
        return self.now


async def taken(window, namespace="a", priority=Priority.NORMAL):
    """Return a place in the window."""
    place = WritePlace(namespace, priority)
    await window.acquire(place)
    return place


@asynccontextmanager
async def turn(window, namespace="a", priority=Priority.NORMAL):
    """Hold a place in the window."""
    place = await taken(window, namespace, priority)
    try:
        yield place
    finally:
        window.release(place)


async def load(window, rounds, seconds, *, waiting=True):
    """Answer whole rounds of requests, each after ``seconds``."""
    for _ in range(rounds):
        held = [await taken(window) for _ in range(window.limit)]
        held_up = asyncio.create_task(taken(window)) if waiting else None
        await asyncio.sleep(0)
        for place in held:
            window.answered(seconds, "a")
            window.release(place)
        if held_up is not None:
            window.release(await held_up)


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
        window.overloaded("rejected", sent_at=1.0, namespace="a")
    assert window.limit == 32
    time.now = 2.0
    window.overloaded("unanswered", sent_at=1.5, namespace="a")
    assert window.limit == 16
    for second in range(3, 10):
        time.now = second
        window.overloaded("rejected", sent_at=second - 0.5, namespace="a")
    assert window.limit == 10
    assert window.shrinks == {"rejected": 8, "unanswered": 1}


async def test_a_rejection_counts_although_a_round_ended_since_it_was_sent():
    time = Time()
    window = RequestWindow(8, now=time)
    time.now = 2.0
    await load(window, 3, 0.01, waiting=False)
    window.overloaded("rejected", sent_at=1.5, namespace="a")
    assert window.limit == 4


async def test_no_more_are_in_flight_than_the_window_has_room_for():
    window = RequestWindow(2)
    most = 0

    async def write():
        nonlocal most
        async with turn(window):
            most = max(most, window.in_flight)
            await asyncio.sleep(0)

    await asyncio.gather(*(write() for _ in range(20)))
    assert most == 2
    assert window.in_flight == 0


async def test_events_come_last_but_do_come():
    window = RequestWindow(1)
    order = []

    async def write(name, priority):
        async with turn(window, "a", priority):
            order.append(name)

    held = await taken(window)
    tasks = [asyncio.create_task(write("event", Priority.LOW)) for _ in range(3)]
    tasks += [asyncio.create_task(write("bind", Priority.NORMAL)) for _ in range(40)]
    await asyncio.sleep(0)
    assert window.waiting(Priority.LOW) == 3
    assert window.waiting(Priority.NORMAL) == 40
    window.release(held)
    await asyncio.gather(*tasks)
    assert order[:15] == ["bind"] * 15
    assert order.index("event") == 15
    assert order.count("event") == 3
    assert order[-1] == "event"


@pytest.mark.parametrize("admitted", [False, True])
async def test_a_cancelled_write_takes_no_place(admitted):
    window = RequestWindow(1)
    held = await taken(window)
    waiting = asyncio.create_task(taken(window))
    other = asyncio.create_task(taken(window))
    await asyncio.sleep(0)
    if admitted:  # and cancelled in the same tick
        window.release(held)
    waiting.cancel()
    await asyncio.wait((waiting,))
    if not admitted:
        window.release(held)
    window.release(await other)
    assert window.in_flight == 0
    assert window.waiting(Priority.NORMAL) == 0


async def test_a_place_given_back_in_the_tick_of_a_cancellation_goes_to_the_next():
    window = RequestWindow(1)
    held = await taken(window)
    cancelled = asyncio.create_task(taken(window))
    other = asyncio.create_task(taken(window))
    await asyncio.sleep(0)
    cancelled.cancel()
    window.release(held)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    window.release(await other)
    assert window.in_flight == 0


async def test_a_place_is_free_for_others_for_a_while():
    window = RequestWindow(1)
    back = asyncio.Event()

    async def retry():
        async with turn(window) as place, window.place_for_others(place):
            await back.wait()

    task = asyncio.create_task(retry())
    await asyncio.sleep(0)
    async with turn(window):
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
        window.overloaded("rejected", sent_at=time.now, namespace="a")
    assert window.limit == 4
    await load(window, 100, 5.0)
    assert window.limit >= 63


@pytest.mark.parametrize(("seconds", "needed"), [(0.02, 8), (0.2, 10), (0.6, 30)])
async def test_high_latency_shrinks_it_to_what_that_rate_needs(seconds, needed):
    window = RequestWindow(64)
    await load(window, 5, 0.001)
    await load(window, 40, seconds)
    assert needed <= window.limit <= needed + 8


# ---- namespaces ----------------------------------------------------------------------------------


async def hang(window, namespace, count):
    """Send writes that are never answered; return their tasks, a second later and more."""
    tasks = [asyncio.create_task(taken(window, namespace)) for _ in range(count)]
    for _ in range(20):
        await asyncio.sleep(1.001)
    return tasks


async def end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.looptime
@pytest.mark.parametrize("hanging", [1, 2, 5])
async def test_writes_that_hang_leave_room_for_other_namespaces(hanging):
    """However many namespaces hang, those that do not can use a whole share."""
    window = RequestWindow(64)
    tasks = []
    for number in range(hanging):
        tasks += await hang(window, f"hangs-{number}", 1000)
    left = 2 * 256 - window.in_flight
    assert left >= 2 * 256 // (2**hanging)
    for _ in range(3):
        places = [await taken(window, "well") for _ in range(min(left // 2, 64))]
        assert places
        for place in places:
            window.answered(0.01, "well")
            window.release(place)
    await end(tasks)
    # Those whose places were granted are in flight still.
    assert window.waiting(Priority.NORMAL) == 0


@pytest.mark.looptime
async def test_the_shares_of_namespaces_that_hang_together_are_equal():
    window = RequestWindow(64)
    names = [f"hangs-{number}" for number in range(3)]
    tasks = {name: [] for name in names}
    for _ in range(400):
        for name in names:
            tasks[name].append(asyncio.create_task(taken(window, name)))
    for _ in range(20):
        await asyncio.sleep(1.001)
    held = [sum(task.done() for task in tasks[name]) for name in names]
    assert max(held) - min(held) <= 1
    assert window.in_flight == sum(held) == pytest.approx(2 * 256 * 3 / 4, abs=2)
    await end([task for some in tasks.values() for task in some])


async def test_namespaces_take_turns():
    """One with a thousand writes that wait does not hold up another's one."""
    window = RequestWindow(1)
    order = []

    async def write(namespace):
        async with turn(window, namespace):
            order.append(namespace)

    held = await taken(window)
    tasks = [asyncio.create_task(write("many")) for _ in range(1000)]
    tasks += [asyncio.create_task(write("few")) for _ in range(2)]
    await asyncio.sleep(0)
    window.release(held)
    await asyncio.gather(*tasks)
    assert order[:5] == ["many", "few", "many", "few", "many"]


async def test_one_slow_namespace_does_not_shrink_the_window():
    window = RequestWindow(64)
    await load(window, 20, 0.01)
    before = window.limit
    for _ in range(20):
        for _ in range(window.limit):
            window.answered(0.01, "well")
        window.answered(5.0, "slow")
    for _ in range(1000):
        window.answered(5.0, "slow")
        window.answered(0.01, "well")
    assert window.limit >= before
    assert not window.shrinks


async def test_many_slow_namespaces_do_shrink_it():
    window = RequestWindow(64)
    await load(window, 20, 0.01)
    before = window.limit
    for number in range(1000):
        window.answered(0.1, f"n{number % 5}")
    assert window.limit < before


async def test_a_write_without_an_answer_counts_unless_later_ones_of_others_had_one():
    time = Time()
    window = RequestWindow(64, now=time)
    time.now = 40.0
    window.answered(0.01, "well")
    window.overloaded("unanswered", sent_at=10.0, namespace="hangs")
    assert window.limit == 64
    time.now = 80.0
    window.overloaded("unanswered", sent_at=50.0, namespace="hangs")
    assert window.limit == 32, "nobody was answered since"
    time.now = 90.0
    window.answered(0.01, "well")
    window.overloaded("rejected", sent_at=85.0, namespace="hangs")
    assert window.limit == 16, "by Priority and Fairness, which answers others"


@pytest.mark.looptime
async def test_it_is_idle_although_writes_hang():
    window, loop = RequestWindow(64), asyncio.get_running_loop()
    await window.wait_until_idle(10)
    assert loop.time() == 0
    place = await taken(window)
    await window.wait_until_idle(0.5)
    assert loop.time() == pytest.approx(0.5, abs=0.01)
    await window.wait_until_idle(10)
    assert loop.time() == pytest.approx(1.0, abs=0.01)
    quick = await taken(window)
    loop.call_later(0.25, window.release, quick)
    await window.wait_until_idle(10)
    assert loop.time() == pytest.approx(1.25, abs=0.01)
    window.release(place)
    assert window.in_flight == 0
