"""The credentials of one apiserver, as the session reads them before each request.

What rotates (service account tokens, token files, files of CAs and client certificates, exec and
OIDC tokens) is read again once a minute, and at once after a 401. ``credential_loading`` makes
them.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from proreus.errors import ConfigError

logger = logging.getLogger(__name__)

_RECHECK_SECONDS = 60.0
_DEBOUNCE_SECONDS = 1.0

FetchAuthorization = Callable[[bool], Awaitable[str]]
"""Return the Authorization header; True requests a new token even if the old one looks valid."""


class TlsFiles(Struct, frozen=True):
    """Paths of PEM files; ``verify`` False accepts any server certificate."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


_SYSTEM_CAS = TlsFiles()


def not_fetched(seconds: float) -> str:
    """Return what is said of credentials that take too long."""
    return f"the credentials could not be fetched within {seconds:g} s"


async def _anonymous(_: bool) -> str:
    return ""


class Credentials:
    """An apiserver's address, how to verify it, and how to authenticate.

    ``fetch_seconds``: the time limit of ``fetch``.
    """

    def __init__(
        self,
        server: str,
        tls: TlsFiles = _SYSTEM_CAS,
        tls_server_name: str | None = None,
        proxy: str | None = None,
        fetch: FetchAuthorization = _anonymous,
        fetch_seconds: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server
        self.tls = tls
        self.tls_server_name = tls_server_name
        self.proxy = proxy
        self.fetch = fetch
        self.fetch_seconds = fetch_seconds
        self.now = now
        self._authorization: str | None = None
        self._fetched_at = 0.0
        self._context: ssl.SSLContext | None = None
        self._file_stamps: tuple[object, ...] = ()
        self._fault = ""

    def authorization(self) -> str | None:
        """Return the Authorization header ("" for none), or None if it must be fetched first."""
        if self._authorization is None or self.now() - self._fetched_at > _RECHECK_SECONDS:
            return None
        return self._authorization

    async def fetch_authorization(self) -> str:
        """Fetch the header again; while its source fails, the old one remains in use."""
        # Before the fetch: requests that come while a slow exec plugin runs must use the old token
        # and not start the plugin again, once each.
        self._fetched_at = self.now()
        try:
            self._authorization = await self._fetch(False)
            self._fault = ""
        except (ConfigError, OSError) as error:
            if self._authorization is None:
                raise
            self._report(error)
        self._reload_certificates()
        return self._authorization

    async def refresh(self) -> bool:
        """Get new secrets after a 401; return whether the request is worth repeating."""
        # Another request has just refreshed them: this 401 was for the old token, so that even an
        # unchanged result of this fetch is worth a second request.
        if self._authorization and self.now() - self._fetched_at < _DEBOUNCE_SECONDS:
            old = None
        else:
            old = self._authorization
        self._fetched_at = self.now()
        try:
            self._authorization = await self._fetch(True)
            self._fault = ""
        except (ConfigError, OSError) as error:
            self._report(error)
            return False
        return self._reload_certificates() or self._authorization != old

    async def _fetch(self, force: bool) -> str:
        """Fetch the header; raises ``ConfigError`` if that takes too long, or if it is none."""
        try:
            async with asyncio.timeout(self.fetch_seconds):
                header = await self.fetch(force)
        except TimeoutError as error:
            raise ConfigError(not_fetched(self.fetch_seconds)) from error
        # A line break, at the end of a decoded Secret for example, would begin another header.
        if not header.isprintable():
            raise ConfigError("the token has characters that no HTTP header may have")
        return header

    def _report(self, error: Exception) -> None:
        """Log that credentials could not be fetched, once until that changes."""
        if self._fault != str(error):
            self._fault = str(error)
            logger.warning("%s: the credentials are not renewed: %s", self.server, error)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a plain-text server.

        It is one object for both connection pools, and a rotated certificate is loaded into it.
        """
        if self._context is None and self.server.startswith("https"):
            self._context = _new_tls_context(self.tls)
            self._file_stamps = self._stamp()
        return self._context

    def _stamp(self) -> tuple[object, ...]:
        tls = self.tls
        files = [file for file in (tls.ca_file, tls.cert_file, tls.key_file) if file]
        return tuple((file, os.stat(file).st_mtime_ns) for file in files)

    def _reload_certificates(self) -> bool:
        """Load CAs and a client certificate that have been rotated; return whether any were.

        New connections use them; open ones keep those of their handshake. CAs are added: one that
        has been replaced stays trusted until the process ends.
        """
        if self._context is None:
            return False
        try:
            stamp = self._stamp()
            if stamp == self._file_stamps:
                return False
            if self.tls.ca_file:
                self._context.load_verify_locations(cafile=self.tls.ca_file)
            if self.tls.cert_file:
                self._context.load_cert_chain(self.tls.cert_file, self.tls.key_file)
        except (OSError, ssl.SSLError):
            # Half written, or the key is not there yet. The stamp stays the old one, so that the
            # files are tried again in a minute.
            return False
        self._file_stamps = stamp
        return True


def _new_tls_context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the CA certificates in {files.ca_file}: {error}") from error
    # From Python 3.13 on the default requires extensions that cluster CAs often lack; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.cert_file:
        try:
            context.load_cert_chain(files.cert_file, files.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the client certificate {files.cert_file}: {error}") from error
    return context
