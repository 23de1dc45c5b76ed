"""Accepts a limited number of connections to the server, and closes connections that send nothing.

Whoever reaches the port can open connections, before any authentication. Without limits they use up
the file descriptors that the client of the apiserver needs.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from proreus.base import logs
from proreus.base.http_server_log import HTTP_SERVER_LOGGER

log = logs.logger(__name__)

HANDSHAKE_TIMEOUT_SECONDS = 10.0
"""For the TLS handshake: two round trips, over any network."""
IDLE_TIMEOUT_SECONDS = 30.0
"""For a request's headers to arrive, and for the time between two requests.

The apiserver library of kube-scheduler allows 32 and 90 seconds; aiohttp has one timer for both. A
scraper whose interval is longer opens a new connection.
"""
_LEFTOVERS_SECONDS = 0.5
"""Time for the rest of a request that was answered or refused early; then the connection is closed.
The same as in Go's net/http.
"""
_SHUTDOWN_SECONDS = 10.0
_LOG_INTERVAL_SECONDS = 60.0
_ACCEPT_RETRY_SECONDS = 0.5

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of open connections, in all and from one address."""

    total: int = 256
    per_address: int = 32

    @classmethod
    def within_open_files(cls) -> ConnectionLimits:
        """Return limits that leave three quarters of the file descriptors to everything else."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return cls()
        total = max(min(cls.total, soft // 4), 2)
        return cls(total, min(cls.per_address, total // 2))


class _HttpServer(web.Server):
    """aiohttp's server, which also reports the end of each connection."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(
            handler,
            logger=HTTP_SERVER_LOGGER,
            access_log=None,
            keepalive_timeout=IDLE_TIMEOUT_SECONDS,
            lingering_time=_LEFTOVERS_SECONDS,
        )
        self.closed: dict[RequestHandler, asyncio.Event] = {}

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if (closed := self.closed.get(handler)) is not None:
            closed.set()


class ConnectionServer:
    """An accept loop in front of aiohttp, which counts connections from accept to close.

    At a limit the oldest connection is closed to admit the new one: that of the same address, or
    of the address that has most. So a flood displaces itself, and a probe still gets through.
    """

    def __init__(
        self, handler: Handler, context: ssl.SSLContext | None, limits: ConnectionLimits
    ) -> None:
        """``context``: None for plain HTTP."""
        self._http = _HttpServer(handler)
        self._context = context
        self._limits = limits
        # In order of acceptance, by address: each connection is the task that owns it.
        self._connections: dict[str, dict[asyncio.Task[None], None]] = {}
        self._logged_at: dict[str, float] = {}

    @property
    def open_connections(self) -> int:
        """The number of connections, handshakes included."""
        return sum(map(len, self._connections.values()))

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections until cancelled; then close the listener."""
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, peer = await loop.sock_accept(listener)
                except OSError as error:
                    # No file descriptors (EMFILE), or a peer that has gone already.
                    self._warn("Cannot accept a connection", err=str(error))
                    await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                    continue
                address = str(peer[0])
                self._make_room(address)
                task = loop.create_task(self._serve(connection))
                self._connections.setdefault(address, {})[task] = None
                task.add_done_callback(partial(self._ended, address, connection))
                # A full backlog is accepted without a pause in between, and other work would wait.
                await asyncio.sleep(0)

    async def close(self, grace_seconds: float) -> None:
        """Close idle connections at once, the others when their request ends or time is up.

        Half of the time is for requests to end, the other half for those that are cancelled.
        """
        self._http.pre_shutdown()
        # aiohttp waits as long again for a handler that it has cancelled.
        await self._http.shutdown(grace_seconds / 2)
        tasks = [task for tasks in self._connections.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        handler = self._http()
        closed = self._http.closed[handler] = asyncio.Event()
        transport: asyncio.Transport | None = None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: handler,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_SECONDS if self._context else None,
                # A slow client reads what was sent until then. Whatever it sends itself meanwhile,
                # without confirming the end, is decrypted.
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS if self._context else None,
            )
            await closed.wait()
        except (OSError, ssl.SSLError) as error:
            log.v(2).info("A connection ended in its handshake", err=str(error))
        finally:
            if transport is not None:
                transport.abort()
            del self._http.closed[handler]

    def _make_room(self, address: str) -> None:
        """Close the oldest connection where a limit would be exceeded."""
        own = self._connections.get(address, {})
        if len(own) >= self._limits.per_address:
            crowded = address
        elif self.open_connections >= self._limits.total:
            crowded = max(self._connections, key=lambda one: len(self._connections[one]))
        else:
            return
        oldest = next(iter(self._connections[crowded]))
        self._forget(crowded, oldest)
        oldest.cancel()
        self._warn("Too many connections: the oldest is closed", srcIP=crowded)

    def _ended(self, address: str, connection: socket.socket, task: asyncio.Task[None]) -> None:
        # Here rather than in the task: one that is cancelled before its first step closes nothing.
        connection.close()
        self._forget(address, task)

    def _forget(self, address: str, task: asyncio.Task[None]) -> None:
        own = self._connections.get(address, {})
        own.pop(task, None)
        if not own:
            self._connections.pop(address, None)

    def _warn(self, message: str, **pairs: str) -> None:
        """Log at most once a minute, since clients decide how often it happens."""
        now = asyncio.get_running_loop().time()
        if now - self._logged_at.get(message, -_LOG_INTERVAL_SECONDS) >= _LOG_INTERVAL_SECONDS:
            self._logged_at[message] = now
            log.warning(message, **pairs)


_DER = 2  # _ssl.ENCODING_DER
_MOST_CHAINS = 256


class ClientChains:
    """Verified chains by the client's own certificate; the least recently used are dropped.

    They are kept for resumed sessions: such a session was begun with a whole handshake in this
    process, but has only the client's own certificate.
    """

    def __init__(self) -> None:
        self._chains: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()

    def of(self, connection: ssl.SSLObject | None) -> tuple[bytes, ...]:
        """Return the chain (DER) from the client's own certificate to a trusted one.

        Empty if the client sent no certificate. ``getpeercert`` does not return intermediates; that
        they lead from the certificate to a CA was checked in the handshake.
        """
        certificate = None if connection is None else connection.getpeercert(binary_form=True)
        if certificate is None:
            return ()
        chain = _verified_chain(connection)
        if chain:
            self._chains[certificate] = chain
            self._chains.move_to_end(certificate)
            if len(self._chains) > _MOST_CHAINS:
                self._chains.popitem(last=False)
        elif certificate in self._chains:
            self._chains.move_to_end(certificate)
        return self._chains.get(certificate, (certificate,))


def _verified_chain(connection: Any) -> tuple[bytes, ...]:
    if hasattr(connection, "get_verified_chain"):  # Python 3.13
        return tuple(connection.get_verified_chain())
    # Until then the same method is there, but not public.
    chain = connection._sslobj.get_verified_chain() or ()
    return tuple(one.public_bytes(_DER) for one in chain)
