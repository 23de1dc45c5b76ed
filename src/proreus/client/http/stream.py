"""The body of a watch, as it arrives over the network."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from proreus.client.http.responses import ResponseLost

if TYPE_CHECKING:
    from proreus.client.http.http_connection import HttpConnection

_BURST_SECONDS = 0.01
"""Chunks that follow each other faster than this are a burst."""
_BATCHING_SECONDS = 0.008
_MOST_BYTES_UNREAD = 512 * 1024
"""More that nobody has taken yet, and the socket is left unread."""


class Stream:
    """The body of a 2xx response, given in parts; ``connection`` passes it on.

    The apiserver sends each event in a packet of its own. Under bursts the socket is not read for 8
    ms at a time, so that one read takes many events: decoding and handling cost less per batch.
    """

    def __init__(self, connection: HttpConnection, code: int) -> None:
        self.code = code
        self.name = "the response"
        self._connection: HttpConnection | None = connection
        self._parts: list[bytes] = []
        self._unread_bytes = 0
        self.ends_line = True
        """Whether all that has arrived ends with a whole line."""
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._last = 0.0

    @property
    def is_full(self) -> bool:
        """Whether more has arrived than should wait to be taken."""
        return self._unread_bytes > _MOST_BYTES_UNREAD

    async def chunk(self) -> bytes:
        """Return new bytes; under bursts they are returned 8 ms later, see ``read``."""
        if time.monotonic() - self._last < _BURST_SECONDS:
            await self._let_events_accumulate()
        return await self.read()

    async def read(self) -> bytes:
        """Return bytes that have arrived since the last call; empty when the server ends the
        stream.

        Raises ``ResponseLost`` when it breaks.
        """
        while not self._parts and self._connection is not None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self._parts:
            if self._error is not None:
                text = error_message(self._error)
                raise ResponseLost(f"{self.name} broke: {text}") from self._error
            return b""
        self._last = time.monotonic()
        return self._take()

    def close(self) -> None:
        """Close the connection, unless the server has ended the stream."""
        if self._connection is not None:
            self._connection.close()

    def _take(self) -> bytes:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        if self.is_full and self._connection is not None:
            self._connection.resume_reading()
        self._unread_bytes = 0
        return data

    async def _let_events_accumulate(self) -> None:
        """Leave the socket unread for a moment."""
        if self._connection is None:
            return
        self._connection.pause_reading()
        try:
            await asyncio.sleep(_BATCHING_SECONDS)
        finally:
            # The stream may have ended meanwhile, and its connection serve somebody else.
            if self._connection is not None and not self.is_full:
                self._connection.resume_reading()

    # -- the connection's calls ------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Keep a part of the body."""
        self._parts.append(data)
        self._unread_bytes += len(data)
        self.ends_line = data.endswith(b"\n")
        if self._unread_bytes > _MOST_BYTES_UNREAD and self._connection is not None:
            self._connection.pause_reading()
        if self._waiter is not None:
            self._wake()

    def finish(self, error: Exception | None = None) -> None:
        """End the stream: by the server, or by ``error``."""
        if self._connection is None:
            return
        self._connection.resume_reading()
        self._connection = None
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def error_message(error: Exception) -> str:
    """Return the message of a network error, or its type if it has none."""
    if isinstance(error, TimeoutError):
        return f"timed out ({str(error) or type(error).__name__})"
    return str(error) or type(error).__name__
