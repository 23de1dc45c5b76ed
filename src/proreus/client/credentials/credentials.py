"""The credentials of one apiserver, as the session reads them before each request.

All that they come from may be rotated while we run: kubeconfig, CA, client certificate and key,
token file, and what an exec plugin or OIDC returns. One rule serves all: once a minute, after a
connection that failed, and after a 401, the files are looked at, and what has changed is loaded
again. A new certificate or CA makes a new TLS context, and the session then opens new connections:
the apiserver judges the certificate of a connection's handshake at every request on it.
``credential_loading`` makes the credentials.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from proreus.base.errors import ConfigError

logger = logging.getLogger(__name__)

_RECHECK_SECONDS = 60.0
_REFRESH_SECONDS = 1.0
"""Time after a 401 in which further ones load nothing: an exec plugin is a process."""

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
    """Return the error message for credentials that take too long."""
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
        self.version = 0
        """Grows with each change of the Authorization header or of the TLS context."""
        self._authorization: str | None = None
        self._checked_at = self._refreshed_at = -math.inf
        self._context: ssl.SSLContext | None = None
        self._context_of: object = None
        """The files that the context was made of, and their stamps."""
        self._loaded = self
        """The credentials of the last load: ``self``, or newer ones once the kubeconfig has
        changed.
        """
        self._load_again: Callable[[], Awaitable[Credentials]] | None = None
        self._sources: tuple[str, ...] = ()
        self._sources_stamp: object = None
        self._fault = ""

    def load_again_when_changed(
        self, files: Sequence[str], load: Callable[[], Awaitable[Credentials]], stamp: object
    ) -> None:
        """Use the result of ``load`` once one of the files differs from ``stamp``
        (``stamp_of``).
        """
        self._sources, self._load_again, self._sources_stamp = tuple(files), load, stamp

    def authorization(self) -> str | None:
        """Return the Authorization header ("" for none), or None if it must be fetched first."""
        if self._authorization is None or self.now() - self._checked_at > _RECHECK_SECONDS:
            return None
        return self._authorization

    def recheck(self) -> None:
        """Look at the files before the next request: a connection has failed."""
        self._checked_at = -math.inf

    async def fetch_authorization(self) -> str:
        """Fetch the header again; while its source fails, the old one remains in use."""
        # Before the fetch: requests that come while a slow exec plugin runs must use the old token
        # and not start the plugin again, once each.
        self._checked_at = self.now()
        try:
            await self._load(force=False)
        except (ConfigError, OSError) as error:
            if self._authorization is None:
                raise
            self._report(error)
        assert self._authorization is not None
        return self._authorization

    async def refresh(self, used: int) -> bool:
        """Get new secrets after a 401; return whether the request is worth repeating.

        ``used``: the version of the credentials that it was sent with.
        """
        # Another request has refreshed them since.
        if self.version != used:
            return True
        now = self.now()
        if now - self._refreshed_at < _REFRESH_SECONDS:
            return False
        self._checked_at = self._refreshed_at = now
        try:
            await self._load(force=True)
        except (ConfigError, OSError) as error:
            self._report(error)
        return self.version != used

    async def _load(self, *, force: bool) -> None:
        """Load credentials that have changed; ``force`` gets a new token even if the old one looks
        valid.
        """
        sources_read = await self._load_changed_sources()
        try:
            header = await self._fetch(force)
        finally:
            self.tls = self._loaded.tls
            certificates_read = self._renew_tls_context()
        if header != self._authorization:
            self._authorization = header
            self.version += 1
        if sources_read and certificates_read:
            self._fault = ""

    async def _load_changed_sources(self) -> bool:
        """Read the kubeconfig again if it has changed; return False if it cannot be read."""
        stamp = stamp_of(self._sources)
        if self._load_again is None or stamp == self._sources_stamp:
            return True
        try:
            loaded = await self._load_again()
        except (ConfigError, OSError) as error:
            self._report(error)
            return False
        self._sources_stamp = stamp
        self._loaded = loaded
        for name in ("server", "proxy", "tls_server_name"):
            if getattr(loaded, name) != getattr(self, name):
                logger.warning(
                    "%s: the kubeconfig has another %s now, which a restart will use",
                    *(self.server, name),
                )
        return True

    async def _fetch(self, force: bool) -> str:
        """Fetch the header; raises ``ConfigError`` if that takes too long, or if it is none."""
        try:
            async with asyncio.timeout(self.fetch_seconds):
                header = await self._loaded.fetch(force)
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
            logger.warning("%s: cannot renew the credentials: %s", self.server, error)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a plain-text server.

        It is another object once a certificate or CA has changed: connections of an older one are
        not to be used any more.
        """
        if self._context is None and self.server.startswith("https"):
            self._context_of = self._files_with_stamp()
            self._context = _new_tls_context(self.tls)
        return self._context

    def _files_with_stamp(self) -> object:
        tls = self.tls
        return tls, stamp_of([file for file in (tls.ca_file, tls.cert_file, tls.key_file) if file])

    def _renew_tls_context(self) -> bool:
        """Load CAs and a client certificate that have been rotated; return False if that fails."""
        files = self._files_with_stamp()
        if self._context is None or files == self._context_of:
            return True
        try:
            self._context = _new_tls_context(self.tls)
        except ConfigError as error:
            # Half written, or the key is not there yet: tried again at the next look.
            self._report(error)
            return False
        self._context_of = files
        self.version += 1
        logger.info("%s: rotated certificates are in use", self.server)
        return True


def stamp_of(files: Sequence[str]) -> object:
    """Return a value that changes when one of the files is written or replaced."""
    return tuple(map(_stamp_of_one, files))


def _stamp_of_one(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(os.path.expanduser(file))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


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
