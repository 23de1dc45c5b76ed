"""Writes over the connection pool: complete, odd, truncated and missing responses."""

import asyncio
import ssl

import pytest
import uvloop

from proreus.base.errors import ConfigError
from proreus.client.credentials.credentials import Credentials, TlsFiles
from proreus.client.http.responses import ResponseLost, Unreachable
from proreus.client.http.session import ApiClient, Request
from proreus.server.certificates import self_signed

OK = b"HTTP/1.1 200 OK\r\n"


def says(*pieces: bytes, then=lambda call: None):
    """Return a script that sends pieces of bytes in separate ticks of the event loop."""

    async def script(call):
        for piece in pieces:
            call.writer.write(piece)
            await call.writer.drain()
            await asyncio.sleep(0)
        then(call)

    return script


async def post(client, path="/x"):
    return await client.request("POST", path, b"{}")


async def test_the_request_is_valid_http(server, client):
    server.script = lambda call: call.answer(201, b"made")
    assert await client.request("POST", "/x/y", b'{"a":1}', query="dryRun=All") == b"made"
    (call,) = server.calls
    assert (call.method, call.path, call.query) == ("POST", "/x/y", {"dryRun": "All"})
    assert call.body == b'{"a":1}'
    assert call.headers["host"] == client.host
    assert "authorization" not in call.headers


async def test_the_path_of_the_server_url_is_kept(server):
    server.script = lambda call: call.answer(200, b"")
    async with ApiClient(Credentials(f"{server.url}/clusters/one/")) as client:
        await post(client)
    assert server.calls[0].path == "/clusters/one/x"


async def test_writes_go_through_a_proxy_too(server):
    server.script = lambda call: call.answer(200, b"far")
    credentials = Credentials("http://apiserver.invalid:6443", proxy=server.url)
    async with ApiClient(credentials) as client:
        assert await post(client) == b"far"
    assert server.calls[0].headers["host"] == "apiserver.invalid:6443"


async def test_a_name_in_the_host_header_is_ascii(server):
    server.script = lambda call: call.answer(200, b"")
    for host, sent in (
        ("bücher.example:6443", "xn--bcher-kva.example:6443"),
        ("bücher:80", "xn--bcher-kva:80"),
        ("bücher", "xn--bcher-kva"),
        ("[::1]:80", "[::1]:80"),
    ):
        async with ApiClient(Credentials(f"http://{host}", proxy=server.url)) as client:
            await post(client)
        assert server.calls[-1].headers["host"] == sent


async def test_password_in_the_url_becomes_basic_authorization(server):
    server.script = lambda call: call.answer(200, b"")
    async with ApiClient(Credentials(server.url.replace("://", "://me:secret@"))) as client:
        await post(client)
    assert server.calls[0].headers["authorization"].startswith("basic ")
    assert "secret" not in server.calls[0].headers["host"]


async def test_responses_in_pieces_and_in_chunks(server, client):
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n"
    for at in (1, 9, 20, 46, 50, 56, 60):
        server.script = says(chunked[:at], chunked[at : at + 9], chunked[at + 9 :])
        assert await post(client) == b"hello, world"
    assert len({call.writer for call in server.calls}) == 1  # all over one connection


async def test_an_interim_response_is_ignored(server, client):
    server.script = says(
        b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n" + OK,
        b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n\r\nok",
    )
    answer = await client.send(Request("POST", "/x", b""))
    assert (answer.code, answer.body, answer.content_type) == (200, b"ok", "text/plain")
    assert answer.retry_after_seconds is None


async def test_retry_after_counts_with_errors_only(server, client):
    server.script = lambda call: call.answer(int(call.path[1:]), b"", Retry_After="7")
    for code, seconds in ((429, 7.0), (503, 7.0), (201, None)):
        answer = await client.send(Request("POST", f"/{code}", b""))
        assert (answer.code, answer.retry_after_seconds) == (code, seconds)


async def test_a_connection_closed_by_the_server_is_not_reused(server, client):
    server.script = says(OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
    await post(client)
    await post(client)
    assert server.calls[0].writer is not server.calls[1].writer


async def test_a_connection_closed_while_idle_loses_no_response(server, client):
    closed = asyncio.Event()

    async def script(call):
        await call.answer(200, b"")
        if len(server.calls) == 1:
            call.writer.close()
            closed.set()

    server.script = script
    await post(client)
    await closed.wait()
    for _ in range(5):  # the end of the connection needs a few turns to arrive
        await asyncio.sleep(0)
    await post(client)
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 20",
        OK + b"Content-Length: 9\r\n\r\nhalf",
        OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        OK + b"\r\nwhole, perhaps",  # it would end with the connection only
    ],
)
async def test_a_truncated_response_is_lost(server, client, beginning):
    server.script = says(beginning, then=lambda call: call.writer.close())
    with pytest.raises(ResponseLost, match="POST /x: no answer"):
        await post(client)
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ],
)
async def test_garbage_is_a_lost_response(server, client, garbage):
    server.script = says(garbage)
    with pytest.raises(ResponseLost, match=r"not HTTP/1\.1"):
        await post(client)


@pytest.mark.parametrize("code", [204, 304])
async def test_a_response_without_a_body_is_not_taken_for_the_next_one(server, client, code):
    async def script(call):
        if call.path == "/first":
            call.writer.write(b"HTTP/1.1 %d X\r\n\r\n" % code)
        else:
            call.writer.close()

    server.script = script
    assert (await client.send(Request("DELETE", "/first"))).code == code
    with pytest.raises(ResponseLost, match="closed the connection"):
        await client.send(Request("GET", "/next"))
    assert (await client.send(Request("DELETE", "/first"))).code == code
    with pytest.raises(ResponseLost, match="closed the connection"):
        async with client.stream("/next", query="", read_timeout_seconds=5):
            pass
    assert server.calls[0].writer is server.calls[1].writer
    assert server.calls[2].writer is server.calls[3].writer


@pytest.mark.parametrize("headers", [b"X: ", b"X: y\r\n"])
async def test_headers_without_an_end_are_no_answer(server, client, headers):
    sent = 0

    async def script(call):
        nonlocal sent
        call.writer.write(OK)
        while sent < 16 * 2**20:
            piece = headers * (2**16 // len(headers))
            call.writer.write(piece)
            await call.writer.drain()
            sent += len(piece)

    server.script = script
    with pytest.raises(ResponseLost, match="headers of the response are too long"):
        await post(client)
    assert sent < 16 * 2**20
    server.script = says(OK + b"X: %b\r\nContent-Length: 2\r\n\r\nok" % (b"y" * 2**18))
    assert await post(client) == b"ok"  # half a limit, and no other response's share of it


@pytest.mark.parametrize("coding", [b"gzip", b"GZIP, br"])
async def test_an_encoded_answer_is_lost(server, client, coding):
    head = OK + b"Content-Length: 2\r\nContent-Encoding: %b\r\n\r\n"
    server.script = says(head % coding + b"??")
    with pytest.raises(ResponseLost, match="encoded as"):
        await post(client)
    with pytest.raises(ResponseLost, match="encoded as"):
        async with client.stream("/x", query="", read_timeout_seconds=5):
            pass
    server.script = says(head % b"Identity" + b"ok")
    assert await post(client) == b"ok"


async def test_the_media_type_of_an_answer_is_in_lower_case(server, client):
    server.script = says(OK + b"Content-Type: Text/HTML; charset=x\r\nContent-Length: 0\r\n\r\n")
    assert (await client.send(Request("POST", "/x", b""))).content_type == "text/html"


async def test_a_response_without_a_request_is_discarded(server, client):
    doubled = OK + b"Content-Length: 5\r\n\r\nfirst" + OK + b"Content-Length: 6\r\n\r\nsecond"
    server.script = says(doubled)
    assert await post(client) == b"first"
    server.script = lambda call: call.answer(200, b"third")
    assert await post(client) == b"third"


async def test_a_late_response_to_a_cancelled_request_is_discarded(server, client):
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(call):
        if call.path == "/slow":
            arrived.set()
            await go_on.wait()
        await call.answer(200, call.path.encode())

    server.script = script
    slow = asyncio.create_task(post(client, "/slow"))
    await arrived.wait()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    go_on.set()
    assert await post(client, "/next") == b"/next"


async def test_a_request_cancelled_after_its_response_leaves_the_connection_to_the_next(
    server, client
):
    arrived = asyncio.Event()

    async def script(call):
        if call.path == "/given-up":
            arrived.set()  # the test answers
        else:
            await call.answer(200, call.path.encode())

    server.script = script
    await post(client, "/first")
    [connection] = client._pool.idle
    given_up = asyncio.create_task(post(client, "/given-up"))
    await arrived.wait()
    connection.data_received(OK + b"Content-Length: 0\r\n\r\n")
    given_up.cancel()  # in the tick in which the response arrived
    assert await post(client, "/next") == b"/next"
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert len({call.writer for call in server.calls}) == 1


async def test_a_watch_cancelled_as_its_headers_arrive_is_closed(server, client):
    arrived = asyncio.Event()

    async def script(call):
        if call.path == "/watch":
            arrived.set()  # the test answers
        else:
            await call.answer(200, call.path.encode())

    async def watch():
        async with client.stream("/watch", query="", read_timeout_seconds=5):
            pass

    server.script = script
    await post(client, "/first")
    [connection] = client._pool.idle
    watching = asyncio.create_task(watch())
    await arrived.wait()
    connection.data_received(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert connection.closing


async def test_closing_the_client_ends_requests_in_flight(server):
    arrived = asyncio.Event()

    async def script(call):
        arrived.set()
        await asyncio.Event().wait()

    server.script = script
    async with ApiClient(Credentials(server.url)) as client:
        waiting = asyncio.create_task(post(client))
        await arrived.wait()
    with pytest.raises(ResponseLost, match="closed"):
        await waiting
    with pytest.raises(Unreachable, match="closed"):
        await post(client)


@pytest.mark.looptime
async def test_each_request_has_its_own_time_limit(server, client):
    loop = asyncio.get_running_loop()

    async def script(call):
        if call.path == "/silent":
            await asyncio.Event().wait()
        await call.answer(200, b"")

    server.script = script
    await client.request("POST", "/x", b"", timeout_seconds=40)
    for seconds in (3, 20):  # shorter than the idle connection's own deadline
        await client.request("POST", "/x", b"", timeout_seconds=40)
        started = loop.time()
        with pytest.raises(ResponseLost, match="timed out"):
            await client.request("POST", "/silent", b"", timeout_seconds=seconds)
        assert seconds <= loop.time() - started < seconds + 1


@pytest.mark.looptime
async def test_idle_connections_are_closed_before_the_apiserver_does(server, client):
    server.script = lambda call: call.answer(200, b"")
    for pause in (0, 45, 45, 55):
        await asyncio.sleep(pause)
        await post(client)
    first, *others = (call.writer for call in server.calls)
    assert [other is first for other in others] == [True, True, False]


async def test_a_rotated_token_is_used_from_the_next_write_on(server):
    tokens = ["Bearer old", "Bearer new"]

    async def fetch(force):
        if force:
            tokens.pop(0)
        return tokens[0]

    async def script(call):
        if call.headers["authorization"] == "bearer old":
            await call.refuse(401, "Unauthorized")
        else:
            await call.answer(201, b"done")

    server.script = script
    async with ApiClient(Credentials(server.url, fetch=fetch)) as client:
        assert await asyncio.gather(*(post(client) for _ in range(5))) == [b"done"] * 5
    assert tokens == ["Bearer new"]


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX-Injected: 1", "/ä"])
async def test_path_must_be_encoded(server, client, path):
    with pytest.raises(ValueError, match="percent-encoded"):
        await post(client, path)
    assert not server.calls


async def test_token_must_fit_a_header(server):
    async def fetch(_):
        return "Bearer two\r\nX-Injected: lines"

    async with ApiClient(Credentials(server.url, fetch=fetch)) as client:
        with pytest.raises(ConfigError, match="no HTTP header"):
            await post(client)
    assert not server.calls


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_tls_verifies_the_server_name(tmp_path, run):
    """On both event loops, whose TLS transports differ."""
    pem = self_signed(["apiserver.example"])
    known, other = tmp_path / "known.pem", tmp_path / "other.pem"
    known.write_bytes(pem)
    other.write_bytes(self_signed(["apiserver.example"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(known)

    async def answer(reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(OK + b"Content-Length: 4\r\n\r\nsafe")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def ask(url, ca_file, name):
        credentials = Credentials(url, tls=TlsFiles(ca_file=str(ca_file)), tls_server_name=name)
        async with ApiClient(credentials) as client:
            first = await client.request("POST", "/x", b"")
            return first + await client.request("POST", "/x", b"")

    async def main():
        listener = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with listener:
            assert await ask(url, known, "apiserver.example") == b"safesafe"
            with pytest.raises(Unreachable, match="certificate"):
                await ask(url, other, "apiserver.example")
            with pytest.raises(Unreachable, match="certificate"):
                await ask(url, known, None)

    run(main())


async def test_a_connection_that_was_being_opened_when_all_were_replaced_serves_one_request(
    server, client
):
    """Its handshake may have been with a certificate that has been rotated since."""
    connections = set()

    async def script(call):
        connections.add(call.writer)
        await call.answer(200, b"")

    server.script = script
    await post(client)
    first = asyncio.create_task(post(client))
    pool = client._pool
    pool.idle.pop().close()
    await asyncio.sleep(0)  # it connects
    pool.replace_connections()
    await first
    for _ in range(3):
        await post(client)
    assert len(connections) == 3
