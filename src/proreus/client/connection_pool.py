"""A pool of HTTP/1.1 connections for many small writes, with one request at a time on each.

A scheduler sends two writes a pod, the Binding and its Event, and a request with aiohttp costs more
than the scheduling cycle (docs/adr/0003-connections-for-writes.md). So writes take a short path:
the request is bytes, httptools parses the response, a future returns it. Reads, watches and proxies
stay with aiohttp, in ``session``.

The meaning of a response is none of this module's concern (``responses``), nor are retries
(``checked_writes``).

Only complete responses count. One that ends with its connection (neither Content-Length nor chunks,
as in HTTP/1.0) cannot be distinguished from a truncated one and is treated as lost.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

import httptools

from proreus.client.responses import HttpResponse

_IDLE_SECONDS = 50.0
"""Less than the apiserver's 90: a connection that it closes under a request loses the response."""


class NotConnected(OSError):
    """No connection could be opened: nothing was sent."""


class ConnectionPool:
    """A pool of connections to one server; the caller limits their number.

    ``tls`` returns the context for a new connection, None for plain text. ``before_sending`` is
    called just before a request is sent, and raises if it must not be. Must be created and closed
    in a running event loop.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        server_hostname: str | None,
        connect_seconds: float,
        before_sending: Callable[[], None] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._server_hostname = server_hostname
        self._connect_seconds = connect_seconds
        self._before_sending = before_sending
        self._loop = asyncio.get_running_loop()
        self.idle: list[_Connection] = []
        self.open: set[_Connection] = set()
        self._closed = False

    async def round_trip(self, request: bytes, timeout_seconds: float) -> HttpResponse:
        """Send a request and return its response.

        If nothing was sent, raises ``NotConnected`` or the exception of ``before_sending``. After
        any other ``OSError`` (``TimeoutError`` included) or ``httptools.HttpParserError`` the
        request may have been processed.
        """
        deadline = self._loop.time() + timeout_seconds
        # Last in, first out: the connection used last is the least likely to have been closed by
        # the server, and the others time out, so that the pool shrinks after a burst.
        while self.idle:
            connection = self.idle.pop()
            if not connection.closing:
                break
        else:
            connection = await self._connect(min(timeout_seconds, self._connect_seconds))
        # After the connect, which may take seconds, and in the same tick as the write below.
        if self._before_sending is not None:
            try:
                self._before_sending()
            except BaseException:
                connection.close()  # it is in no list of the pool and would leak
                raise
        return await connection.round_trip(request, deadline)

    async def _connect(self, timeout_seconds: float) -> "_Connection":
        tls = self._tls()
        name = (self._server_hostname or self._host) if tls is not None else None
        try:
            async with asyncio.timeout(timeout_seconds):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self, self._loop),
                    self._host,
                    self._port,
                    ssl=tls,
                    server_hostname=name,
                )
        except TimeoutError as error:
            raise NotConnected(f"timed out after {timeout_seconds:g} s") from error
        except OSError as error:  # ssl.SSLError is one too
            raise NotConnected(str(error) or type(error).__name__) from error
        # The pool was closed while we connected: its close() did not see this connection.
        if self._closed:
            connection.close()
            raise NotConnected("the connections are closed already")
        return connection

    def close(self) -> None:
        """Close every connection; responses that are still awaited are lost."""
        self._closed = True
        for connection in list(self.open):
            connection.close()


class _Connection(asyncio.Protocol):
    """One connection: idle, or with one request in flight.

    One timer serves both states. It fires at the earliest deadline it was ever set to, and compares
    the time with the deadline of then, so that most requests need no timer of their own.
    """

    def __init__(self, pool: ConnectionPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._body: list[bytes] = []
        self._content_type = ""
        self._retry_after: float | None = None

    @property
    def closing(self) -> bool:
        """Whether the connection cannot take another request."""
        return self._transport is None or self._transport.is_closing()

    async def round_trip(self, request: bytes, deadline: float) -> HttpResponse:
        """Send a request and return its complete response."""
        assert self._transport is not None
        assert self._waiter is None
        waiter: asyncio.Future[HttpResponse] = self._loop.create_future()
        self._waiter = waiter
        self._set_deadline(deadline)
        self._transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            # The response may still arrive, and the next request would take it for its own.
            self.close()
            raise

    def close(self, error: Exception | None = None) -> None:
        """Close at once; a request in flight fails with ``error``."""
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            if not waiter.done():
                waiter.set_exception(error or ConnectionError("the connection was closed"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    # -- time ----------------------------------------------------------------------------------

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline:
            self._set_deadline(self._deadline)
        else:
            self.close(TimeoutError("the server took too long"))

    # -- asyncio's calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the pool's open connections."""
        # uvloop's TLS transport does not inherit from asyncio.Transport; it is duck-typed.
        self._transport = cast(asyncio.Transport, transport)
        self._pool.open.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close(ConnectionError(f"the answer is no HTTP/1.1: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """Leave the pool; a response that is incomplete by now is lost."""
        self._pool.open.discard(self)
        if self in self._pool.idle:
            self._pool.idle.remove(self)
        self.close(error or ConnectionError("the server closed the connection"))
        self._transport = None

    # -- the parser's calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a response, if one is awaited."""
        # A response without a request (a proxy's 408 on an idle connection, say) would otherwise be
        # taken for that of the next request: a Binding would look done that was never read.
        if self._waiter is None:
            self.close()
        self._body = []
        self._content_type = ""
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the two headers that the client uses."""
        name = name.lower()
        if name == b"content-type":
            self._content_type = value.decode("latin-1").partition(";")[0].strip()
        elif name == b"retry-after" and value.isdigit():
            self._retry_after = float(value)

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Return the response, and the connection to the pool."""
        waiter, code = self._waiter, self._parser.get_status_code()
        if waiter is None or code < 200:  # 1xx is interim: the response is still to come
            return
        self._waiter = None
        if waiter.done():  # its request was cancelled in this tick
            self.close()
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        retry_after = self._retry_after if code >= 400 else None
        waiter.set_result(HttpResponse(code, body, self._content_type, retry_after))
        if self._parser.should_keep_alive():
            self._set_deadline(self._loop.time() + _IDLE_SECONDS)
            self._pool.idle.append(self)
        else:
            self.close()
