"""One HTTP/1.1 connection with one request at a time on it, or a stream.

The request is bytes, httptools parses the response, a future returns it. The body of a watch is
passed to a ``Stream`` while it arrives.

A response counts only if it is complete. One that ends with its connection (neither Content-Length
nor chunks, as in HTTP/1.0) cannot be distinguished from a truncated one: for a write it is treated
as lost. Those of reads and watches are JSON, whose reader notices.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

from proreus.client.http.responses import HttpResponse
from proreus.client.http.stream import Stream

if TYPE_CHECKING:
    from proreus.client.http.connection_pool import ConnectionPool

MOST_HEAD_BYTES = 1 << 20
"""More before the body is no answer of an apiserver: its headers have a few hundred bytes."""
_IDLE_SECONDS = 50.0
"""Less than the apiserver's 90: a connection that it closes under a request loses the response."""


class HttpConnection(asyncio.Protocol):
    """One connection of a pool: idle, with one request in flight, or with one stream.

    One timer serves all states. It fires at the earliest deadline it was ever set to, and compares
    the time with the deadline of then, so that most requests need no timer of their own.
    """

    def __init__(self, pool: ConnectionPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self.outdated = False
        """Whether it was opened with credentials that have changed since."""
        self._waiter: asyncio.Future[HttpResponse | Stream] | None = None
        self._stream: Stream | None = None
        self._stream_seconds: float | None = None  # not None: a stream is wanted
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._body: list[bytes] = []
        self._head_bytes = 0
        self._content_type = ""
        self._retry_after: float | None = None
        self._has_length = False
        self._in_body = False
        self._may_end_with_connection = False

    @property
    def closing(self) -> bool:
        """Whether the connection cannot take another request."""
        return self._transport is None or self._transport.is_closing()

    async def round_trip(self, request: bytes, deadline: float, *, reads: bool) -> HttpResponse:
        """Send a request and return its complete response; ``reads``: it changes nothing."""
        self._may_end_with_connection = reads
        self._stream_seconds = None
        return cast(HttpResponse, await self._send(request, deadline))

    async def open_stream(
        self, request: bytes, deadline: float, read_timeout_seconds: float
    ) -> Stream | HttpResponse:
        """Send a read and return the body of its response while that arrives.

        A response other than 2xx is returned whole. The stream breaks when nothing has arrived for
        ``read_timeout_seconds``.
        """
        self._may_end_with_connection = True
        self._stream_seconds = read_timeout_seconds
        return await self._send(request, deadline)

    async def _send(self, request: bytes, deadline: float) -> HttpResponse | Stream:
        assert self._transport is not None
        assert self._waiter is None
        waiter: asyncio.Future[HttpResponse | Stream] = self._loop.create_future()
        self._waiter = waiter
        # Of the response before, if that had no body: should the connection end now, its status
        # would be taken for the answer to this request.
        self._in_body = self._has_length = False
        self._head_bytes = 0
        self._set_deadline(deadline)
        self._transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            # The response may still arrive, and the next request would take it for its own. If it
            # has arrived in this tick, the connection may have the next request already.
            if self._waiter is waiter or self._is_streaming_to(waiter):
                self.close()
            raise

    def _is_streaming_to(self, waiter: asyncio.Future[HttpResponse | Stream]) -> bool:
        """Return whether ``waiter`` was given the stream in progress."""
        if self._stream is None or waiter.cancelled() or waiter.exception() is not None:
            return False
        return waiter.result() is self._stream

    def close(self, error: Exception | None = None) -> None:
        """Close at once; a request in flight, or a stream, fails with ``error``."""
        error = error or ConnectionError("the connection was closed")
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            if not waiter.done():
                waiter.set_exception(error)
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.finish(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def replace(self) -> None:
        """Take no further request, and end the stream once its last line is complete."""
        self.outdated = True
        if self in self._pool.idle:
            self.close()
        else:
            self._end_stream_after_line()

    def _end_stream_after_line(self) -> None:
        if self._stream is not None and self._stream.ends_line:
            stream, self._stream = self._stream, None
            stream.finish()
            self.close()

    # -- time ----------------------------------------------------------------------------------

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _renew_deadline(self) -> None:
        """Give the stream its whole time again; the timer notices when it fires."""
        self._deadline = self._loop.time() + (self._stream_seconds or 0.0)

    def _on_timer(self) -> None:
        self._timer = None
        if self._stream is not None and self._stream.is_full:
            self._renew_deadline()  # we do not read, so the server is not late
            self._set_deadline(self._deadline)
        elif self._loop.time() < self._deadline:
            self._set_deadline(self._deadline)
        else:
            self.close(TimeoutError("the server took too long"))

    # -- the stream's calls ----------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Leave the socket unread."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read the socket again."""
        if self._stream is not None:
            # Nothing could arrive meanwhile, which is not the server's fault.
            self._renew_deadline()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- asyncio's calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the pool's open connections."""
        # uvloop's TLS transport does not inherit from asyncio.Transport; it is duck-typed.
        self._transport = cast(asyncio.Transport, transport)
        self._pool.open.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response."""
        if self._stream is not None:
            self._renew_deadline()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close(ConnectionError(f"the response is not HTTP/1.1: {error}"))
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self.close(ConnectionError("the headers of the response are too long"))
        if self.outdated:
            self._end_stream_after_line()

    def connection_lost(self, error: Exception | None) -> None:
        """Leave the pool; a response that is incomplete by now is lost."""
        self._pool.open.discard(self)
        if self in self._pool.idle:
            self._pool.idle.remove(self)
        if error is None and self._ends_with_connection():
            self._end_response()
        self.close(error or ConnectionError("the server closed the connection"))
        self._transport = None

    def _ends_with_connection(self) -> bool:
        """Whether the body of the response in progress is complete when the connection ends."""
        if not self._may_end_with_connection or self._has_length:
            return False
        return self._stream is not None or (self._waiter is not None and self._in_body)

    # -- the parser's calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a response, if one is awaited."""
        # A response without a request (a proxy's 408 on an idle connection, say) would otherwise be
        # taken for that of the next request: a Binding would look done that was never read.
        if self._waiter is None:
            self.close()
        self._body = []
        self._in_body = False
        self._content_type = ""
        self._retry_after = None
        self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the headers that the client uses."""
        name = name.lower()
        if name == b"content-type":
            self._content_type = value.decode("latin-1").partition(";")[0].strip().lower()
        elif name == b"retry-after" and value.isdigit():
            self._retry_after = float(value)
        elif name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            # We do not ask for it, so it is a proxy's, and nobody here could read it.
            self.close(ConnectionError(f"the answer is encoded as {value.decode('latin-1')}"))

    def on_headers_complete(self) -> None:
        """Return a stream, if one is wanted and the response is 2xx."""
        code = self._parser.get_status_code()
        self._in_body = code >= 200
        waiter = self._waiter
        if self._stream_seconds is None or waiter is None or not 200 <= code < 300:
            return
        self._waiter = None
        if waiter.done():  # its request was cancelled in this tick
            self.close()
            return
        self._stream = Stream(self, code)
        self._set_deadline(self._loop.time() + self._stream_seconds)
        waiter.set_result(self._stream)

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body, or pass it on."""
        if self._stream is not None:
            self._stream.feed(data)
        else:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """Return the response, and the connection to the pool."""
        if not self._end_response():
            return
        if self._parser.should_keep_alive() and not self.outdated:
            self._set_deadline(self._loop.time() + _IDLE_SECONDS)
            self._pool.idle.append(self)
        else:
            self.close()

    def _end_response(self) -> bool:
        """Give the response to its waiter; return whether the connection is free afterwards."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.finish()
            return True
        waiter, code = self._waiter, self._parser.get_status_code()
        if waiter is None or code < 200:  # 1xx is interim: the response is still to come
            return False
        self._waiter = None
        if waiter.done():  # its request was cancelled in this tick
            self.close()
            return False
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        retry_after = self._retry_after if code >= 400 else None
        waiter.set_result(HttpResponse(code, body, self._content_type, retry_after))
        return True
