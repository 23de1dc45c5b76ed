"""A pool of HTTP/1.1 connections to one server, with one request or one stream at a time on each.

A scheduler sends two writes a pod, the Binding and its Event, and reads a start's worth of lists
and watches; with a general HTTP client either costs more than what is done about it
(docs/adr/0003-connections-of-our-own.md).

The meaning of a response is none of this module's concern (``responses``), nor are retries
(``checked_writes``).
"""

import asyncio
from collections.abc import Callable

from proreus.client.http.dialer import Dialer, NotConnected
from proreus.client.http.http_connection import HttpConnection
from proreus.client.http.responses import HttpResponse
from proreus.client.http.stream import Stream


class ConnectionPool:
    """A pool of connections to one server; the caller limits their number.

    ``before_writing`` is called just before a request that is no read is sent, and raises if it
    must not be. Must be created and closed in a running event loop.
    """

    def __init__(
        self,
        dialer: Dialer,
        *,
        connect_seconds: float,
        before_writing: Callable[[], None] | None = None,
    ) -> None:
        self._dialer = dialer
        self._connect_seconds = connect_seconds
        self._before_writing = before_writing
        self._loop = asyncio.get_running_loop()
        self.idle: list[HttpConnection] = []
        self.open: set[HttpConnection] = set()
        self._closed = False
        self._generation = 0

    async def round_trip(
        self, request: bytes, timeout_seconds: float, *, reads: bool = False
    ) -> HttpResponse:
        """Send a request and return its response; ``reads``: it changes nothing.

        If nothing was sent, raises ``NotConnected`` or the exception of ``before_writing``. After
        any other ``OSError`` (``TimeoutError`` included) the request may have been processed.
        """
        deadline = self._loop.time() + timeout_seconds
        connection = await self._connection(timeout_seconds)
        # After the connect, which may take seconds, and in the same tick as the write below.
        if self._before_writing is not None and not reads:
            try:
                self._before_writing()
            except BaseException:
                connection.close()  # it is in no list of the pool and would leak
                raise
        return await connection.round_trip(request, deadline, reads=reads)

    async def open_stream(
        self, request: bytes, timeout_seconds: float, read_timeout_seconds: float
    ) -> Stream | HttpResponse:
        """Send a read, and return the body of a 2xx response while it arrives, or another response.

        ``timeout_seconds`` is the limit for its headers, ``read_timeout_seconds`` for the time
        without any byte after them. Raises as ``round_trip``.
        """
        deadline = self._loop.time() + timeout_seconds
        connection = await self._connection(timeout_seconds)
        return await connection.open_stream(request, deadline, read_timeout_seconds)

    async def _connection(self, timeout_seconds: float) -> HttpConnection:
        # Last in, first out: the connection used last is the least likely to have been closed by
        # the server, and the others time out, so that the pool shrinks after a burst.
        while self.idle:
            connection = self.idle.pop()
            if not (connection.closing or connection.outdated):
                return connection
        return await self._connect(min(timeout_seconds, self._connect_seconds))

    async def _connect(self, timeout_seconds: float) -> HttpConnection:
        generation = self._generation
        connection = await self._dialer.connect(
            lambda: HttpConnection(self, self._loop), timeout_seconds
        )
        # Its handshake may have been with the credentials from before ``replace_connections``.
        connection.outdated = generation != self._generation
        # The pool was closed while we connected: its close() did not see this connection.
        if self._closed:
            connection.close()
            raise NotConnected("the connections are closed already")
        if connection.closing:
            connection.close()
            raise NotConnected("the connection was closed at once")
        return connection

    def replace_connections(self) -> None:
        """Use new connections for all further requests, and begin streams anew."""
        self._generation += 1
        for connection in list(self.open):
            connection.replace()

    def close(self) -> None:
        """Close every connection; responses that are still awaited are lost."""
        self._closed = True
        for connection in list(self.open):
            connection.close()
