"""Client-side flow control."""

import asyncio

import pytest

from proreus.client.writing.rate_limiter import RateLimiter, no_rate_limit


class Time:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


def test_after_the_burst_each_request_waits_for_its_own_token():
    flow = RateLimiter(10, 3, now=Time())
    assert [flow.reserve() for _ in range(6)] == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_tokens_accumulate_up_to_the_burst():
    time = Time()
    flow = RateLimiter(10, 3, now=time)
    for _ in range(3):
        flow.reserve()
    time.seconds += 0.1
    assert flow.reserve() == pytest.approx(0)
    assert flow.reserve() == pytest.approx(0.1)
    time.seconds += 1000
    assert [flow.reserve() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_a_clock_that_goes_back_changes_no_tokens():
    time = Time()
    flow = RateLimiter(10, 1, now=time)
    flow.reserve()
    time.seconds -= 50
    assert flow.reserve() == pytest.approx(0.1)


def test_negative_qps_is_no_limit():
    flow = RateLimiter(-1, 0)
    assert flow.unlimited
    assert {flow.reserve() for _ in range(10_000)} == {0}
    assert no_rate_limit().unlimited


@pytest.mark.parametrize(("qps", "burst", "named"), [(0, 10, "qps"), (5, 0, "burst")])
def test_impossible_rates_are_refused(qps, burst, named):
    with pytest.raises(ValueError, match=named):
        RateLimiter(qps, burst)


@pytest.mark.looptime
async def test_waiters_are_served_in_order_and_cancelled_ones_return_their_token():
    loop = asyncio.get_running_loop()
    flow = RateLimiter(1, 1, now=loop.time)
    served = []

    async def use(name):
        await flow.acquire()
        served.append((name, round(loop.time())))

    tasks = [asyncio.create_task(use(name)) for name in "abcd"]
    await asyncio.sleep(0.5)
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert served == [("a", 0), ("b", 1), ("c", 2)]
    await use("e")
    assert served[-1] == ("e", 3)
