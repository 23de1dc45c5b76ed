"""The body of a watch as it comes in over the network."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from proreus.client.responses import ResponseLost

NETWORK_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
"""What goes wrong on the way to a server and back."""

_THICK_SECONDS = 0.01
_GATHER_SECONDS = 0.008


class Stream:
    """The body of a watch.

    The apiserver sends each event on its own. When they come thick and fast the socket is left
    alone for a moment, so that one look at it takes many events instead of one.
    """

    def __init__(self, response: aiohttp.ClientResponse, name: str) -> None:
        self._content = response.content
        self._connection = response.connection
        self._name = name
        self._last = 0.0

    async def chunk(self) -> bytes:
        """Return all that has come since the last call; empty at the orderly end."""
        if time.monotonic() - self._last < _THICK_SECONDS:
            await self._gather()
        try:
            data = await self._content.readany()
            self._last = time.monotonic()
            return data
        except NETWORK_ERRORS as error:
            raise ResponseLost(f"{self._name} broke: {error_message(error)}") from error

    async def _gather(self) -> None:
        """Let events pile up in the socket for a moment."""
        protocol = self._connection.protocol if self._connection is not None else None
        if protocol is None:
            return
        protocol.pause_reading()
        try:
            await asyncio.sleep(_GATHER_SECONDS)
        finally:
            protocol.resume_reading()


def error_message(error: Exception) -> str:
    """Return what a network error says, or at least its name."""
    if isinstance(error, TimeoutError):
        return f"timed out ({str(error) or type(error).__name__})"
    return str(error) or type(error).__name__
