"""Opens connections to one server: resolves its name, goes through its proxy, begins TLS.

All that is known here ends with an open transport; requests are ``http_connection``'s concern. The
name is Go's (net.Dialer, http.Transport).
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit

import aiohappyeyeballs
import httptools

from proreus.base.addresses import authority
from proreus.base.errors import ConfigError
from proreus.client.http.http_connection import MOST_HEAD_BYTES

_PORTS = {"http": 80, "https": 443}
_LOOKUP_SECONDS = 10.0
"""For how long the addresses of a name are used again: a start opens twenty connections at once."""
_NEXT_ADDRESS_SECONDS = 0.25
"""Time after which the next address is tried too (RFC 8305)."""

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""An address in the form of ``socket.getaddrinfo``."""


class NotConnected(OSError):
    """No connection could be opened: nothing was sent."""


class Dialer:
    """Opens connections to the server of a URL, through an HTTP proxy where ``proxy`` is its URL.

    ``tls`` returns the context for a new connection, None for plain text. Raises ``ConfigError``
    for a proxy of another kind, and for a URL that leads nowhere.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        server_hostname: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self._host, self._port = host_and_port(urlsplit(server))
        self._tls = tls
        self._server_hostname = _name_in_certificate(server_hostname or self._host)
        self._proxy = _parse_proxy(proxy) if proxy else None
        self._lookup = _Lookup(*(host_and_port(self._proxy) if self._proxy else self.address))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server."""
        return self._host, self._port

    @property
    def proxy_authorization(self) -> bytes:
        """The header line that a proxy with a password asks for, otherwise nothing."""
        authorization = basic_authorization(self._proxy) if self._proxy else ""
        return f"Proxy-Authorization: {authorization}\r\n".encode() if authorization else b""

    async def connect(
        self, new_protocol: Callable[[], ProtocolT], timeout_seconds: float
    ) -> ProtocolT:
        """Return the protocol of a new connection; raises ``NotConnected``."""
        try:
            async with asyncio.timeout(timeout_seconds):
                tls = self._tls()
                if self._proxy is None:
                    return await self._connect(new_protocol, tls, self._server_hostname)
                return await self._connect_through(self._proxy, new_protocol, tls)
        except TimeoutError as error:
            raise NotConnected(f"timed out after {timeout_seconds:g} s") from error
        except NotConnected:
            raise
        # ssl.SSLError is an OSError; a name that no server can have is a ValueError, of which
        # UnicodeError is one.
        except (OSError, ValueError) as error:
            raise NotConnected(str(error) or type(error).__name__) from error

    async def _connect(
        self, new_protocol: Callable[[], ProtocolT], tls: ssl.SSLContext | None, name: str
    ) -> ProtocolT:
        """Connect to the proxy if there is one, otherwise to the server."""
        loop = asyncio.get_running_loop()
        name_to_verify = name if tls is not None else None
        addresses = await self._lookup.addresses()
        if len(addresses) > 1:
            opened = await _connect_to_one(addresses)
            _, protocol = await loop.create_connection(
                new_protocol, sock=opened, ssl=tls, server_hostname=name_to_verify
            )
        else:
            host, port = addresses[0][4][:2]
            _, protocol = await loop.create_connection(
                new_protocol, host, port, ssl=tls, server_hostname=name_to_verify
            )
        return protocol

    async def _connect_through(
        self, proxy: SplitResult, new_protocol: Callable[[], ProtocolT], tls: ssl.SSLContext | None
    ) -> ProtocolT:
        proxy_tls, proxy_name = None, _name_in_certificate(host_and_port(proxy)[0])
        if proxy.scheme == "https":
            # As Go's http.Transport has it: the same CAs for both, and the same certificate.
            proxy_tls = tls or self._default_tls
        if tls is None:
            return await self._connect(new_protocol, proxy_tls, proxy_name)
        tunnel = await self._connect(_Tunnel, proxy_tls, proxy_name)
        try:
            await tunnel.open(authority(*self.address).encode(), self.proxy_authorization)
            return await self._begin_tls(tunnel, new_protocol(), tls)
        except BaseException:
            tunnel.close()
            raise

    async def _begin_tls(
        self, tunnel: _Tunnel, protocol: ProtocolT, tls: ssl.SSLContext
    ) -> ProtocolT:
        try:
            # uvloop's transports do not inherit from asyncio.Transport; they are duck-typed.
            transport = await asyncio.get_running_loop().start_tls(
                cast(asyncio.Transport, tunnel.transport),
                protocol,
                tls,
                server_hostname=self._server_hostname,
            )
        except (TypeError, AttributeError) as error:
            # asyncio's own, until Python 3.12.2, where the handshake fails within a proxy's TLS.
            failure = error.__context__ or error
            raise NotConnected(str(failure) or type(failure).__name__) from error
        # The tunnel ended meanwhile: asyncio returns no transport then, uvloop one that is closed.
        if transport is None or transport.is_closing():
            raise NotConnected("the proxy closed the connection")
        protocol.connection_made(transport)
        return protocol

    @cached_property
    def _default_tls(self) -> ssl.SSLContext:
        """For an HTTPS proxy of a plain-text server. To read the system's CAs takes long."""
        return ssl.create_default_context()


class _Lookup:
    """The addresses of a name, looked up once for connections that are opened together."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._found: asyncio.Task[list[AddressInfo]] | None = None
        self._valid_until = 0.0

    async def addresses(self) -> list[AddressInfo]:
        """Return at least one address; raises ``OSError``."""
        family = _family_of_literal(self._host)
        if family is not None:
            return [(family, socket.SOCK_STREAM, 0, "", (self._host, self._port))]
        loop = asyncio.get_running_loop()
        lookup = self._found
        if lookup is None or (lookup.done() and not self._is_valid(lookup, loop.time())):
            lookup = self._found = loop.create_task(self._resolve())
            lookup.add_done_callback(_retrieve_exception)
        # Shielded: one connection that is given up must not end the lookup for all others.
        return await asyncio.shield(lookup)

    def _is_valid(self, lookup: asyncio.Task[list[AddressInfo]], now: float) -> bool:
        failed = lookup.cancelled() or lookup.exception() is not None
        return not failed and now < self._valid_until

    async def _resolve(self) -> list[AddressInfo]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        if not found:
            raise OSError(f"{self._host} has no address")
        self._valid_until = loop.time() + _LOOKUP_SECONDS
        return cast(list[AddressInfo], found)


class _Tunnel(asyncio.Protocol):
    """Asks an HTTP proxy for a connection to a server (CONNECT)."""

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def open(self, address: bytes, authorization: bytes) -> None:
        """Return once the proxy is connected to a host:port; raises ``NotConnected``."""
        head = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (address, address, authorization)
        cast(asyncio.WriteTransport, self.transport).write(head)
        code = await self._answered
        if code != 200:
            raise NotConnected(f"the proxy answered HTTP {code}")

    def close(self) -> None:
        """Close the connection to the proxy."""
        if self.transport is not None:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse the proxy's answer."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(NotConnected(f"the proxy's response is not HTTP/1.1: {error}"))
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self._fail(NotConnected("the headers of the proxy's response are too long"))

    def on_headers_complete(self) -> None:
        """Take the status as the answer; later bytes are the server's."""
        code = self._parser.get_status_code()
        if code >= 200 and not self._answered.done():
            self._answered.set_result(code)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail if there is no answer yet."""
        self._fail(NotConnected(f"the proxy closed the connection: {error or 'no answer'}"))

    def _fail(self, error: NotConnected) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)
            self._answered.exception()  # nobody may wait for it any more


def host_and_port(url: SplitResult) -> tuple[str, int]:
    """Return where a URL leads to, a name in ASCII; raises ``ConfigError``."""
    host = _in_ascii(url.hostname or "")
    try:
        return host, url.port or _PORTS[url.scheme]
    except ValueError as error:
        raise ConfigError(
            f"{url.scheme}://{host}: the port must be a number from 1 to 65535"
        ) from error


def host_header(url: SplitResult) -> str:
    """Return host and port as the URL has them, a name in ASCII; raises ``ConfigError``."""
    written = url.netloc.rpartition("@")[2]
    if written.isascii():
        return written
    host, colon, port = written.partition(":")
    return f"{_in_ascii(host)}{colon}{port}"


def _in_ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError as error:
        raise ConfigError(f"{host} is not the name of a server: {error}") from error


def _name_in_certificate(host: str) -> str:
    # A dot at the end tells the resolver not to try search domains; certificates have none.
    return host.removesuffix(".")


def basic_authorization(url: SplitResult) -> str:
    """Return the Authorization that a user and password in a URL stand for, "" without them."""
    if url.username is None:
        return ""
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _parse_proxy(proxy: str) -> SplitResult:
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError as error:
        raise ConfigError(f"proxy: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(
            f"proxy {parts.scheme}://{parts.hostname or ''}: must be a URL like http://host:3128"
        )
    return parts


async def _connect_to_one(addresses: list[AddressInfo]) -> socket.socket:
    """Return a socket that is connected to the address that answers first."""
    return await aiohappyeyeballs.start_connection(
        cast(Any, addresses), happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, interleave=1
    )


def _family_of_literal(host: str) -> int | None:
    """Return the family of an IP address, None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family
    return None


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Mark an exception as seen, since every waiter may have been cancelled."""
    if not task.cancelled():
        task.exception()
