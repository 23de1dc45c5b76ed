"""The lists that a start waits for longest, requested before most modules are imported.

The apiserver takes as long to write the list of thousands of nodes as we take to import what
handles it. So a thread requests these lists at the very start and keeps the bytes; the reflector
takes them in place of its first list (``Reflector._list_and_watch``), and watches from their
version. Whatever goes wrong here is no error: the reflector then lists by itself, and reports what
it meets.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from proreus.client.credentials import Credentials
from proreus.client.session import ApiClient

NON_TERMINAL_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Terminated pods hold no resources: kube-scheduler's pod informer leaves them out too."""

_PATHS = {
    "Node": ("/api/v1/nodes", ""),
    "Pod": ("/api/v1/pods", urlencode({"fieldSelector": NON_TERMINAL_PODS})),
}
"""Path and query by kind. The other lists are short, or cannot be known before the configuration
is read."""

_TIMEOUT_SECONDS = 10.0
_PAUSE_SECONDS = 0.001
_MOST_BYTES = 64 << 20
"""More is left to the reflector: a stream is decoded while it arrives, and never held whole."""


class EarlyList:
    """The body of one list that a thread requests."""

    def __init__(self, arriving: Future[bytes | None]) -> None:
        self._arriving: Future[bytes | None] | None = arriving

    async def take(self) -> bytes | None:
        """Return the body, once; None if there is none, or it does not arrive in time."""
        arriving, self._arriving = self._arriving, None
        if arriving is None:
            return None
        try:
            return await asyncio.wait_for(asyncio.wrap_future(arriving), _TIMEOUT_SECONDS)
        except TimeoutError:
            return None


def request_early_lists(credentials: Credentials) -> dict[str, EarlyList]:
    """Request the lists that may be long, by kind; returns at once.

    ``credentials`` belong to the thread that requests them from then on.
    """
    arriving: dict[str, Future[bytes | None]] = {kind: Future() for kind in _PATHS}
    # A daemon: a process that ends does not wait for the apiserver.
    threading.Thread(
        target=_fetch_in_a_thread, args=(credentials, arriving), name="early lists", daemon=True
    ).start()
    return {kind: EarlyList(body) for kind, body in arriving.items()}


def _fetch_in_a_thread(
    credentials: Credentials, arriving: Mapping[str, Future[bytes | None]]
) -> None:
    # Nobody would see an exception of this thread; the reflector meets its cause again.
    with suppress(Exception), asyncio.Runner(loop_factory=_EventLoop) as runner:
        runner.run(_fetch_all(credentials, arriving))
    for body in arriving.values():
        _set(body, None)


class _PausingSelector(selectors.DefaultSelector):
    """Lets more arrive before it looks what has.

    A list of five megabytes comes in 800 pieces. Read one by one, they cost 0.1 s, most of it with
    the interpreter's lock, for which the imports of the main thread wait; so they cost 0.04 s, and
    arrive no later.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what ``DefaultSelector`` does after a pause."""
        time.sleep(_PAUSE_SECONDS)
        return super().select(timeout)


class _EventLoop(asyncio.SelectorEventLoop):
    """An event loop that leaves the interpreter to the main thread as much as it can.

    It looks names up in its own thread, where nothing else waits for it. asyncio does so in threads
    of an executor, for which a process waits at its end: a name server may not answer for a long
    time.
    """

    def __init__(self) -> None:
        super().__init__(_PausingSelector())

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> Any:
        """Return what ``socket.getaddrinfo`` does."""
        return socket.getaddrinfo(*args, **kwargs)


async def _fetch_all(
    credentials: Credentials, arriving: Mapping[str, Future[bytes | None]]
) -> None:
    async with ApiClient(credentials, connect_seconds=_TIMEOUT_SECONDS) as client:
        await asyncio.gather(
            *(_fetch(client, *_PATHS[kind], body) for kind, body in arriving.items())
        )


async def _fetch(client: ApiClient, path: str, query: str, arriving: Future[bytes | None]) -> None:
    body = None
    with suppress(Exception):
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            body = await _read(client, path, query)
    _set(arriving, body)


def _set(arriving: Future[bytes | None], body: bytes | None) -> None:
    # It may have been set, or given up.
    with suppress(InvalidStateError):
        arriving.set_result(body)


async def _read(client: ApiClient, path: str, query: str) -> bytes | None:
    """Return a body, or None if it is too large."""
    parts, size = [], 0
    async with client.stream(path, query=query, read_timeout_seconds=_TIMEOUT_SECONDS) as stream:
        while part := await stream.read():
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                return None
    return b"".join(parts)
