"""The lists that a start waits for longest, requested before most modules are imported.

The apiserver takes as long to write the list of thousands of nodes as we take to import what
handles it. So threads request these lists at the very start and keep the bytes; the reflector takes
them in place of its first list (``Reflector._list_and_watch``), and watches from their version.
Whatever goes wrong here is no error: the reflector then lists by itself, and reports what it meets.

This module imports little, and must not import aiohttp.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from proreus.client.request_headers import JSON, RequestHeaders, user_agent

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext

    from proreus.client.credentials import Credentials

NON_TERMINAL_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Terminated pods hold no resources: kube-scheduler's pod informer leaves them out too."""

_PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": f"/api/v1/pods?{urlencode({'fieldSelector': NON_TERMINAL_PODS})}",
}
"""By kind. The other lists are short, or cannot be known before the configuration is read."""

_TIMEOUT_SECONDS = 10.0
_MOST_BYTES = 64 << 20
"""More is left to the reflector: a stream is decoded while it arrives, and never held whole."""


class EarlyList:
    """The body of one list, requested by a thread of its own as soon as this is created."""

    def __init__(self, credentials: Credentials, path: str) -> None:
        """``credentials``: with their Authorization fetched."""
        self._credentials = credentials
        self._path = path
        self._body: Future[bytes | None] | None = Future()
        # A daemon: a process that ends does not wait for the apiserver.
        threading.Thread(
            target=self._fetch, args=(self._body,), name=f"list {path}", daemon=True
        ).start()

    async def take(self) -> bytes | None:
        """Return the body, once; None if there is none, or it does not arrive in time."""
        body, self._body = self._body, None
        if body is None:
            return None
        try:
            return await asyncio.wait_for(asyncio.wrap_future(body), _TIMEOUT_SECONDS)
        except TimeoutError:
            return None

    def _fetch(self, body: Future[bytes | None]) -> None:
        found = None
        # Nobody would see an exception of this thread; the reflector meets its cause again.
        with suppress(Exception):
            found = self._get()
        # It may have been given up.
        with suppress(InvalidStateError):
            body.set_result(found)

    def _get(self) -> bytes | None:
        server = urlsplit(self._credentials.server)
        assert server.hostname is not None
        headers = RequestHeaders(server.netloc, user_agent())
        fields = headers.fields(self._credentials.authorization() or "", JSON)
        connection = _connect(server.hostname, server.port, self._credentials.tls_context())
        with closing(connection):
            connection.request("GET", server.path.rstrip("/") + self._path, headers=dict(fields))
            response = connection.getresponse()
            return _read(response) if response.status == 200 else None


def request_early_lists(credentials: Credentials) -> dict[str, EarlyList]:
    """Request the lists that may be long, by kind; returns at once.

    Empty where a connection needs more than an address and TLS, which only ``session`` can.
    """
    if credentials.proxy is not None or credentials.tls_server_name is not None:
        return {}
    if urlsplit(credentials.server).username is not None:
        return {}
    # Here, since the threads would each make one.
    credentials.tls_context()
    return {kind: EarlyList(credentials, path) for kind, path in _PATHS.items()}


def _connect(host: str, port: int | None, tls: SSLContext | None) -> HTTPConnection:
    if tls is None:
        return HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    return HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=tls)


def _read(response: HTTPResponse) -> bytes | None:
    """Return a body, or None if it is too large."""
    # Not in parts: to join them would need the memory twice.
    body = response.read(_MOST_BYTES)
    return body if response.isclosed() or not response.read(1) else None
