"""The network in front of the ``ApiServer``: aiohttp, without its routes, sessions and access log.

A watch is served by its connection's own task, which sleeps until its collection changes; all that
has changed by the time it runs goes out in one write. So a burst of bindings costs a watcher one
system call, and a slow watcher costs memory only in the history that all share.
"""

import asyncio
import ssl
from typing import Any

from aiohttp import web

from proreus.sandbox.api_errors import StatusError
from proreus.sandbox.collection import Collection
from proreus.sandbox.requests import ApiRequest
from proreus.sandbox.server import ApiServer, ApiServerResponse, WatchResponse

_MAX_BODY_BYTES = 3 * 1024 * 1024


class HttpServer:
    """Serves an ``ApiServer`` on 127.0.0.1, or wherever asked. ``bookmark_seconds``: how often."""

    def __init__(self, api: ApiServer, bookmark_seconds: float = 60.0) -> None:
        self._api = api
        self._bookmark_seconds = bookmark_seconds
        self._server: web.Server | None = None
        self._listeners: list[asyncio.Server] = []
        self._watches: set[_Waker] = set()

    async def listen(
        self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen on one more port (0: a free one); return its number."""
        if self._server is None:
            self._server = web.Server(
                self._handle,
                request_factory=_make_request,
                access_log=None,
                handler_cancellation=True,
            )
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._server, host, port, ssl=tls, backlog=1024)
        self._listeners.append(listener)
        number: int = listener.sockets[0].getsockname()[1]
        return number

    async def close(self) -> None:
        """End all watches in good order and stop listening."""
        for listener in self._listeners:
            listener.close()
        for waker in tuple(self._watches):
            waker.stop()
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
        answer = self._api.answer(
            ApiRequest(request.method, request.raw_path, request.headers, body)
        )
        if isinstance(answer, ApiServerResponse):
            headers: dict[str, str] = {"Content-Type": answer.content_type, **answer.headers}
            return web.Response(body=answer.body, status=answer.code, headers=headers)
        return await self._serve_watch(request, answer)

    async def _serve_watch(
        self, request: web.BaseRequest, answer: WatchResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        collection = self._api.store.collection(answer.served)
        waker = _Waker(collection)
        self._watches.add(waker)
        try:
            await self._stream_events(response, answer, waker)
        except ConnectionError:
            pass  # the watcher has gone, as watchers do
        finally:
            waker.close()
            self._watches.discard(waker)
        return response

    async def _stream_events(
        self, response: web.StreamResponse, answer: WatchResponse, waker: "_Waker"
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + answer.timeout_seconds
        next_bookmark = min(loop.time() + self._bookmark_seconds, deadline)
        watch, write = answer.watch, response.write
        try:
            while not waker.stopped:
                if data := watch.next_events():
                    await write(data)
                    continue
                if answer.initial_events_end:
                    await write(answer.initial_events_end)
                    answer.initial_events_end = b""
                    continue
                if loop.time() >= next_bookmark:
                    if answer.bookmarks:
                        await write(self._api.bookmark(answer.served))
                    if loop.time() >= deadline:
                        break
                    next_bookmark = min(loop.time() + self._bookmark_seconds, deadline)
                    continue
                await waker.wait(next_bookmark)
        except StatusError as status_error:
            await write(self._api.error(status_error))
        await response.write_eof()


def _make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
    """Make aiohttp's request with the apiserver's limit for bodies instead of aiohttp's."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES
    )


class _Waker:
    """Wakes the one task that waits when a collection changes, or when it is time."""

    def __init__(self, collection: Collection) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Any] = collection.listeners
        self._waiting: asyncio.Future[None] | None = None
        self.stopped = False
        self._listeners.append(self._wake)

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting is not None:
            self._waiting = None
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self, until: float) -> None:
        """Sleep until something changes, or the loop's clock shows ``until``."""
        self._waiting = waiting = self._loop.create_future()
        timer = self._loop.call_at(until, self._wake)
        try:
            await waiting
        finally:
            timer.cancel()

    def stop(self) -> None:
        """Tell the task to end."""
        self.stopped = True
        self._wake()

    def close(self) -> None:
        """Listen no longer."""
        self._listeners.remove(self._wake)
