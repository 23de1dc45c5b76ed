"""Delivers messages in order and ignores their responses.

They are kept while the process does not respond, so that an Unreserve during that time is not lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from proreus.base.errors import ProreusError
from proreus.base.logs import logger
from proreus.remote.connection import NoResponse, OutOfSync
from proreus.remote.wire import BadResponse

log = logger(__name__)

_MOST_MESSAGES = 10_000
_PAUSE_SECONDS = 0.2

Post = Callable[[str, bytes], Awaitable[None]]


class Outbox:
    """A queue of (path, body), delivered by one task, ``run``."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._messages: deque[tuple[str, bytes]] = deque()
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, path: str, body: bytes) -> None:
        """Append a message; if the queue is full, the oldest one is lost and logged."""
        if len(self._messages) >= _MOST_MESSAGES:
            lost, _ = self._messages.popleft()
            log.error("Message to a plugin is lost: too many wait", plugin=self._plugin, path=lost)
        self._messages.append((path, body))
        self._empty.clear()
        self._filled.set()

    def clear(self) -> None:
        """Drop all messages, since their process is gone."""
        self._messages.clear()
        self._empty.set()

    async def flush(self, seconds: float) -> None:
        """Wait until all messages are delivered; raises ``NoResponse`` after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            raise NoResponse(f"{len(self._messages)} earlier messages have not arrived") from None

    async def run(self, post: Post) -> None:
        """Deliver messages until cancelled. ``post`` raises the errors of ``Connection.post``."""
        while True:
            while not self._messages:
                self._empty.set()
                self._filled.clear()
                await self._filled.wait()
            path, body = message = self._messages[0]
            try:
                await post(path, body)
            except (BadResponse, OutOfSync) as error:
                log.error("Plugin refused a message", err=error, plugin=self._plugin)
            except ProreusError:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._messages and self._messages[0] is message:
                self._messages.popleft()
