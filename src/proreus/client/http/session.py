"""HTTP to the apiserver: bytes out, bytes in, over pooled connections.

Nothing here depends on a resource, and nothing is retried, with one exception: after a 401 the
credentials are refreshed and, if they have changed, the request is sent once more (an unauthorized
request was not processed). New TLS files end the connections that were opened with older ones. The
code path of a request is short, since a scheduler sends a binding for each pod: prepared headers,
no cookies, no compression. Connections are kept by ``connection_pool``.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit

from msgspec import Struct

from proreus.base.errors import ApiError
from proreus.client.credentials.authentication_health import AuthenticationHealth
from proreus.client.credentials.credentials import Credentials
from proreus.client.http.connection_pool import ConnectionPool
from proreus.client.http.dialer import Dialer, NotConnected, basic_authorization, host_header
from proreus.client.http.request_headers import JSON, RequestHeaders, user_agent
from proreus.client.http.responses import (
    HttpResponse,
    ResponseLost,
    Unreachable,
    error_from_response,
)
from proreus.client.http.stream import Stream, error_message
from proreus.client.http.write_fence import WriteFence


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


class Request(Struct, frozen=True):
    """A request; ``path`` and ``query`` ("a=b&c=d") must be percent-encoded."""

    method: str
    path: str
    body: bytes | None = None
    query: str = ""
    content_type: str = JSON


class ApiClient:
    """A client of one apiserver. ``timeout_seconds`` limits each request that is not a watch.

    ``fence`` is checked before each request but GET is sent, and raises ``NotLeading``.
    ``forwarded_as``: see ``RequestHeaders``. ``health`` is told whether we are authenticated.
    ``server_name``: what errors call the server.

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
        health: AuthenticationHealth | None = None,
        server_name: str = "apiserver",
    ) -> None:
        self.credentials = credentials
        self._server_name = server_name
        self._health = health or AuthenticationHealth()
        self.hooks = hooks or RequestHooks()
        self.fence = fence or WriteFence()
        server = urlsplit(credentials.server)
        self.host = host_header(server)
        self._dialer = Dialer(
            credentials.server,
            tls=credentials.tls_context,
            server_hostname=credentials.tls_server_name,
            proxy=credentials.proxy,
        )
        self._base = f"{server.scheme}://{self.host}{server.path.rstrip('/')}"
        self._prefix = quote(server.path.rstrip("/"), safe="/%!$&'()*+,;=:@~")
        self._proxy_header = b""
        # A proxy for plain HTTP is asked for the whole URL; for HTTPS it sees no request.
        if credentials.proxy is not None and server.scheme == "http":
            self._prefix = f"http://{self.host}{self._prefix}"
            self._proxy_header = self._dialer.proxy_authorization
        # A password in the URL, unless there are other credentials, as in Go's http.Client.
        self._basic_authorization = basic_authorization(server)
        self._timeout_seconds = timeout_seconds
        self._connect_seconds = connect_seconds
        self._headers = RequestHeaders(self.host, agent or user_agent(), forwarded_as)
        self._pool: ConnectionPool | None = None
        self._context: ssl.SSLContext | None = None
        self._closed = False
        self._refreshing: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; later requests raise ``Unreachable``."""
        self._closed = True
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.close()

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
        """Return the response, whatever its status; raise ``Unreachable`` or ``ResponseLost`` if
        there is none.
        """
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        authorization, used = await self._authorization()
        response = await self._attempt(request, authorization, timeout_seconds)
        if response.code == 401 and await self._refresh(used):
            authorization, _ = await self._authorization()
            response = await self._attempt(request, authorization, timeout_seconds)
        self._health.responded(response.code)
        return response

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: str, read_timeout_seconds: float
    ) -> AsyncIterator["Stream"]:
        """Open a watch; reading raises ``ResponseLost`` when nothing has arrived for
        ``read_timeout_seconds``."""
        request = Request("GET", path, query=query)
        authorization, used = await self._authorization()
        opened = await self._open(request, authorization, read_timeout_seconds)
        if opened.code == 401 and await self._refresh(used):
            authorization, _ = await self._authorization()
            opened = await self._open(request, authorization, read_timeout_seconds)
        self._health.responded(opened.code)
        if isinstance(opened, HttpResponse):
            raise error_from_response(opened, f"GET {path}")
        opened.name = f"the watch of {path} at {self.host}"
        try:
            yield opened
        finally:
            opened.close()

    async def _open(
        self, request: Request, authorization: str, read_timeout_seconds: float
    ) -> Stream | HttpResponse:
        started = time.perf_counter()
        code = "<error>"
        try:
            # The apiserver sends the headers of a watch at once: these are not waited for as long
            # as events are.
            encoded = self._encode(request, authorization)
            opened = await self._connections().open_stream(
                encoded, self._timeout_seconds, read_timeout_seconds
            )
            code = str(opened.code)
            return opened
        except OSError as error:
            raise self._transport_error(error, f"GET {request.path}") from error
        finally:
            self.hooks.on_request(
                code, "GET", "WATCH", self.host, time.perf_counter() - started, 0, 0
            )

    async def _attempt(
        self, request: Request, authorization: str, timeout_seconds: float
    ) -> HttpResponse:
        method, path, body = request.method, request.path, request.body
        started = time.perf_counter()
        code, received = "<error>", 0
        try:
            response = await self._connections().round_trip(
                self._encode(request, authorization), timeout_seconds, reads=method == "GET"
            )
            code, received = str(response.code), len(response.body)
            return response
        except OSError as error:
            raise self._transport_error(error, f"{method} {path}") from error
        finally:
            seconds, sent = time.perf_counter() - started, len(body) if body else 0
            self.hooks.on_request(code, method, method, self.host, seconds, sent, received)

    def _encode(self, request: Request, authorization: str) -> bytes:
        """Return a request as it is sent."""
        head = self._headers.lines(authorization, request.content_type)
        target = f"{self._prefix}{request.path}"
        if request.query:
            target = f"{target}?{request.query}"
        if not target.isascii() or not target.isprintable() or " " in target:
            raise ValueError(f"the path of a request must be percent-encoded: {target!r}")
        body = request.body or b""
        length = b"" if request.method == "GET" else b"Content-Length: %d\r\n" % len(body)
        return b"%b %b HTTP/1.1\r\n%b%b%b\r\n%b" % (
            request.method.encode(),
            target.encode(),
            head,
            self._proxy_header,
            length,
            body,
        )

    async def _authorization(self) -> tuple[str, int]:
        """Return the Authorization header, and the version of the credentials that it is of."""
        credentials = self.credentials
        cached = credentials.authorization()
        if cached is None:
            cached = await credentials.fetch_authorization()
        return cached or self._basic_authorization, credentials.version

    def _connections(self) -> ConnectionPool:
        if self._pool is None:
            if self._closed:
                raise Unreachable("the connections to the apiserver are closed already")
            # No limit of connections: the dispatcher limits its writes itself, and watches, which
            # hold a connection each, must never wait for one.
            self._pool = ConnectionPool(
                self._dialer,
                connect_seconds=self._connect_seconds,
                before_writing=self.fence.check,
            )
        context = self.credentials.tls_context()
        if context is not self._context:
            self._context = context
            self._pool.replace_connections()
        return self._pool

    async def _refresh(self, used: int) -> bool:
        """Refresh the credentials, once for all requests that got a 401 together."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self.credentials.refresh(used))
            self._refreshing.add_done_callback(self._refresh_ended)
        # Shielded: one request that is cancelled must not cancel the refresh for all others.
        return await asyncio.shield(self._refreshing)

    def _refresh_ended(self, _: "asyncio.Task[bool]") -> None:
        self._refreshing = None

    def _transport_error(self, error: Exception, request: str) -> ApiError:
        """Return ``Unreachable`` if nothing can have been sent, else ``ResponseLost``."""
        text = error_message(error)
        # A certificate may have been rotated, ours or the apiserver's.
        self.credentials.recheck()
        self._health.failed(error)
        if isinstance(error, NotConnected):
            return Unreachable(f"the {self._server_name} {self._base} cannot be reached: {text}")
        return ResponseLost(
            f"{request}: no answer from the {self._server_name} {self._base}: {text}"
        )
