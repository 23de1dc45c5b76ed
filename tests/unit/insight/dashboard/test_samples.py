"""Figures over time, and their stream."""

import asyncio
import json

import pytest
from aiohttp.test_utils import make_mocked_request

from proreus.insight.dashboard import live
from proreus.insight.dashboard.live import LiveSamples, encode
from proreus.insight.dashboard.samples import KEPT, Samples, failed


@pytest.fixture
def samples(world):
    return Samples(world.scheduler.metrics, world.scheduler.queue, world.cluster.clock)


def test_which_answers_are_failures():
    assert [
        code for code in ("200", "404", "409", "429", "500", "503", "<error>") if failed(code)
    ] == [
        "429",
        "500",
        "503",
        "<error>",
    ]


async def test_rates_are_of_the_time_between_two_samples(world, samples):
    metrics, clock = world.scheduler.metrics, world.cluster.clock
    assert samples.take() is None, "no time has passed"
    await world.schedule(world.pod("a"), world.pod("b"), world.pod("large", "64"))
    metrics.rest_client_requests_total.labels("200", "POST", "h").inc(8)
    metrics.rest_client_requests_total.labels("503", "POST", "h").inc(2)
    metrics.rest_client_request_duration_seconds.labels("POST", "h").observe(0.2)
    clock.advance(2.0)
    sample = samples.take()
    assert sample.attempts == [1.0, 0.5, 0.0]
    assert sample.queues == [0, 0, 1, 0]
    assert (sample.api_requests, sample.api_failures) == (5.0, 1.0)
    assert 0.1 < sample.api_p99 <= 0.25
    assert sample.attempt_p50 <= sample.attempt_p99
    clock.advance(1.0)
    idle = samples.take()
    assert (idle.attempts, idle.attempt_p99, idle.api_p99) == ([0.0, 0.0, 0.0], None, None)
    assert samples.since(sample.at) == [idle]


async def test_a_reset_of_the_metrics_makes_no_negative_rates(world, samples):
    await world.schedule(world.pod("a"))
    world.cluster.clock.advance(1.0)
    samples.take()
    world.scheduler.metrics.reset()
    world.cluster.clock.advance(1.0)
    sample = samples.take()
    assert sample.attempts == [0.0, 0.0, 0.0]
    assert sample.attempt_p99 is None


async def test_a_quarter_of_an_hour_is_kept(world, samples):
    for _ in range(KEPT + 5):
        world.cluster.clock.advance(1.0)
        samples.take()
    assert len(samples.kept) == KEPT == 900


def test_an_event_is_one_line_of_data():
    assert encode("history", []) == b"event: history\ndata: []\n\n"


async def read_event(answer):
    lines = []
    while (line := (await answer.content.readline()).decode().rstrip("\n")) != "":
        lines.append(line)
    name, data = (line.split(": ", 1)[1] for line in lines)
    return name, json.loads(data)


async def test_a_stream_begins_with_what_there_was(world, browser, monkeypatch):
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.01)
    world.cluster.clock.advance(1.0)
    async with browser.session.get(f"{browser.base}/dashboard/events") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert "Content-Security-Policy" in answer.headers
        name, _ = await asyncio.wait_for(read_event(answer), 5)
        assert name == "history"
        world.cluster.clock.advance(1.0)
        name, found = await asyncio.wait_for(read_event(answer), 5)
        assert name == "samples"
        assert found[-1]["queues"] == [0, 0, 0, 0]


async def test_streams_are_limited_and_end_with_the_process(world, browser, monkeypatch):
    monkeypatch.setattr(live, "MAX_STREAMS", 1)
    async with browser.session.get(f"{browser.base}/dashboard/events") as first:
        assert first.status == 200
        await read_event(first)
        assert await browser.get("/dashboard/events") == 429


async def test_a_stream_ends_where_the_samples_do(world, samples):
    stream = LiveSamples(samples)
    stream.start()

    class Response:
        written = []

        async def write(self, data):
            self.written.append(data)

    response = Response()
    sending = asyncio.ensure_future(stream._send_all(response))
    await asyncio.sleep(0)
    assert response.written == [encode("history", [])]
    await stream.stop()
    await asyncio.wait_for(sending, 5)


async def test_a_browser_that_leaves_ends_its_stream_and_no_more(samples, monkeypatch):
    stream = LiveSamples(samples)

    async def leave(response):
        assert stream.streams == 1
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(stream, "_send_all", leave)
    request = make_mocked_request("GET", "/dashboard/events")
    assert (await stream.stream(request, {})).status == 200
    assert stream.streams == 0
