"""The pages over plain HTTP and without authentication, on a loopback address only.

For --dashboard-insecure-local: whoever has an account on this machine can read them. The limits for
connections are those of the secure port, of whose process this port is a part.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

from proreus.base import logs
from proreus.base.addresses import authority
from proreus.base.errors import ConfigError
from proreus.server.connections import ConnectionLimits, ConnectionServer
from proreus.server.responses import plain

log = logs.logger(__name__)

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_GRACE_SECONDS = 2.0


def parse_local_address(text: str) -> tuple[str, int]:
    """Return host and port of ``127.0.0.1:10260`` or ``[::1]:10260``.

    Raises ``ConfigError`` where the host is no loopback address.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        loopback = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        loopback = False
    if not colon or not port.isdecimal() or int(port) > 65535 or not loopback:
        raise ConfigError(
            f"--dashboard-insecure-local: {text!r} is not a loopback address with a port, such as "
            "127.0.0.1:10260"
        )
    return host, int(port)


class LocalServer:
    """Serves ``respond`` from ``start`` to ``stop``. ``port`` is the one in use, once it serves."""

    def __init__(self, address: tuple[str, int], respond: Respond) -> None:
        host, self.port = address
        self._host = "127.0.0.1" if host == "localhost" else host
        self._respond = respond
        self._connections: ConnectionServer | None = None
        self._accepting: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address of the pages."""
        return f"http://{authority(self._host, self.port)}"

    async def start(self) -> None:
        """Listen; raises ``ConfigError`` if that fails."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host, self.port), family=family)
        except OSError as error:
            address = authority(self._host, self.port)
            raise ConfigError(f"failed to listen on {address}: {error}") from error
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        limits = ConnectionLimits.within_open_files()
        self._connections = ConnectionServer(self._handle, None, limits)
        self._accepting = asyncio.create_task(self._connections.accept(listener))

    async def stop(self) -> None:
        """Stop listening, and cut responses off after two seconds."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._connections is not None:
            await self._connections.close(_GRACE_SECONDS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # A page of somewhere else can have its name resolve to 127.0.0.1, and would be of the same
        # origin as this one then. The browser still says which name it asked for.
        if not names_loopback(request.headers.get("Host", "")):
            return plain("this page is for 127.0.0.1 and localhost only\n", status=421)
        try:
            return await self._respond(request)
        except ConnectionError:
            raise
        except Exception as error:
            log.error("A page failed", err=error, trace=True, path=request.path)
            return plain("This page failed; the log says why.\n", status=500)


def names_loopback(host: str) -> bool:
    """Return whether the Host header of a request names this machine's loopback interface."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    name = name.removeprefix("[").removesuffix("]")
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
