"""HTTP in front of the ``ApiServer``: aiohttp, without its routes, sessions and access log.

A watch is served by its connection's own task, which sleeps until its collection changes; all
changes up to the moment it runs go out in one write. So a burst of bindings costs one system call
a watcher, and a slow watcher needs no memory beyond the history that all watchers share.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Any

from aiohttp import web

from proreus.base.http_server_log import HTTP_SERVER_LOGGER
from proreus.server.certificates import load_pem, self_signed
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.collection import WatchCacheEvent
from proreus.workbench.sandbox.requests import ApiRequest
from proreus.workbench.sandbox.server import ApiServer, ApiServerResponse, WatchResponse
from proreus.workbench.sandbox.watch import error_line

_MAX_BODY_BYTES = 3 * 1024 * 1024


def make_server_context(host: str) -> tuple[ssl.SSLContext, bytes]:
    """Return a TLS context for loopback and a host, and its certificate (PEM) for clients."""
    pem = self_signed(dict.fromkeys(("localhost", "127.0.0.1", "::1", host)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pem(context, pem)
    return context, pem[: pem.index(b"-----BEGIN PRIVATE KEY")]


class HttpServer:
    """Serves an ``ApiServer`` over HTTP; watches get a bookmark each ``bookmark_seconds``."""

    def __init__(self, api: ApiServer, bookmark_seconds: float = 60.0) -> None:
        self._api = api
        self._bookmark_seconds = bookmark_seconds
        self._server: web.Server | None = None
        self._listeners: list[asyncio.Server] = []
        self._watches: set[asyncio.Event] = set()
        """For each watch that goes on: set when its collection has changed."""

    async def listen(
        self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen on one more port (0: any free one), and return its number.

        Raises ``OSError`` when the address cannot be bound.
        """
        if self._server is None:
            self._server = web.Server(
                self._handle,
                request_factory=_make_request,
                logger=HTTP_SERVER_LOGGER,
                access_log=None,
                handler_cancellation=True,
            )
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._server, host, port, ssl=tls, backlog=1024)
        self._listeners.append(listener)
        number: int = listener.sockets[0].getsockname()[1]
        return number

    async def close(self) -> None:
        """Stop listening, and end all watches with the last chunk of their streams."""
        for listener in self._listeners:
            listener.close()
        for changed in self._watches:
            changed.set()
        self._watches.clear()
        if self._server is not None:
            await self._server.shutdown(timeout=1.0)
        self._listeners.clear()
        self._server = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await request.read() if request.body_exists else b""
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {_MAX_BODY_BYTES}"
            status_error = StatusError(413, "RequestEntityTooLarge", text)
            return web.json_response(status_error.status(), status=status_error.code)
        except web.RequestPayloadError as error:
            status_error = StatusError(400, "BadRequest", f"the body cannot be read: {error}")
            return web.json_response(status_error.status(), status=status_error.code)
        response = self._api.handle(
            ApiRequest(request.method, request.raw_path, request.headers, body)
        )
        if isinstance(response, ApiServerResponse):
            headers: dict[str, str] = {"Content-Type": response.content_type, **response.headers}
            return web.Response(body=response.body, status=response.code, headers=headers)
        return await self._serve_watch(request, response)

    async def _serve_watch(
        self, request: web.BaseRequest, watching: WatchResponse
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        listeners, changed = self._api.store.collection(watching.served).listeners, asyncio.Event()

        def wake(_: WatchCacheEvent) -> None:
            changed.set()

        listeners.append(wake)
        self._watches.add(changed)
        try:
            await self._stream_events(stream, watching, changed)
        except ConnectionError:
            pass  # watchers end by closing the connection: the usual end, not an error
        finally:
            listeners.remove(wake)
            self._watches.discard(changed)
        return stream

    async def _stream_events(
        self, stream: web.StreamResponse, watching: WatchResponse, changed: asyncio.Event
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + watching.timeout_seconds
        next_bookmark = min(loop.time() + self._bookmark_seconds, deadline)
        watch, write = watching.watch, stream.write
        try:
            while changed in self._watches:
                changed.clear()
                if data := watch.next_events():
                    await write(data)
                    continue
                if watching.initial_events_end:
                    await write(watching.initial_events_end)
                    watching.initial_events_end = b""
                    continue
                if loop.time() >= next_bookmark:
                    if watching.bookmarks:
                        await write(self._api.bookmark(watching.served))
                    if loop.time() >= deadline:
                        break
                    next_bookmark = min(loop.time() + self._bookmark_seconds, deadline)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_bookmark):
                        await changed.wait()
        except StatusError as status_error:
            await write(error_line(status_error))
        await stream.write_eof()


def _make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
    """Return aiohttp's request, with kube-apiserver's limit for bodies instead of aiohttp's."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES
    )
