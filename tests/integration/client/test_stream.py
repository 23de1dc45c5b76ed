"""Watches as streams of bytes: their end, their breaking, and who reads how fast."""

import asyncio

import pytest

from proreus.base.errors import Forbidden
from proreus.client.credentials.credentials import Credentials
from proreus.client.http.responses import ResponseLost
from proreus.client.http.session import ApiClient

WITHOUT_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


def watching(client, seconds=150.0):
    return client.stream("/x", query="watch=true", read_timeout_seconds=seconds)


async def whole(stream):
    parts = []
    while part := await stream.chunk():
        parts.append(part)
    return b"".join(parts)


async def test_the_connection_of_a_watch_that_the_server_ended_is_used_again(server, client):
    async def script(call):
        await call.begin_stream()
        await call.chunk(b"one\n")
        await call.end_stream()

    server.script = script
    for _ in range(2):
        async with watching(client) as stream:
            assert await whole(stream) == b"one\n"
    assert len({call.writer for call in server.calls}) == 1


async def test_a_watch_that_is_left_is_closed(server, client):
    async def script(call):
        await call.begin_stream()
        await call.chunk(b"one\n")

    server.script = script
    for _ in range(2):
        async with watching(client) as stream:
            assert await stream.chunk() == b"one\n"
            [connection] = client._pool.open
        assert connection.closing
        await asyncio.sleep(0)
    assert len({call.writer for call in server.calls}) == 2


async def test_a_refused_watch_is_an_error_and_keeps_its_connection(server, client):
    server.script = lambda call: call.refuse(403, "Forbidden", "no watching")
    for _ in range(2):
        with pytest.raises(Forbidden, match="no watching"):
            async with watching(client):
                pass
    assert len({call.writer for call in server.calls}) == 1


async def test_a_response_without_a_length_ends_with_its_connection(server, client):
    async def script(call):
        call.writer.write(WITHOUT_LENGTH + b'{"a":1}\n')
        await call.writer.drain()
        call.writer.close()

    server.script = script
    assert await client.request("GET", "/x") == b'{"a":1}\n'
    async with watching(client) as stream:
        assert await whole(stream) == b'{"a":1}\n'
    # A write may not have happened: its answer has to be complete.
    with pytest.raises(ResponseLost):
        await client.request("POST", "/x", b"{}")


async def test_a_watch_that_breaks_gives_what_came_before(server, client):
    broken = asyncio.Event()

    async def script(call):
        await call.begin_stream()
        await call.chunk(b"one\n")
        await broken.wait()
        call.cut()

    server.script = script
    async with watching(client) as stream:
        assert await stream.chunk() == b"one\n"
        broken.set()
        with pytest.raises(ResponseLost, match=r"the watch of /x at .* broke"):
            await stream.chunk()


async def test_closing_the_client_breaks_its_watches(server):
    async def script(call):
        await call.begin_stream()
        await asyncio.Event().wait()

    server.script = script
    client = ApiClient(Credentials(server.url))
    async with watching(client) as stream:
        reading = asyncio.create_task(stream.chunk())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ResponseLost, match="closed"):
            await reading


async def test_unread_data_stays_in_the_socket(server, client):
    total = 64 * 2**20
    sent = 0

    async def script(call):
        nonlocal sent
        await call.begin_stream()
        while sent < total:
            await call.chunk(b"x" * 2**18)
            sent += 2**18
        await call.end_stream()

    server.script = script
    async with watching(client) as stream:
        before = -1
        while before != sent:  # until the server gets nothing off any more
            before = sent
            await asyncio.sleep(0.1)
        assert sent < total / 2
        assert stream._unread_bytes < 2**20
        found = 0
        while part := await stream.read():
            found += len(part)
    assert found == total


@pytest.mark.looptime
async def test_a_watch_lives_as_long_as_something_arrives_now_and_then(server, client):
    loop = asyncio.get_running_loop()

    async def script(call):
        await call.begin_stream()
        for _ in range(5):
            await asyncio.sleep(100)
            await call.chunk(b"one\n")
        await asyncio.Event().wait()

    server.script = script
    async with watching(client, seconds=150) as stream:
        for _ in range(5):
            assert await stream.chunk() == b"one\n"
        started = loop.time()
        with pytest.raises(ResponseLost, match="timed out"):
            await stream.chunk()
    assert 150 <= loop.time() - started < 152


@pytest.mark.looptime
async def test_a_reader_that_was_away_gives_the_server_its_whole_time_again(server, client):
    taken = asyncio.Event()

    async def script(call):
        await call.begin_stream()
        await call.chunk(b"x" * (2**19 + 1))  # just more than is kept: nothing stays in the socket
        await taken.wait()
        await asyncio.sleep(100)
        await call.chunk(b"late")
        await call.end_stream()

    server.script = script
    async with watching(client, seconds=150) as stream:
        # At 150 s it is noticed that we do not read, and the next look is at 300 s.
        await asyncio.sleep(295)
        assert stream.is_full
        found = 0
        while found <= 2**19:
            found += len(await stream.read())
        taken.set()
        assert await whole(stream) == b"late"


@pytest.mark.looptime
async def test_a_replaced_watch_ends_after_a_whole_line_only(server, client):
    replaced = asyncio.Event()

    async def script(call):
        await call.begin_stream()
        await call.chunk(b"half a ")
        await replaced.wait()
        await asyncio.sleep(100)
        await call.chunk(b"line\n")

    server.script = script
    async with watching(client, seconds=1_000) as stream:
        assert await stream.chunk() == b"half a "
        client._pool.replace_connections()
        replaced.set()
        assert await whole(stream) == b"line\n"


async def test_replaced_watches_that_are_quiet_end_at_once(server, client):
    async def script(call):
        await call.begin_stream()
        await call.chunk(b"one\n")

    server.script = script
    async with watching(client) as one, watching(client) as other:
        for stream in (one, other):
            assert await stream.chunk() == b"one\n"
        client._pool.replace_connections()
        assert [await whole(one), await whole(other)] == [b"", b""]


async def test_an_answer_that_is_awaited_still_comes_on_a_replaced_connection(server, client):
    asked, answered = asyncio.Event(), asyncio.Event()

    async def script(call):
        asked.set()
        await answered.wait()
        await call.answer(200, b"{}")

    server.script = script
    request = asyncio.create_task(client.request("GET", "/x"))
    await asked.wait()
    client._pool.replace_connections()
    await asyncio.sleep(0.05)
    answered.set()
    assert await request == b"{}"
    assert not client._pool.idle
