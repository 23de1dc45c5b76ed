"""Connections that send nothing, or too many of them (sockets are real, TLS too)."""

import asyncio
import resource
import ssl

import pytest
from aiohttp import web

from proreus.server import connections
from proreus.server.certificates import ServingCertificate
from proreus.server.connections import ConnectionLimits, ConnectionServer
from proreus.server.open_files import raise_open_files_limit
from proreus.server.options import ServingOptions

from .conftest import listener


async def ok(request):
    return web.Response(text="ok")


class Served:
    """A server with few connections, and clients that hold theirs open."""

    def __init__(self, limits, *, tls=True):
        self._tls = tls
        context = ServingCertificate(ServingOptions()).context if tls else None
        self.server = ConnectionServer(ok, context, limits)
        self._listener = listener()
        self.port = self._listener.getsockname()[1]
        self._accepting = asyncio.create_task(self.server.accept(self._listener))
        self._writers = []

    async def connect(self, address="127.0.0.1", *, tls=None):
        tls = self._tls if tls is None else tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context if tls else None, local_addr=(address, 0)
        )
        self._writers.append(writer)
        return reader, writer

    async def ask(self, address="127.0.0.1"):
        reader, writer = await self.connect(address)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        return await asyncio.wait_for(reader.readline(), 10)

    async def close(self):
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        await self.server.close(0.1)
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def served():
    made = []

    def start(total=256, per_address=32, *, tls=True):
        made.append(Served(ConnectionLimits(total, per_address), tls=tls))
        return made[-1]

    yield start
    for each in made:
        await each.close()


async def ended(reader):
    """Wait until the server has closed a connection; return what it sent."""
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
async def test_bytes_that_are_not_http_do_not_fill_the_log(served, caplog, sent):
    reader, writer = await served().connect()
    writer.write(sent)
    await asyncio.wait_for(reader.readline(), 10)
    writer.transport.abort()
    assert not caplog.records


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHos"], ids=["idle", "half a request"])
async def test_a_connection_without_a_request_is_closed(served, monkeypatch, sent, tls):
    monkeypatch.setattr(connections, "IDLE_TIMEOUT_SECONDS", 0.2)
    server = served(tls=tls)
    reader, writer = await server.connect()
    writer.write(sent)
    assert await ended(reader) == b""
    async with asyncio.timeout(5):
        while server.server.open_connections:  # noqa: ASYNC110 (the close is seen by the server)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"X-Long: %b\r\n" % (b"x" * 9000)),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n" * 1000),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"8000\r\n%b\r\n" % (b"x" * 0x8000),
        ),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999\r\n\r\n", b"x" * 9000),
    ],
    ids=["long headers", "many headers", "chunks", "a long body"],
)
async def test_a_request_without_end_is_cut_off(served, head, rest):
    """The client does not read, and goes on."""
    _, writer = await served().connect()
    writer.write(head)

    async def go_on():
        while True:
            writer.write(rest)
            await writer.drain()
            await asyncio.sleep(0.001)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(go_on(), 5)


async def test_a_handshake_that_does_not_begin_is_ended(served, monkeypatch):
    monkeypatch.setattr(connections, "HANDSHAKE_TIMEOUT_SECONDS", 0.2)
    server = served()
    reader, _ = await server.connect(tls=False)
    assert await ended(reader) == b""


@pytest.mark.parametrize("tls", [True, False])
async def test_one_address_displaces_its_own_oldest_connection(served, caplog, tls):
    server = served(per_address=3, tls=tls)
    other, _ = await server.connect("127.0.0.2")
    held = [(await server.connect())[0] for _ in range(3)]
    assert (await server.ask()).startswith(b"HTTP/1.1 200")
    assert await ended(held[0]) == b""
    assert not other.at_eof()
    assert not held[1].at_eof()
    for _ in range(5):
        await server.connect()
    assert server.server.open_connections == 4
    (record,) = [each for each in caplog.records if "Too many" in each.getMessage()]
    assert record.pairs == {"srcIP": "127.0.0.1"}


async def test_all_together_displace_those_of_the_address_with_most(served):
    server = served(total=4, per_address=4)
    held = [(await server.connect("127.0.0.2"))[0] for _ in range(3)]
    single, _ = await server.connect("127.0.0.3")
    assert (await server.ask("127.0.0.4")).startswith(b"HTTP/1.1 200")
    assert await ended(held[0]) == b""
    assert not single.at_eof()


async def test_handshakes_count(served):
    server = served(per_address=3)
    held = [(await server.connect(tls=False))[0] for _ in range(3)]
    assert (await server.ask()).startswith(b"HTTP/1.1 200")
    assert await ended(held[0]) == b""


def test_most_file_descriptors_are_left_to_the_client(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 4096))
    assert ConnectionLimits.within_open_files() == ConnectionLimits(32, 16)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    assert ConnectionLimits.within_open_files() == ConnectionLimits()


def test_the_soft_limit_becomes_the_hard_one(monkeypatch):
    was = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: was.append(limits))
    raise_open_files_limit()
    assert was == [(4096, 4096)]


async def test_requests_that_hang_do_not_keep_the_server_for_longer_than_its_time(monkeypatch):
    """aiohttp waits twice: for a handler to end, and for it to end once it is cancelled."""
    server = ConnectionServer(ok, None, ConnectionLimits())
    waits = []

    async def shutdown(seconds):
        waits.append(seconds)

    monkeypatch.setattr(server._http, "shutdown", shutdown)
    await server.close(5.0)
    assert waits == [2.5]
