"""HTTP to one extender: request and response bodies as bytes, errors with the texts of Go's client.

Users see those texts: the error of an extender that is not ignorable becomes the message of the
pod's condition.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import tempfile
from urllib import request as urllib_request
from urllib.parse import urlsplit

import aiohttp

from proreus.base.addresses import authority
from proreus.base.errors import ConfigError, ExtenderError
from proreus.base.logs import logger
from proreus.client.credentials.credentials import stamp_of
from proreus.client.http.http_get import read_body
from proreus.client.http.request_headers import JSON, user_agent
from proreus.config.types import Extender, ExtenderTLSConfig
from proreus.engine.extenders.extender import ExtenderUnreachable, status_error

log = logger(__name__)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_IDLE_SECONDS = 90.0
_REDIRECTS = 10
_TIMES_THE_REQUEST = 4
_MORE_BYTES = 64 * 1024 * 1024
"""The limit of an answer: the nodes of the request, and texts about each."""
_LOOK_AT_FILES_SECONDS = 60.0


class Transport:
    """The connections to one extender.

    Raises ``ConfigError`` for an address that is none, and for TLS options that do not work.
    """

    def __init__(self, config: Extender) -> None:
        self._base = config.url_prefix.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=config.http_timeout_seconds)
        tls = config.tls_config or ExtenderTLSConfig()
        self._config = config
        self._files = [file for file in (tls.ca_file, tls.cert_file, tls.key_file) if file]
        self._stamp = stamp_of(self._files)
        self._next_look = 0.0
        self._tls = tls_context(config)
        self._server_name = (config.tls_config and config.tls_config.server_name) or None
        self._proxy = _proxy_of(self._base)
        self._session: aiohttp.ClientSession | None = None
        self._retired: list[tuple[float, aiohttp.ClientSession]] = []
        """Sessions with older TLS files, and since when; requests may be under way on them."""

    async def post(self, verb: str, body: bytes, *, repeatable: bool = True) -> bytes:
        """Return the body of a 200; raises ``ExtenderError``, ``ExtenderUnreachable`` when none
        came.

        ``repeatable``: may be sent again when an idle connection broke under it.
        """
        url = f"{self._base}/{verb}"
        try:
            try:
                response = await self._send(url, body)
            except aiohttp.ServerDisconnectedError:
                # The extender closed an idle connection at the moment of use; Go retries this too.
                if not repeatable:
                    raise
                response = await self._send(url, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._next_look = 0.0  # a certificate may have been rotated
            timed_out = isinstance(error, TimeoutError)
            raise ExtenderUnreachable(
                f'Post "{url}": {_go_error_text(error, url)}', timed_out
            ) from error
        try:
            async with response:
                if response.status != 200:
                    raise status_error(verb, url, response.status)
                most = _MORE_BYTES + _TIMES_THE_REQUEST * len(body)
                answer = await read_body(response, most)
        except TimeoutError as error:
            text = "Client.Timeout or context cancellation while reading body"
            raise ExtenderUnreachable(f"context deadline exceeded ({text})", True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderUnreachable("unexpected EOF", False) from error
        if answer is None:
            raise ExtenderError(
                f"failed {verb} with extender at URL {url}, the body has more than {most} bytes"
            )
        return answer

    async def close(self) -> None:
        """Close all connections."""
        self._retire_session()
        await self._close_retired(float("inf"))

    def _retire_session(self) -> None:
        if self._session is not None:
            self._retired.append((asyncio.get_running_loop().time(), self._session))
            self._session = None

    async def _close_retired(self, before: float) -> None:
        """Close the sessions that were retired before an instant."""
        retired = self._retired
        self._retired = [one for one in retired if one[0] >= before]
        for since, session in retired:
            if since < before:
                await session.close()

    async def _renew_tls(self) -> None:
        """Use TLS files that have changed, for new connections."""
        now = asyncio.get_running_loop().time()
        if not self._files or now < self._next_look:
            return
        self._next_look = now + _LOOK_AT_FILES_SECONDS
        # Files that are written in steps may be taken twice in a second, so that a session is
        # closed only when each request on it has ended or timed out.
        await self._close_retired(now - self._config.http_timeout_seconds)
        stamp = stamp_of(self._files)
        if stamp == self._stamp:
            return
        try:
            self._tls = tls_context(self._config)
        except ConfigError as error:
            # Half written, maybe: tried again at the next look.
            log.warning("Keeping the TLS files of an extender", extender=self._base, err=error)
            return
        self._stamp = stamp
        self._retire_session()

    async def _send(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        await self._renew_tls()
        # Not in __init__, which may run before there is an event loop.
        if self._session is None:
            self._session = self._new_session()
        return await self._session.post(
            url,
            data=body,
            proxy=self._proxy,
            server_hostname=self._server_name,
            max_redirects=_REDIRECTS,
        )

    def _new_session(self) -> aiohttp.ClientSession:
        # No limit here: bindings are bounded by the scheduler, everything else comes one by one.
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=_IDLE_SECONDS,
            ssl=self._tls if self._tls is not None else True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Content-Type": JSON,
                "User-Agent": user_agent(),
                "Accept-Encoding": "gzip",
            },
            timeout=self._timeout,
        )


# ---- TLS -----------------------------------------------------------------------------------------


def tls_context(config: Extender) -> ssl.SSLContext | None:
    """Return the TLS context for an extender; None for Go's defaults: the system's CAs.

    ``enableHTTPS`` without a CA turns verification off, as in kube-scheduler.
    """
    tls = config.tls_config or ExtenderTLSConfig()
    ca = _pem(tls.ca_data, tls.ca_file)
    insecure = tls.insecure or (config.enable_https and not ca)
    if ca and insecure:
        raise ConfigError(
            "specifying a root certificates file with the insecure flag is not allowed"
        )
    certificate, key = _pem(tls.cert_data, tls.cert_file), _pem(tls.key_data, tls.key_file)
    if not (ca or insecure or tls.server_name or (certificate and key)):
        return None
    context = _context_of(ca)
    # From Python 3.13 on the default wants extensions that cluster CAs often lack; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate and key:
        _load_key_pair(context, certificate, key)
    return context


def _pem(data: bytes, file: str) -> bytes:
    """Return the given data, or else the content of the file."""
    if data or not file:
        return data
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise ConfigError(f"open {file}: {(error.strerror or str(error)).lower()}") from error


def _context_of(ca: bytes) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca.decode("latin-1") if ca else None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            "unable to load root certificates: unable to parse bytes as PEM block"
        ) from error


def _load_key_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Take a client certificate; OpenSSL reads both from one file alone."""
    with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
        file.write(certificate + b"\n" + key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"tls: the client certificate and its key: {error}") from error


def _proxy_of(url: str) -> str | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY choose; none on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f'extender with urlPrefix "{url}": {error}') from None
    host = parts.hostname or ""
    if host in _LOOPBACK or urllib_request.proxy_bypass(host):
        return None
    return urllib_request.getproxies().get(parts.scheme)


# ---- errors --------------------------------------------------------------------------------------


def _go_error_text(error: Exception, url: str) -> str:
    match error:
        case TimeoutError():
            return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        case aiohttp.ClientConnectorCertificateError():
            return f"tls: failed to verify certificate: {_certificate_problem(error)}"
        case aiohttp.ClientConnectorDNSError():
            return f"dial tcp: lookup {error.host}: no such host"
        case aiohttp.ClientConnectorError():
            address = authority(str(error.host), error.port)
            return f"dial tcp {address}: connect: {_strerror(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case aiohttp.NonHttpUrlClientError() | aiohttp.InvalidURL():
            return f'unsupported protocol scheme "{urlsplit(url).scheme}"'
        case aiohttp.TooManyRedirects():
            return f"stopped after {_REDIRECTS} redirects"
        case OSError() if error.errno:
            return f"read tcp: read: {_strerror(error)}"
    return str(error) or type(error).__name__


def _certificate_problem(error: aiohttp.ClientConnectorCertificateError) -> str:
    problem = error.certificate_error
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"x509: {problem.verify_message}"
    return str(problem)


def _strerror(error: OSError) -> str:
    """Return the system's text for an error, in Go's spelling."""
    number = error.errno
    # Without a number, several addresses were tried, and the text has the reasons of all.
    if not number:
        number = errno.ECONNREFUSED if "refused" in str(error).lower() else 0
    return os.strerror(number).lower() if number else str(error)
