"""HTTP to the apiserver: bytes out, bytes in, over pooled connections.

Nothing here depends on a resource, and nothing is retried, with one exception: after a 401 the
credentials are refreshed and the request is sent once more (an unauthorized request was not
processed). The code path of a request is short, since a scheduler sends a binding for each pod:
prepared headers, no cookies, no compression. Writes go over ``connection_pool``; reads, watches and
everything that needs a proxy go over aiohttp.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import NamedTuple

import aiohttp
from msgspec import Struct
from yarl import URL

from proreus.client.connection_pool import ConnectionPool, NotConnected
from proreus.client.credentials import Credentials
from proreus.client.request_headers import JSON, RequestHeaders, user_agent
from proreus.client.responses import HttpResponse, ResponseLost, Unreachable, error_from_response
from proreus.client.stream import NETWORK_ERRORS, Stream, error_message
from proreus.client.write_fence import WriteFence
from proreus.errors import ApiError

_READ_BUFFER_BYTES = 256 * 1024
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, NotConnected)


def _nothing(*_: object) -> None:
    """Default of a hook."""


class RequestHooks(Struct, frozen=True):
    """Callables for the rest_client_* metrics; none may raise or block.

    on_request: (code, method, verb, host, seconds, sent_bytes, received_bytes) after each attempt;
        code is "200" … or "<error>", verb the method or "WATCH" (a watch is reported when its
        headers have arrived: its duration is not a latency).
    on_retry: (code, verb, host) when a request is repeated after a Retry-After.
    on_throttle: (verb, host, seconds) with the time spent in client-side flow control.
    """

    on_request: Callable[[str, str, str, str, float, int, int], None] = _nothing
    on_retry: Callable[[str, str, str], None] = _nothing
    on_throttle: Callable[[str, str, float], None] = _nothing


class Request(NamedTuple):
    """A request; ``path`` and ``query`` ("a=b&c=d") must be percent-encoded."""

    method: str
    path: str
    body: bytes | None = None
    query: str = ""
    content_type: str = JSON


class ApiClient:
    """A client of one apiserver. ``timeout_seconds`` limits each request that is not a watch.

    ``fence`` is checked before each request but GET is sent, and raises ``NotLeading``.
    ``forwarded_as``: see ``RequestHeaders``.

    Must be created and closed in a running event loop: ``async with ApiClient(...) as client``.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        agent: str | None = None,
        timeout_seconds: float = 30.0,
        connect_seconds: float = 10.0,
        hooks: RequestHooks | None = None,
        fence: WriteFence | None = None,
        forwarded_as: str = "",
    ) -> None:
        self.credentials = credentials
        self.hooks = hooks or RequestHooks()
        self.fence = fence or WriteFence()
        self._server = URL(credentials.server)
        self.host = self._server.authority
        # The connection pool for writes knows neither proxies nor a password in the URL.
        self._needs_aiohttp = credentials.proxy is not None or self._server.user is not None
        self._base = credentials.server.rstrip("/")
        self._prefix = self._server.raw_path.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._connect_seconds = connect_seconds
        self._headers = RequestHeaders(self.host, agent or user_agent(), forwarded_as)
        self._session: aiohttp.ClientSession | None = None
        self._writes: ConnectionPool | None = None
        self._closed = False
        self._refreshing: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; later requests raise ``Unreachable``."""
        self._closed = True
        if self._writes is not None:
            writes, self._writes = self._writes, None
            writes.close()
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: str = "",
        content_type: str = JSON,
        timeout_seconds: float | None = None,
    ) -> bytes:
        """Return the body of a 2xx response; raise ``ApiError`` for any other."""
        request = Request(method, path, body, query, content_type)
        response = await self.send(request, timeout_seconds)
        if response.ok:
            return response.body
        raise error_from_response(response, f"{method} {path}")

    async def send(self, request: Request, timeout_seconds: float | None = None) -> HttpResponse:
        """Return the response, whatever its code; raise ``Unreachable`` or ``ResponseLost`` if
        there is none."""
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        response = await self._attempt(request, timeout_seconds)
        if response.code == 401 and await self._refresh():
            response = await self._attempt(request, timeout_seconds)
        return response

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: str, read_timeout_seconds: float
    ) -> AsyncIterator["Stream"]:
        """Open a watch; reading raises ``ResponseLost`` when nothing has arrived for
        ``read_timeout_seconds``."""
        response = await self._open(path, query, read_timeout_seconds)
        if response.status == 401 and await self._refresh():
            response.close()
            response = await self._open(path, query, read_timeout_seconds)
        try:
            if not 200 <= response.status < 300:
                try:
                    refusal = _to_response(response, await response.read())
                except NETWORK_ERRORS as error:
                    raise self._transport_error(error, f"GET {path}") from error
                raise error_from_response(refusal, f"GET {path}")
            yield Stream(response, f"the watch of {path} at {self.host}")
        finally:
            response.close()

    async def _open(
        self, path: str, query: str, read_timeout_seconds: float
    ) -> aiohttp.ClientResponse:
        # ``connect`` and not only ``sock_connect``, which leaves out the name server's answer.
        timeout = aiohttp.ClientTimeout(
            connect=self._connect_seconds, sock_read=read_timeout_seconds, total=None
        )
        started = time.perf_counter()
        code = "<error>"
        try:
            # The apiserver sends the headers of a watch at once. ``sock_read`` would wait for them
            # as long as for events.
            async with asyncio.timeout(self._timeout_seconds):
                response = await self._begin(Request("GET", path, query=query), timeout)
            code = str(response.status)
            return response
        except NETWORK_ERRORS as error:
            raise self._transport_error(error, f"GET {path}") from error
        finally:
            self.hooks.on_request(
                code, "GET", "WATCH", self.host, time.perf_counter() - started, 0, 0
            )

    async def _attempt(self, request: Request, timeout_seconds: float) -> HttpResponse:
        method, path, body = request.method, request.path, request.body
        round_trip = self._read if method == "GET" or self._needs_aiohttp else self._write
        started = time.perf_counter()
        code, received = "<error>", 0
        try:
            response = await round_trip(request, timeout_seconds)
            code, received = str(response.code), len(response.body)
            return response
        except NETWORK_ERRORS as error:
            raise self._transport_error(error, f"{method} {path}") from error
        finally:
            seconds, sent = time.perf_counter() - started, len(body) if body else 0
            self.hooks.on_request(code, method, method, self.host, seconds, sent, received)

    async def _write(self, request: Request, timeout_seconds: float) -> HttpResponse:
        """Send a request over the connection pool and return its response."""
        writes = self._writes
        if writes is None:
            writes = self._writes = self._new_connections()
        head = self._headers.lines(await self._authorization(), request.content_type)
        target = f"{self._prefix}{request.path}"
        if request.query:
            target = f"{target}?{request.query}"
        if not target.isascii() or not target.isprintable() or " " in target:
            raise ValueError(f"the path of a request must be percent-encoded: {target!r}")
        body = request.body or b""
        data = b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (
            request.method.encode(),
            target.encode(),
            head,
            len(body),
            body,
        )
        return await writes.round_trip(data, timeout_seconds)

    async def _read(self, request: Request, timeout_seconds: float) -> HttpResponse:
        """Send a request over aiohttp and return its response."""
        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds, connect=min(timeout_seconds, self._connect_seconds)
        )
        response = await self._begin(request, timeout)
        try:
            data = await response.read()
        finally:
            response.release()
        return _to_response(response, data)

    async def _begin(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        session = self._session
        if session is None:
            session = self._session = self._new_session()
        headers = self._headers.fields(await self._authorization(), request.content_type)
        url = self._base + request.path
        return await session.request(
            request.method,
            URL(f"{url}?{request.query}" if request.query else url, encoded=True),
            data=request.body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            proxy=self.credentials.proxy,
            server_hostname=self.credentials.tls_server_name,
            trace_request_ctx=None if request.method == "GET" else self.fence,
        )

    async def _authorization(self) -> str:
        cached = self.credentials.authorization()
        return cached if cached is not None else await self.credentials.fetch_authorization()

    def _new_connections(self) -> ConnectionPool:
        if self._closed:
            raise Unreachable("the connections to the apiserver are closed already")
        server = self._server
        assert server.raw_host is not None
        assert server.port is not None
        return ConnectionPool(
            server.raw_host,
            server.port,
            tls=self.credentials.tls_context,
            server_hostname=self.credentials.tls_server_name,
            connect_seconds=self._connect_seconds,
            before_sending=self.fence.check,
        )

    def _new_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise Unreachable("the connections to the apiserver are closed already")
        # No limit of connections: the dispatcher limits its writes itself, and watches, which hold
        # a connection each, must never wait for one.
        tls = self.credentials.tls_context()
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=50.0, ssl=tls if tls is not None else True
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
            skip_auto_headers=("Accept-Encoding",),
            read_bufsize=_READ_BUFFER_BYTES,
            trace_configs=[_fencing()],
        )
        # aiohttp repeats a PUT or DELETE whose connection broke, by itself. A PUT that was done
        # would get a 409 the second time: only the dispatcher knows what may be repeated.
        session._retry_connection = False
        return session

    async def _refresh(self) -> bool:
        """Refresh the credentials, once for all requests that got a 401 together."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self.credentials.refresh())
            self._refreshing.add_done_callback(self._refresh_ended)
        # Shielded: one request that is cancelled must not cancel the refresh for all others.
        return await asyncio.shield(self._refreshing)

    def _refresh_ended(self, _: "asyncio.Task[bool]") -> None:
        self._refreshing = None

    def _transport_error(self, error: Exception, request: str) -> ApiError:
        """Return ``Unreachable`` if nothing can have been sent, else ``ResponseLost``."""
        text = error_message(error)
        if isinstance(error, _UNSENT):
            return Unreachable(f"the apiserver {self._base} cannot be reached: {text}")
        return ResponseLost(f"{request}: no answer from the apiserver {self._base}: {text}")


def _fencing() -> aiohttp.TraceConfig:
    """Return the aiohttp trace that checks the fence before a write is sent."""

    # Not before the request: to open a connection may take longer than the rest of the Lease.
    async def connected(_: object, context: SimpleNamespace, __: object) -> None:
        if isinstance(context.trace_request_ctx, WriteFence):
            context.trace_request_ctx.check()

    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(connected)
    config.on_connection_reuseconn.append(connected)
    return config


def _to_response(response: aiohttp.ClientResponse, body: bytes) -> HttpResponse:
    retry_after = None
    if response.status >= 400:
        text = response.headers.get("Retry-After", "")
        retry_after = float(text) if text.isdigit() else None
    return HttpResponse(response.status, body, response.content_type, retry_after)
