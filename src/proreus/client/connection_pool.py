"""HTTP/1.1 for small requests in great number: pooled connections, one request at a time on each.

A scheduler sends two writes a pod, the Binding and its Event, and aiohttp's request costs more than
deciding about the pod (docs/adr/0003-connections-for-writes.md). So writes go this short way: the
request is bytes, httptools parses the answer, a future carries it back. Reads and watches, proxies
and whatever else HTTP can be stay with aiohttp, in ``session``.

What must not be here: what an answer means (``answers``), and any second try (``checked_writes``).

An answer counts only when it is whole. One that the end of the connection would have to complete
(neither length nor chunks, as HTTP/1.0 had it) cannot be told from a cut one and is taken for lost.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

import httptools

from proreus.client.responses import HttpResponse

_IDLE_SECONDS = 50.0
"""Less than the apiserver's 90: a connection that it closes under a request is a lost answer."""


class NotConnected(OSError):
    """No connection came about: nothing was sent."""


class ConnectionPool:
    """A pool of connections to one server. Whoever asks bounds their number.

    ``tls`` returns the context for a new connection, None for plain text. ``before_sending`` is
    called when a request is about to go out and raises if it must not. Must be made and closed
    inside a running loop.
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
        """Send a request and return its answer.

        Raises ``NotConnected``, or what ``before_sending`` does, when nothing was sent; any other
        ``OSError`` (a ``TimeoutError`` among them) and ``httptools.HttpParserError`` leave open
        whether the request has happened.
        """
        deadline = self._loop.time() + timeout_seconds
        while self.idle:  # the one used last is the least likely to have been closed
            connection = self.idle.pop()
            if not connection.closing:
                break
        else:
            connection = await self._connect(min(timeout_seconds, self._connect_seconds))
        if self._before_sending is not None:
            try:
                self._before_sending()
            except BaseException:
                connection.close()
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
        if self._closed:
            connection.close()
            raise NotConnected("the connections are closed already")
        return connection

    def close(self) -> None:
        """Close every connection; answers that are waited for are lost."""
        self._closed = True
        for connection in list(self.open):
            connection.close()


class _Connection(asyncio.Protocol):
    """One connection: idle, or with one request on its way.

    One timer serves both states: it goes off at the earliest deadline it was ever set to and looks
    what the deadline is by then, so that a request sets no timer of its own.
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
        """Whether no request may be sent any more."""
        return self._transport is None or self._transport.is_closing()

    async def round_trip(self, request: bytes, deadline: float) -> HttpResponse:
        """Send a request; return its whole answer."""
        assert self._transport is not None
        assert self._waiter is None
        waiter: asyncio.Future[HttpResponse] = self._loop.create_future()
        self._waiter = waiter
        self._set_deadline(deadline)
        self._transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.close()  # the answer may still come, and must not be taken for the next one's
            raise

    def close(self, error: Exception | None = None) -> None:
        """Close at once; who waits for an answer gets ``error``."""
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
        """Begin to be one of the pool's."""
        # uvloop's transport for TLS is one in deed, not by its class
        self._transport = cast(asyncio.Transport, transport)
        self._pool.open.add(self)

    def data_received(self, data: bytes) -> None:
        """Take in a part of the answer."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close(ConnectionError(f"the answer is no HTTP/1.1: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """Leave the pool; an answer that is not whole by now will never be."""
        self._pool.open.discard(self)
        if self in self._pool.idle:
            self._pool.idle.remove(self)
        self.close(error or ConnectionError("the server closed the connection"))
        self._transport = None

    # -- the parser's calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin an answer, if one is waited for."""
        if self._waiter is None:
            self.close()  # nobody asked: what comes now must answer no later request
        self._body = []
        self._content_type = ""
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the two headers that have a meaning here."""
        name = name.lower()
        if name == b"content-type":
            self._content_type = value.decode("latin-1").partition(";")[0].strip()
        elif name == b"retry-after" and value.isdigit():
            self._retry_after = float(value)

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Hand the answer over and be free for the next request."""
        waiter, code = self._waiter, self._parser.get_status_code()
        if waiter is None or code < 200:  # 1xx announces an answer, it is none
            return
        self._waiter = None
        if waiter.done():  # given up just now
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
