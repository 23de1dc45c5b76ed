"""The body of a watch, as it arrives over the network."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from proreus.client.responses import ResponseLost

NETWORK_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
"""Exceptions by which aiohttp and asyncio report a failed connection."""

_BURST_SECONDS = 0.01
"""Chunks that follow each other faster than this are a burst."""
_BATCHING_SECONDS = 0.008


class Stream:
    """The body of a watch.

    The apiserver sends each event in a packet of its own. Under bursts the socket is not read for 8
    ms at a time, so that one read takes many events: decoding and handling cost less per batch.
    """

    def __init__(self, response: aiohttp.ClientResponse, name: str) -> None:
        self._content = response.content
        self._connection = response.connection
        self._name = name
        self._last = 0.0

    async def chunk(self) -> bytes:
        """Return what has arrived since the last call; empty when the server ends the stream."""
        if time.monotonic() - self._last < _BURST_SECONDS:
            await self._let_events_accumulate()
        try:
            data = await self._content.readany()
            self._last = time.monotonic()
            return data
        except NETWORK_ERRORS as error:
            raise ResponseLost(f"{self._name} broke: {error_message(error)}") from error

    async def _let_events_accumulate(self) -> None:
        """Leave the socket unread for a moment."""
        protocol = self._connection.protocol if self._connection is not None else None
        if protocol is None:
            return
        protocol.pause_reading()
        try:
            await asyncio.sleep(_BATCHING_SECONDS)
        finally:
            protocol.resume_reading()


def error_message(error: Exception) -> str:
    """Return the message of a network error, or its type if it has none."""
    if isinstance(error, TimeoutError):
        return f"timed out ({str(error) or type(error).__name__})"
    return str(error) or type(error).__name__
