"""The apiserver's address and our identity: kubeconfig, service account, ``--master``.

The ``kubernetes`` package reads kubeconfigs, runs exec plugins, does OIDC and reads service
accounts; the result becomes ``Credentials``, which the session reads before each request. What
rotates (service account tokens, token files, files of CAs and client certificates, exec and OIDC
tokens) is read again once a minute, and at once after a 401.
"""

import asyncio
import os
import ssl
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib import request as urllib_request
from urllib.parse import urlsplit

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config, kube_config

from proreus.errors import ConfigError

NOT_CONFIGURED = (
    "invalid configuration: no configuration has been provided, "
    "try setting KUBERNETES_MASTER environment variable"
)
_RECHECK_SECONDS = 60.0
_DEBOUNCE_SECONDS = 1.0
_FIRST_FETCH_SECONDS = 60.0
"""How long an exec plugin may take at the start: it may wait for a person to log in."""

FetchAuthorization = Callable[[bool], Awaitable[str]]
"""Return the Authorization header; True requests a new token even if the old one looks valid."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files; ``verify`` False accepts any server certificate."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


async def _anonymous(_: bool) -> str:
    return ""


@dataclass
class Credentials:
    """An apiserver's address, how to verify it, and how to authenticate.

    ``fetch_seconds``: the time limit of ``fetch``.
    """

    server: str
    tls: TlsFiles = TlsFiles()
    tls_server_name: str | None = None
    proxy: str | None = None
    fetch: FetchAuthorization = _anonymous
    fetch_seconds: float = 10.0
    now: Callable[[], float] = time.monotonic
    _authorization: str | None = field(default=None, init=False, repr=False)
    _fetched_at: float = field(default=0.0, init=False, repr=False)
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)
    _file_stamps: tuple[object, ...] = field(default=(), init=False, repr=False)

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
        except (ConfigError, OSError):
            if self._authorization is None:
                raise
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
        except (ConfigError, OSError):
            return False
        return self._reload_certificates() or self._authorization != old

    async def _fetch(self, force: bool) -> str:
        """Fetch the header; raises ``ConfigError`` if that takes too long."""
        try:
            async with asyncio.timeout(self.fetch_seconds):
                return await self.fetch(force)
        except TimeoutError as error:
            raise ConfigError(
                f"the credentials could not be fetched within {self.fetch_seconds:g} s"
            ) from error

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


async def load(
    kubeconfig: str = "",
    master: str = "",
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Credentials:
    """Return credentials, with kube-scheduler's precedence.

    A kubeconfig (``os.pathsep``-separated paths) if given, its server overridden by ``master``.
    With neither, the service account of the pod we run in, then KUBERNETES_MASTER. Raises
    ``ConfigError`` with a one-sentence message.
    """
    if kubeconfig:
        return await _from_kubeconfig(kubeconfig, master, context, environ)
    if master:
        return _bare(master, environ)
    try:
        return await _from_service_account(environ)
    except kubernetes_config.ConfigException as error:
        # We do run in a pod, and its service account is not mounted: to go on with another
        # apiserver's address would hide that.
        if "KUBERNETES_SERVICE_HOST" in environ:
            raise ConfigError(f"in-cluster configuration: {_first_line(error)}") from error
    if environ.get("KUBERNETES_MASTER"):
        return _bare(environ["KUBERNETES_MASTER"], environ)
    raise ConfigError(NOT_CONFIGURED)


def _bare(server: str, environ: Mapping[str, str]) -> Credentials:
    server = _checked_server(server)
    return Credentials(server, proxy=_proxy_of(server, environ))


def _checked_server(server: str) -> str:
    if "://" not in server:
        server = f"http://{server}"  # as client-go does
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"server: {server!r} must be a URL like https://host:6443")
    return server.rstrip("/")


def _proxy_of(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY choose for the server."""
    if environ is not os.environ:
        return None
    proxies = urllib_request.getproxies()
    parts = urlsplit(server)
    if urllib_request.proxy_bypass(parts.hostname or ""):
        return None
    # Go's net/http never uses a proxy for loopback, whatever NO_PROXY says.
    if parts.hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    return proxies.get(parts.scheme)


async def _from_service_account(environ: Mapping[str, str]) -> Credentials:
    token_file = incluster_config.SERVICE_TOKEN_FILENAME
    loader: Any = incluster_config.InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=token_file,
        cert_filename=incluster_config.SERVICE_CERT_FILENAME,
        environ=environ,
    )
    configuration = _empty_configuration()
    loader.load_and_set(configuration)

    return Credentials(
        configuration.host,
        TlsFiles(ca_file=configuration.ssl_ca_cert),
        proxy=_proxy_of(configuration.host, environ),
        fetch=_token_file(token_file),
    )


def _token_file(path: str) -> FetchAuthorization:
    async def fetch(_: bool) -> str:
        token = Path(path).read_text().strip()  # noqa: ASYNC240 - a small file in memory
        if not token:
            raise ConfigError(f"the token file {path} is empty")
        return f"Bearer {token}"

    return fetch


async def _from_kubeconfig(
    kubeconfig: str, master: str, context: str | None, environ: Mapping[str, str]
) -> Credentials:
    paths = [path for path in kubeconfig.split(kube_config.ENV_KUBECONFIG_PATH_SEPARATOR) if path]
    if not any(map(os.path.exists, map(os.path.expanduser, paths))):
        raise ConfigError(f"kubeconfig: no such file: {kubeconfig}")
    configuration = _empty_configuration()
    try:
        loader: Any = await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
            kubeconfig, context, configuration, persist_config=False
        )
    except kubernetes_config.ConfigException as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {_first_line(error)}") from error
    except OSError as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {error}") from error
    except Exception as error:
        # The loader does not check the types of what it reads: malformed files may raise anything.
        raise ConfigError(
            f"kubeconfig {kubeconfig}: cannot be read: {type(error).__name__}: {_first_line(error)}"
        ) from error

    server = master or str(getattr(loader, "host", "") or environ.get("KUBERNETES_MASTER", ""))
    if not server:
        raise ConfigError(f"kubeconfig {kubeconfig}: the cluster of the context has no server")
    server = _checked_server(server)
    credentials = Credentials(
        server,
        TlsFiles(
            ca_file=configuration.ssl_ca_cert,
            cert_file=configuration.cert_file,
            key_file=configuration.key_file,
            verify=bool(configuration.verify_ssl),
        ),
        tls_server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or _proxy_of(server, environ),
    )
    credentials.fetch = _fetch_of(loader, credentials)
    usual_seconds, credentials.fetch_seconds = credentials.fetch_seconds, _FIRST_FETCH_SECONDS
    try:
        # An exec plugin that cannot run must fail the start, not the first request.
        await credentials.fetch_authorization()
    except (ConfigError, OSError) as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {error}") from error
    credentials.fetch_seconds = usual_seconds
    return credentials


def _fetch_of(loader: Any, credentials: Credentials) -> FetchAuthorization:
    """Return the function that fetches this kubeconfig user's Authorization header."""
    user = loader._user.value if loader._user is not None else {}
    if user.get("tokenFile"):
        base = loader._get_base_path(loader._user.path)
        return _token_file(os.path.join(base, user["tokenFile"]))
    if "exec" not in user and loader.provider is None:
        header = loader.__dict__.get("token", "")

        async def fixed(_: bool) -> str:
            return str(header)

        return fixed

    # The loader keeps the token in attributes of its own: two fetches at once would mix them.
    lock = asyncio.Lock()

    async def fetch(force: bool) -> str:
        async with lock:
            if "exec" in user:
                token = await _from_exec_plugin(loader, force)
                files = loader.__dict__.get("cert_file"), loader.__dict__.get("key_file")
                credentials.tls = replace(credentials.tls, cert_file=files[0], key_file=files[1])
                return token
            if force and loader.provider == kube_config.PROVIDER_TYPE_OIDC:
                await _forced_oidc(loader)
            else:
                await loader._load_authentication()
            return str(loader.token)

    return fetch


async def _from_exec_plugin(loader: Any, force: bool) -> str:
    """Return the token of an exec plugin, run again if it has expired or was rejected."""
    ran = loader.__dict__.get("token") or loader.__dict__.get("cert_file")
    expires = hasattr(loader, "exec_plugin_expiry")
    if force and expires:
        del loader.exec_plugin_expiry
    # A token without expiry is used until the apiserver rejects it (client-go does the same): to
    # run the plugin each minute could open a browser window each minute.
    if force or not ran or expires:
        try:
            done = await loader.load_from_exec_plugin()
        except asyncio.CancelledError as error:
            _kill_processes(error)
            raise
        if not done:
            raise ConfigError("exec: the credential plugin failed, see the log for its error")
    token = str(loader.__dict__.get("token", ""))
    if not token and not loader.__dict__.get("cert_file"):
        raise ConfigError("exec: the credential plugin returned neither token nor certificate")
    return token


def _kill_processes(cancelled: asyncio.CancelledError) -> None:
    """Kill an exec plugin that took too long, or one more process would be left every minute.

    The library has the process in a local variable only, which the traceback leads to.
    """
    for frame, _ in traceback.walk_tb(cancelled.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, asyncio.subprocess.Process) and value.returncode is None:
                with suppress(ProcessLookupError):
                    value.kill()


async def _forced_oidc(loader: Any) -> None:
    provider = loader._user["auth-provider"]
    try:
        await loader._refresh_oidc(provider)
    except kubernetes_config.ConfigException as error:
        raise ConfigError(_first_line(error)) from error
    loader.token = f"Bearer {provider['config']['id-token']}"


def _empty_configuration() -> Configuration:
    # Calling the class returns a copy of a process-wide default; ours must start empty.
    configuration: Configuration = type.__call__(Configuration)
    configuration.api_key = {}
    return configuration


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


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
