"""HTTP: status codes, pages of proxies, rotated tokens. Served by kmock."""

import asyncio

import kmock as km
import pytest

from proreus.base.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from proreus.client.credentials.credentials import Credentials
from proreus.client.http.request_headers import user_agent
from proreus.client.http.responses import ResponseLost, Unreachable
from proreus.client.http.session import ApiClient, Request, RequestHooks
from proreus.client.http.write_fence import NotLeading, WriteFence

pytestmark = pytest.mark.kmock(cls=km.RawHandler)

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def api(kmock):
    async with ApiClient(Credentials(str(kmock.url).rstrip("/"))) as api:
        yield api


async def test_bytes_out_bytes_in_with_prepared_headers(kmock, api):
    kmock["post", PODS] << 201 << b'{"kind":"Pod"}'
    assert await api.request("POST", PODS, b'{"a":1}') == b'{"kind":"Pod"}'
    (request,) = list(kmock["post"])
    assert request.body == b'{"a":1}'
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Accept"] == "application/json"
    assert request.headers["User-Agent"] == user_agent()
    assert "Accept-Encoding" not in request.headers  # compression costs more than it saves here
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", Conflict),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ApiError),
    ],
)
async def test_a_status_becomes_an_error_with_its_message(kmock, api, wire, code, reason, error):
    kmock["get", PODS] << code << wire.status(code, reason, "the server's words")
    with pytest.raises(error, match=r"^the server's words$") as raised:
        await api.request("GET", PODS)
    assert (raised.value.status, raised.value.reason) == (code, reason)


async def test_an_html_page_of_a_proxy_is_recognized(kmock, api):
    page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"
    kmock["get", PODS] << 502 << {"Content-Type": "text/html"} << page
    with pytest.raises(ApiError) as raised:
        await api.request("GET", PODS)
    assert raised.value.status == 502
    assert str(raised.value) == (
        f"GET {PODS} was answered with HTTP 502 and no Kubernetes Status but an HTML page, "
        "as proxies do: 502 Bad Gateway nginx"
    )


async def test_nothing_is_written_once_the_fence_is_closed(kmock):
    kmock["post", PODS] << 201 << b"{}"
    kmock["get", PODS] << 200 << b"{}"
    now = 0.0
    fence = WriteFence(now=lambda: now)
    async with ApiClient(Credentials(str(kmock.url).rstrip("/")), fence=fence) as api:
        fence.until = 14.0
        await api.request("POST", PODS, b"{}")
        now = 14.0
        for _ in range(2):  # over a connection that is there already, and over a new one
            with pytest.raises(NotLeading):
                await api.request("POST", PODS, b"{}")
            await api.close()
            api._closed = False
        await api.request("GET", PODS)
        fence.until = 29.0  # renewed after all
        await api.request("POST", PODS, b"{}")
        fence.close()
        with pytest.raises(NotLeading):
            await api.request("POST", PODS, b"{}")
    assert len(list(kmock["post"])) == 2


async def test_retry_after_of_header_and_of_status(kmock, api, wire):
    kmock["get /header"] << 429 << {"Retry-After": "7"} << wire.status(429, "TooManyRequests")
    details = {**wire.status(429, "TooManyRequests"), "details": {"retryAfterSeconds": 3}}
    kmock["get /details"] << 429 << details
    for path, seconds in (("/header", 7.0), ("/details", 3.0)):
        with pytest.raises(TooManyRequests) as raised:
            await api.request("GET", path)
        assert raised.value.retry_after == seconds
    answer = await api.send(Request("GET", "/header"))
    assert answer.retry_after_seconds == 7.0
    assert (
        await api.send(Request("GET", "/details"))
    ).retry_after_seconds is None  # as client-go has it


class Tokens:
    """A source of tokens that hands out the next one when forced."""

    def __init__(self, *tokens):
        self.tokens = list(tokens)
        self.forced = 0

    async def fetch(self, force):
        if force:
            self.forced += 1
            if len(self.tokens) > 1:
                self.tokens.pop(0)
        return f"Bearer {self.tokens[0]}"


def guarded(kmock, wire):
    """Respond with 401 to all tokens but "new"."""

    kmock["get", PODS, {"Authorization": "Bearer new"}] << b"welcome"
    kmock.fallback << 401 << wire.status(401, "Unauthorized", "who are you")


async def test_401_in_the_middle_refreshes_the_token_once_for_all(kmock, wire):
    guarded(kmock, wire)
    tokens = Tokens("old", "new")
    async with ApiClient(Credentials(str(kmock.url).rstrip("/"), fetch=tokens.fetch)) as api:
        answers = await asyncio.gather(*(api.request("GET", PODS) for _ in range(20)))
        assert answers == [b"welcome"] * 20
        assert tokens.forced == 1
        assert len(kmock["get"]) <= 40
        await api.request("GET", PODS)
    assert tokens.forced == 1


async def test_a_401_after_a_refresh_is_an_error(kmock, wire):
    guarded(kmock, wire)
    tokens = Tokens("old")
    async with ApiClient(Credentials(str(kmock.url).rstrip("/"), fetch=tokens.fetch)) as api:
        with pytest.raises(Unauthorized, match="who are you"):
            await api.request("GET", PODS)
    assert len(kmock["get"]) <= 2


async def test_watch_is_opened_again_after_a_401(kmock, wire):
    guarded(kmock, wire)
    tokens = Tokens("old", "new")
    async with (
        ApiClient(Credentials(str(kmock.url).rstrip("/"), fetch=tokens.fetch)) as api,
        api.stream(PODS, query="watch=true", read_timeout_seconds=5) as stream,
    ):
        assert await stream.chunk() == b"welcome"
        assert await stream.chunk() == b""


async def test_hooks_are_called_for_each_attempt(kmock, wire):
    heard = []
    kmock["post", PODS] << 201 << b"12345"
    kmock["get", PODS] << b""
    hooks = RequestHooks(on_request=lambda *args: heard.append(args))
    async with ApiClient(Credentials(str(kmock.url).rstrip("/")), hooks=hooks) as api:
        await api.request("POST", PODS, b"123")
        async with api.stream(PODS, query="watch=true", read_timeout_seconds=5):
            pass
    host = f"127.0.0.1:{kmock.url.port}"
    assert [(h[0], h[1], h[2], h[3], h[5], h[6]) for h in heard] == [
        ("201", "POST", "POST", host, 3, 5),
        ("200", "GET", "WATCH", host, 0, 0),
    ]
    assert all(0 <= h[4] < 5 for h in heard)


async def test_a_refused_connection_is_unreachable_and_a_broken_one_a_lost_response(
    server, unused_tcp_port
):
    heard = []
    hooks = RequestHooks(on_request=lambda code, *rest: heard.append(code))
    async with ApiClient(Credentials(f"http://127.0.0.1:{unused_tcp_port}"), hooks=hooks) as api:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await api.request("POST", "/x", b"{}")
    assert heard == ["<error>"]

    async def script(call):
        call.cut()

    server.script = script
    async with ApiClient(Credentials(server.url)) as api:
        with pytest.raises(ResponseLost, match="POST /x: no answer"):
            await api.request("POST", "/x", b"{}")
    assert len(server.calls) == 1  # the request may have been processed: it is not repeated


@pytest.mark.looptime
async def test_a_silent_server_is_a_lost_response(server):
    async def script(call):
        await asyncio.Event().wait()

    server.script = script
    async with ApiClient(Credentials(server.url), timeout_seconds=30) as api:
        with pytest.raises(ResponseLost, match="timed out"):
            await api.request("POST", "/x", b"{}")
    assert 30 <= asyncio.get_running_loop().time() < 40


@pytest.mark.looptime
async def test_a_watch_whose_headers_do_not_come_is_lost(server):
    async def script(call):
        await asyncio.Event().wait()

    server.script = script
    async with ApiClient(Credentials(server.url), timeout_seconds=30) as api:
        with pytest.raises(ResponseLost, match="timed out"):
            await by_watch(api)
    assert 30 <= asyncio.get_running_loop().time() < 40


async def by_watch(api):
    async with api.stream("/x", query="watch=true", read_timeout_seconds=150):
        pass


@pytest.mark.looptime
@pytest.mark.parametrize(
    "send",
    [by_watch, lambda api: api.request("GET", "/x"), lambda api: api.request("POST", "/x", b"{}")],
    ids=["watch", "read", "write"],
)
async def test_a_name_server_that_answers_late_is_not_waited_for(server, monkeypatch, send):
    async def resolve(*_, **__):
        await asyncio.sleep(1000)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    named = server.url.replace("127.0.0.1", "localhost")
    async with ApiClient(Credentials(named), connect_seconds=10) as api:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await send(api)
    assert 10 <= loop.time() < 20
    assert not server.calls


async def test_64_writes_run_side_by_side(server):
    arrived = asyncio.Event()

    async def script(call):
        if len(server.calls) == 64:
            arrived.set()
        await arrived.wait()
        await call.answer(200, {})

    server.script = script
    async with ApiClient(Credentials(server.url)) as api:
        await asyncio.wait_for(
            asyncio.gather(*(api.request("POST", "/x", b"{}") for _ in range(64))), 10
        )


async def test_closed_client_opens_no_new_connections(kmock):
    async with ApiClient(Credentials(str(kmock.url).rstrip("/"))) as api:
        pass
    with pytest.raises(Unreachable, match="closed"):
        await api.request("GET", PODS)
