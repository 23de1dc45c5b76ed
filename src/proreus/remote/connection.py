"""HTTP to one process on this machine; the bodies are opaque here.

Plain HTTP authenticates nobody. Hence only a Unix socket, whose file has an owner and a mode, or
the loopback interface are allowed.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import aiohttp

from proreus.base.errors import ConfigError, ProreusError
from proreus.remote.wire import BadResponse, ErrorResponse, decode

ALLOWED = "unix:///path/to/socket or http://127.0.0.1:port"

_JSON = {"Content-Type": "application/json", "User-Agent": "proreus"}
_MOST_TEXT = 500
_MOST_BYTES = 64 * 2**20
"""Far more than any response needs: scores of a million nodes take an eighth of it."""
_IDLE_SECONDS = 60.0


class NoResponse(ProreusError):
    """The process was not reached, or did not respond in time."""


class OutOfSync(ProreusError):
    """The process lacks the arguments or nodes that a request refers to (409): send them again."""


def address_problem(address: str) -> str | None:
    """Return why a plugin cannot have an address, or None if it can."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        return f"{address}: {error}, allowed are {ALLOWED}"
    if parts.query or parts.fragment or parts.username:
        return f"{address}: must be an address only, allowed are {ALLOWED}"
    if parts.scheme == "unix" and not parts.netloc and len(parts.path) > 1:
        return None
    if parts.scheme == "http" and port and parts.path in ("", "/") and _is_loopback(parts.hostname):
        return None
    return f"{address}: allowed are {ALLOWED}; plain HTTP does not leave this machine"


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class Connection:
    """Keep-alive connections to one address; raises ``ConfigError`` for an invalid one.

    A request may arrive twice: it is sent again if an idle connection breaks.
    """

    def __init__(self, address: str) -> None:
        problem = address_problem(address)
        if problem is not None:
            raise ConfigError(f"plugin endpoint {problem}")
        self.address = address
        self._parts = urlsplit(address)
        self._base = "http://plugin" if self._parts.scheme == "unix" else address.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def get(self, path: str, seconds: float) -> bytes:
        """Return the body of a 200."""
        return await self._request("GET", path, None, seconds)

    async def post(self, path: str, body: bytes, seconds: float) -> bytes:
        """Return the body of a 200; raises ``NoResponse``, ``OutOfSync``, ``BadResponse``."""
        return await self._request("POST", path, body, seconds)

    async def close(self) -> None:
        """Close all connections for good; requests in progress raise ``NoResponse``."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _request(self, method: str, path: str, body: bytes | None, seconds: float) -> bytes:
        try:
            try:
                return await self._send(method, path, body, seconds)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # An idle connection broke, as after a restart of the process: try a new one.
                return await self._send(method, path, body, seconds)
        except TimeoutError:
            raise NoResponse(f"{path}: no answer within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoResponse(f"{path}: {_reason(error)}") from error

    async def _send(self, method: str, path: str, body: bytes | None, seconds: float) -> bytes:
        if self._closed:
            raise NoResponse(f"{path}: the connection has been closed")
        if self._session is None:
            self._session = self._new_session()
        async with self._session.request(
            method,
            f"{self._base}{path}",
            data=body,
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
        ) as response:
            content = await _body_of(response, path)
        if response.status == 409:
            raise OutOfSync(f"{path}: {_error_in(content)}")
        if response.status != 200:
            raise BadResponse(f"{path}: status {response.status}: {_error_in(content)}")
        return content

    def _new_session(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if self._parts.scheme == "unix":
            connector = aiohttp.UnixConnector(self._parts.path, keepalive_timeout=_IDLE_SECONDS)
        else:
            connector = aiohttp.TCPConnector(keepalive_timeout=_IDLE_SECONDS)
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers=_JSON
        )


async def _body_of(response: aiohttp.ClientResponse, path: str) -> bytes:
    """Return the body; raises ``BadResponse``, and drops the connection, if it is too long."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise BadResponse(f"{path}: the answer has more than {_MOST_BYTES} bytes")
    return bytes(body)


def _error_in(content: bytes) -> str:
    """Return the ``error`` of an error response, or the beginning of its text."""
    try:
        error = decode(content, ErrorResponse).error
    except BadResponse:
        error = ""
    return (error or content.decode("utf-8", "replace").strip())[:_MOST_TEXT] or "without a reason"


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return (error.os_error.strerror or str(error.os_error)).lower()
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without a response"
    return str(error) or type(error).__name__
