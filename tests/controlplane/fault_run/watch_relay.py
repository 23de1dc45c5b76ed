"""Relays one watch line by line, and breaks it from time to time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web
from yarl import URL

from fault_run import request_faults as kinds
from fault_run.request_faults import FaultSource, RequestFault

Open = Callable[[URL], "contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]"]

_REPEATED_LINES = 20
_VERSIONS_BACK = 200


class WatchRelay:
    """One watch of one client; ``open_watch`` opens a watch at the apiserver.

    ``leads`` returns whether the client holds the Lease.
    """

    def __init__(
        self, url: URL, open_watch: Open, faults: FaultSource, leads: Callable[[], bool]
    ) -> None:
        self._url = url
        self._open = open_watch
        self._faults = faults
        self._leads = leads
        self._latest: deque[bytes] = deque(maxlen=_REPEATED_LINES)
        self._version = 0

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        """Relay until the apiserver, the client or a fault ends it."""
        async with self._open(self._url) as upstream:
            if upstream.status != 200:
                body = await upstream.read()
                return web.Response(status=upstream.status, body=body, headers=_type(upstream))
            response = web.StreamResponse(status=200, headers=_type(upstream))
            response.enable_chunked_encoding()
            await response.prepare(request)
            going_on = await self._relay(upstream, request, response)
        while going_on:  # again from an earlier version, in the same stream
            earlier = self._url.update_query(resourceVersion=str(self._version - _VERSIONS_BACK))
            earlier = earlier.without_query_params("sendInitialEvents", "resourceVersionMatch")
            async with self._open(earlier) as upstream:
                if upstream.status != 200:
                    break
                going_on = await self._relay(upstream, request, response)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _relay(
        self,
        upstream: aiohttp.ClientResponse,
        request: web.BaseRequest,
        response: web.StreamResponse,
    ) -> bool:
        """Relay until the end of the watch; return whether to jump back and go on."""
        lines = _Lines(upstream)
        try:
            while True:
                timeout = self._faults.next_watch_fault_seconds()
                async for line in lines.until(timeout):
                    self._note(line)
                    await response.write(line)
                if lines.ended:
                    return False
                fault = self._faults.for_watch(self._leads())
                if fault is None:
                    continue
                self._faults.count(fault)
                if fault.kind == kinds.JUMP_BACK:
                    return self._version > _VERSIONS_BACK
                if not await self._break(fault, request, response):
                    return False
        except ConnectionError:
            return False
        finally:
            lines.close()

    async def _break(
        self, fault: RequestFault, request: web.BaseRequest, response: web.StreamResponse
    ) -> bool:
        """Do what the fault says; return whether the stream goes on."""
        if fault.kind in (kinds.STALL, kinds.LONG_STALL):
            await self._faults.pause(fault.seconds)
            return True
        if fault.kind == kinds.REPEAT:
            await response.write(b"".join(self._latest))
            return True
        if fault.kind == kinds.CUT_LINE:
            await response.write((self._latest or [b'{"type":'])[-1][:40])
            if request.transport is not None:
                request.transport.abort()
        if fault.kind == kinds.EXPIRED:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "injected"}
            await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
        if fault.kind == kinds.GARBAGE:
            await response.write(kinds.PAGE_BODY + b"\n")
        return False

    def _note(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self._version = int(json.loads(line)["object"]["metadata"]["resourceVersion"])
            self._latest.append(line)


class _Lines:
    """The lines of a response; ``until`` yields those that arrive within some seconds."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.ended = False
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read(response))

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            while line := await response.content.readline():
                self._queue.put_nowait(line)
        self._queue.put_nowait(b"")

    async def until(self, seconds: float) -> AsyncIterator[bytes]:
        """Yield lines for ``seconds``, or until the end of the response."""
        deadline = time.monotonic() + seconds
        while not self.ended:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    line = await self._queue.get()
            except TimeoutError:
                return
            if line:
                yield line
            self.ended = not line

    def close(self) -> None:
        """Stop reading."""
        self._reader.cancel()


def _type(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {"Content-Type": response.headers.get("Content-Type", "application/json")}
