"""How connections are opened: through proxies, with TLS, to names with one address or several."""

import asyncio
import socket
import ssl
import threading
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
import uvloop

from proreus.base.errors import ConfigError
from proreus.client.credentials.credentials import Credentials, TlsFiles
from proreus.client.http.http_connection import HttpConnection
from proreus.client.http.responses import Unreachable
from proreus.client.http.session import ApiClient
from proreus.process.loop_errors import handle_loop_error
from proreus.server.certificates import self_signed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsafe"


class Proxy:
    """An HTTP proxy that connects to one server, whatever name it is asked for."""

    def __init__(self, server_port: int, status: bytes = b"200 Connection established") -> None:
        self._server_port = server_port
        self._status = status
        self.heads: list[str] = []

    async def serve(self, reader, writer) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 " + self._status + b"\r\nVia: 1.1 proxy\r\n\r\n")
        if self._status.startswith(b"200"):
            there, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                await asyncio.gather(pipe(reader, to_server), pipe(there, writer))
            finally:
                to_server.close()


async def pipe(reader, writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def answer(reader, writer) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(OK)


@contextmanager
def listening(serve, tls=None):
    """Serve on a port, which is yielded, in a thread of its own."""
    # asyncio's loop for both clients: uvloop's own servers do not survive TLS in TLS.
    started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def handle(reader, writer):
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def main():
        listener = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
        done = asyncio.Event()
        port = listener.sockets[0].getsockname()[1]
        started.set_result((port, asyncio.get_running_loop(), done))
        await done.wait()
        listener.close()
        await asyncio.sleep(0.05)  # connections that have just been closed take a few turns

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    port, loop, done = started.result(10)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)


async def each_request(client):
    """Send a write and a read, and open a watch; return the bodies."""
    written = await client.request("POST", "/x", b"")
    read = await client.request("GET", "/x")
    async with client.stream("/x", query="watch=true", read_timeout_seconds=5) as stream:
        return written, read, await stream.chunk()


@pytest.fixture
def certificate(tmp_path):
    """The PEM file of a server named apiserver.example, and its context."""
    file = tmp_path / "server.pem"
    file.write_bytes(self_signed(["apiserver.example", "localhost"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return file, context


async def ask(server, ca, proxy):
    credentials = Credentials(server, tls=TlsFiles(ca_file=str(ca)), proxy=proxy)
    async with ApiClient(credentials) as client:
        return await each_request(client)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_tls_goes_through_a_proxy(certificate, run, scheme):
    file, context = certificate
    with listening(answer, context) as port:
        proxy = Proxy(port)
        with listening(proxy.serve, context if scheme == "https" else None) as at:
            url = f"{scheme}://me:s%40fe@localhost:{at}"
            assert run(ask("https://apiserver.example:6443", file, url)) == (b"safe",) * 3
    [head] = proxy.heads  # the connection is kept for the next request
    assert head.startswith("CONNECT apiserver.example:6443 HTTP/1.1\r\n")
    assert "\r\nHost: apiserver.example:6443\r\n" in head
    assert "\r\nProxy-Authorization: Basic bWU6c0BmZQ==\r\n" in head


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_server_behind_a_proxy_is_verified(certificate, tmp_path, run, scheme):
    file, context = certificate
    other = tmp_path / "other.pem"
    other.write_bytes(self_signed(["apiserver.example", "localhost"]))
    proxy_tls = context if scheme == "https" else None
    with listening(answer, context) as port, listening(Proxy(port).serve, proxy_tls) as at:
        url = f"{scheme}://localhost:{at}"
        with pytest.raises(Unreachable, match="certificate"):
            run(ask("https://apiserver.example:6443", other, url))
        with pytest.raises(Unreachable, match="certificate"):
            run(ask("https://elsewhere.example:6443", file, url))


async def test_a_proxy_for_plain_http_gets_the_whole_url_and_its_own_password(server):
    server.script = lambda call: call.answer(200, b"far")
    proxy = server.url.replace("://", "://me:secret@")
    async with ApiClient(Credentials("http://apiserver.example/one/", proxy=proxy)) as client:
        assert await each_request(client) == (b"far",) * 3
    assert {call.path for call in server.calls} == {"/one/x"}
    assert {call.headers["host"] for call in server.calls} == {"apiserver.example"}
    assert all("proxy-authorization" in call.headers for call in server.calls)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (b"407 Proxy Authentication Required", "the proxy answered HTTP 407"),
        (b"nonsense", "the proxy's response is not HTTP"),
    ],
)
async def test_a_proxy_that_refuses_means_that_nothing_was_sent(status, message):
    proxy = Proxy(0, status)
    with listening(proxy.serve) as port:
        credentials = Credentials("https://apiserver.example", proxy=f"http://127.0.0.1:{port}")
        async with ApiClient(credentials) as client:
            with pytest.raises(Unreachable, match=message):
                await client.request("POST", "/x", b"{}")
    assert proxy.heads[0].startswith("CONNECT apiserver.example:443 ")


async def test_a_proxy_that_closes_the_connection_means_that_nothing_was_sent():
    async def close(_, writer):
        writer.close()

    with listening(close) as port:
        credentials = Credentials("https://apiserver.example", proxy=f"http://127.0.0.1:{port}")
        async with ApiClient(credentials) as client:
            with pytest.raises(Unreachable, match="the proxy closed the connection"):
                await client.request("POST", "/x", b"{}")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_handshake_that_fails_within_a_proxys_tls_leaves_no_traceback(
    certificate, run, caplog, tmp_path
):
    """It is the error of the connection, and of nobody else."""
    file, context = certificate
    (tmp_path / "other.pem").write_bytes(self_signed(["another.example"]))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "other.pem")

    async def refused(url):
        asyncio.get_running_loop().set_exception_handler(handle_loop_error)
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await ask("https://apiserver.example", file, url)

    with listening(answer, server) as port, listening(Proxy(port).serve, context) as at:
        run(refused(f"https://localhost:{at}"))
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_tunnel_that_ends_before_tls_means_that_nothing_was_sent(certificate, run, scheme):
    file, context = certificate

    async def close(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async def main(proxy):
        credentials = Credentials(
            "https://apiserver.example", tls=TlsFiles(ca_file=str(file)), proxy=proxy
        )
        async with ApiClient(credentials, timeout_seconds=5) as client:
            with pytest.raises(Unreachable, match="cannot be reached"):
                await client.request("POST", "/x", b"{}")
            assert not client._pool.open

    with listening(close, context if scheme == "https" else None) as port:
        run(main(f"{scheme}://localhost:{port}"))


async def test_a_connection_that_is_closed_once_it_is_open_takes_no_request(
    server, client, monkeypatch
):
    made = HttpConnection.connection_made

    def made_too_late(self, transport):
        made(self, transport)
        transport.abort()

    monkeypatch.setattr(HttpConnection, "connection_made", made_too_late)
    with pytest.raises(Unreachable, match="closed at once"):
        await client.request("POST", "/x", b"{}")
    await asyncio.sleep(0)
    assert not client._pool.open


async def test_headers_of_a_proxy_without_an_end_mean_that_nothing_was_sent():
    async def endless(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(64):
            writer.write(b"y" * 2**16)
            await writer.drain()

    with listening(endless) as port:
        credentials = Credentials("https://apiserver.example", proxy=f"http://127.0.0.1:{port}")
        async with ApiClient(credentials) as client:
            with pytest.raises(Unreachable, match="headers of the proxy's response are too long"):
                await client.request("POST", "/x", b"{}")


def test_the_default_cas_for_a_proxy_are_read_once(certificate, monkeypatch):
    file, context = certificate
    made = []

    def create(**_):
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        made[-1].load_verify_locations(file)
        return made[-1]

    async def main(proxy):
        async with ApiClient(Credentials("http://server.example", proxy=proxy)) as client:
            await asyncio.gather(*(client.request("GET", "/x") for _ in range(3)))
            assert len(client._pool.open) == 3

    monkeypatch.setattr(ssl, "create_default_context", create)
    with listening(answer, context) as port:
        asyncio.run(main(f"https://localhost:{port}"))
    assert len(made) == 1


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        ("https://far", "http://near:abc"),
        ("https://far", "http://near:99999"),
        ("https://far", "http://[::1:3128"),
        ("https://far:99999", None),
        ("https://far:abc", None),
        ("https://bücher..example", None),
    ],
)
def test_a_url_that_leads_nowhere_is_a_configuration_error(server, proxy):
    with pytest.raises(ConfigError, match=r"port must be a number|Invalid IPv6|not the name of"):
        ApiClient(Credentials(server, proxy=proxy))


def test_a_proxy_of_another_kind_is_a_configuration_error():
    with pytest.raises(ConfigError, match=r"proxy socks5://far: must be a URL like http://host"):
        ApiClient(Credentials("https://apiserver.example", proxy="socks5://me:secret@far:1080"))


# ---- names -------------------------------------------------------------------------------------


@pytest.fixture
async def addresses(monkeypatch):
    """What the name server knows; ``asked`` counts the questions."""

    class Names(dict):
        asked = 0

    names = Names()

    async def resolve(host, port, **_):
        names.asked += 1
        for _ in range(5):
            await asyncio.sleep(0)
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in names[host]
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    return names


@pytest.fixture
async def port(server):
    server.script = lambda call: call.answer(200, b"here")
    return int(server.url.rpartition(":")[2])


async def test_a_name_is_looked_up_once_for_connections_opened_together(server, port, addresses):
    addresses["apiserver.example"] = [port]
    async with ApiClient(Credentials("http://apiserver.example")) as client:
        await asyncio.gather(*(client.request("GET", "/x") for _ in range(20)))
    assert len({call.writer for call in server.calls}) == 20
    assert addresses.asked == 1


@pytest.mark.looptime
async def test_a_name_is_looked_up_again_after_a_while_and_after_a_failure(server, port, addresses):
    async with ApiClient(Credentials("http://apiserver.example")) as client:
        with pytest.raises(Unreachable, match="Name or service not known"):
            await client.request("GET", "/x")
        addresses["apiserver.example"] = [port]
        await client.request("GET", "/x")
        assert addresses.asked == 2
        for call in server.calls:
            call.writer.close()
        await asyncio.sleep(60)
        await client.request("GET", "/x")
    assert addresses.asked == 3


async def test_one_request_that_is_given_up_does_not_end_the_lookup_for_others(
    server, port, addresses
):
    addresses["apiserver.example"] = [port]
    async with ApiClient(Credentials("http://apiserver.example")) as client:
        first, second = (asyncio.create_task(client.request("GET", "/x")) for _ in range(2))
        for _ in range(3):  # until both wait for the name server
            await asyncio.sleep(0)
        first.cancel()
        assert await second == b"here"
    assert addresses.asked == 1


async def test_of_several_addresses_one_that_answers_is_taken(
    server, port, addresses, unused_tcp_port
):
    addresses["apiserver.example"] = [unused_tcp_port, port]
    async with ApiClient(Credentials("http://apiserver.example")) as client:
        assert await client.request("GET", "/x") == b"here"
    addresses["nowhere.example"] = [unused_tcp_port, unused_tcp_port]
    async with ApiClient(Credentials("http://nowhere.example")) as client:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await client.request("GET", "/x")


@pytest.mark.parametrize("host", ["api..example", "a" * 70 + ".example"])
async def test_a_name_that_no_server_can_have_means_that_nothing_was_sent(host):
    async with ApiClient(Credentials(f"http://{host}")) as client:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await client.request("POST", "/x", b"{}")


async def test_a_dot_at_the_end_of_a_name_is_the_resolvers(certificate, addresses):
    file, context = certificate
    with listening(answer, context) as port:
        addresses["apiserver.example."] = [port]
        assert await ask("https://apiserver.example.:6443", file, None) == (b"safe",) * 3
        proxy = Proxy(port)
        with listening(proxy.serve, context) as at:
            addresses["localhost."] = [at]
            url = f"https://localhost.:{at}"
            assert await ask("https://apiserver.example.:6443", file, url) == (b"safe",) * 3
            await asyncio.sleep(0.05)  # the servers see the connections end before they end too
    assert proxy.heads[0].startswith("CONNECT apiserver.example.:6443 ")


async def test_an_ip_address_needs_no_name_server(server, port, addresses):
    async with ApiClient(Credentials(server.url)) as client:
        await client.request("GET", "/x")
    assert addresses.asked == 0
