"""A reverse proxy between schedulers and the apiserver that breaks requests as told.

It ends TLS with the apiserver's certificate, on a port for each scheduler, so that it knows who
sent a request. It runs in a thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from fault_run import request_faults as kinds
from fault_run import steps
from fault_run.record import RequestRecord
from fault_run.request_faults import FaultSource, RequestFault, refusal_body
from fault_run.watch_relay import WatchRelay

_FORWARDED = ("Authorization", "Content-Type", "Accept", "User-Agent")
_LONGEST_LINE_BYTES = 2**24


@dataclass
class Trap:
    """Calls ``spring`` once, at a step: before the request is passed on, or after its answer."""

    step: str
    after: bool
    spring: Callable[[str], None]
    """Takes the name of the instance that sent the request."""
    sprung: bool = False


class FaultProxy:
    """Relays to ``server``; ``pki`` holds apiserver.crt and apiserver.key."""

    def __init__(self, server: str, pki: Path, faults: FaultSource, record: RequestRecord) -> None:
        self._server = URL(server)
        self._faults = faults
        self._record = record
        self._traps: list[Trap] = []
        self._upstream_tls = ssl.create_default_context(cafile=str(pki / "apiserver.crt"))
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
        self._loop = asyncio.new_event_loop()
        self._session: aiohttp.ClientSession | None = None
        self._runners: list[web.ServerRunner] = []
        self._late: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        # a connection that is cut raises in the handler; that is no news here
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
        self._thread.start()

    def listen(self, instance: str) -> str:
        """Return the URL of a new port for one scheduler."""
        return asyncio.run_coroutine_threadsafe(self._listen(instance), self._loop).result(10)

    def set_trap(self, trap: Trap) -> None:
        """Set a trap; it is removed when it springs."""
        self._traps.append(trap)

    def clear_traps(self) -> int:
        """Remove all traps, and return how many there were."""
        count = len(self._traps)
        self._traps.clear()
        return count

    def close(self) -> None:
        """Stop serving."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self, instance: str) -> str:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._upstream_tls)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                auto_decompress=False,
                # Watches are relayed line by line; a kube-apiserver of 1.37 would compress them.
                skip_auto_headers=("Accept-Encoding",),
                read_bufsize=_LONGEST_LINE_BYTES,
            )

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(instance, request)

        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        return f"https://127.0.0.1:{runner.addresses[0][1]}"

    async def _close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        if self._session is not None:
            await self._session.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _handle(self, instance: str, request: web.BaseRequest) -> web.StreamResponse:
        url = self._server.join(URL(request.raw_path, encoded=True))
        watch = request.query.get("watch") in ("true", "1")
        step = steps.step_of(request.method, url.path, watch)
        arrived = time.monotonic()
        body = await request.read()
        self._record.arrived(instance, step, url.path, arrived)
        exchange = _Exchange(instance, step, request, url, body, arrived)
        trap = self._sprung(step, after=False)
        if trap is not None:
            trap.spring(instance)
        fault = self._faults.for_request(step)
        try:
            return await self._answer(exchange, fault)
        except (aiohttp.ClientError, OSError):
            if step == steps.LEASE and request.method != "GET":
                self._record.lease_unknown()
            return _cut(request)

    def _sprung(self, step: str, *, after: bool) -> Trap | None:
        for trap in self._traps:
            if trap.step == step and trap.after == after:
                self._traps.remove(trap)
                trap.sprung = True
                return trap
        return None

    async def _watch(self, exchange: _Exchange) -> web.StreamResponse:
        @contextlib.asynccontextmanager
        async def open_watch(url: URL) -> AsyncIterator[aiohttp.ClientResponse]:
            assert self._session is not None
            async with self._session.get(url, headers=exchange.headers) as upstream:
                yield upstream

        relay = WatchRelay(
            exchange.url,
            open_watch,
            self._faults,
            lambda: self._record.holder == exchange.instance,
        )
        return await relay.run(exchange.request)

    async def _answer(self, exchange: _Exchange, fault: RequestFault | None) -> web.StreamResponse:
        if fault is not None:
            self._faults.count(fault)
            answered = await self._instead(exchange, fault)
            if answered is not None:
                return answered
        if exchange.step == steps.WATCH:
            return await self._watch(exchange)
        status, body, content_type = await self._forward(exchange)
        if fault is not None and fault.kind == kinds.LOST_ANSWER:
            return _cut(exchange.request)
        if fault is not None and fault.kind == kinds.HALF_ANSWER:
            return await _half(exchange.request, status, body, content_type)
        return web.Response(status=status, body=body, headers={"Content-Type": content_type})

    async def _instead(self, exchange: _Exchange, fault: RequestFault) -> web.StreamResponse | None:
        """Return what is answered instead of passing the request on, None to pass it on."""
        if fault.kind == kinds.CUT:
            return _cut(exchange.request)
        if fault.kind == kinds.LATE:
            late = asyncio.create_task(self._forward_late(exchange, fault.seconds))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            return _cut(exchange.request)
        if fault.kind == kinds.DELAY:
            await asyncio.sleep(fault.seconds)
        if fault.kind == kinds.REFUSAL:
            headers = {"Content-Type": "application/json"}
            if fault.status in (429, 503):
                headers["Retry-After"] = "1"
            body = refusal_body(fault.status)
            return web.Response(status=fault.status, body=body, headers=headers)
        if fault.kind in (kinds.PAGE, kinds.PAGE_200):
            status = 200 if fault.kind == kinds.PAGE_200 else 502
            return web.Response(
                status=status, body=kinds.PAGE_BODY, headers={"Content-Type": "text/html"}
            )
        return None

    async def _forward_late(self, exchange: _Exchange, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(aiohttp.ClientError, OSError):
            await self._forward(exchange)

    async def _forward(self, exchange: _Exchange) -> tuple[int, bytes, str]:
        """Pass a request on and return status, body and content type of the answer."""
        assert self._session is not None
        method, url = exchange.request.method, exchange.url
        async with self._session.request(
            method, url, data=exchange.body or None, headers=exchange.headers
        ) as upstream:
            body = await upstream.read()
            status = upstream.status
            content_type = upstream.headers.get("Content-Type", "application/json")
        if exchange.step == steps.LEASE and method != "GET" and status < 300:
            self._record.lease_stored(exchange.instance, exchange.body, exchange.arrived)
        trap = self._sprung(exchange.step, after=True)
        if trap is not None:
            trap.spring(exchange.instance)
        return status, body, content_type


@dataclass(frozen=True)
class _Exchange:
    """A request on its way."""

    instance: str
    step: str
    request: web.BaseRequest
    url: URL
    body: bytes
    arrived: float

    @property
    def headers(self) -> dict[str, str]:
        """The headers to pass on."""
        return {k: v for k in _FORWARDED if (v := self.request.headers.get(k)) is not None}


def _cut(request: web.BaseRequest) -> web.Response:
    """Break the connection; the response that is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


async def _half(
    request: web.BaseRequest, status: int, body: bytes, content_type: str
) -> web.StreamResponse:
    headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
    response = web.StreamResponse(status=status, headers=headers)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    await asyncio.sleep(0.01)  # let the half leave before the connection breaks
    _cut(request)
    return response
