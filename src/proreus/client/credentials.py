"""Where the apiserver is, and who we are: kubeconfig, service account, ``--master``.

The ``kubernetes`` package reads kubeconfigs, runs exec plugins, speaks OIDC and reads service
accounts; what it yields becomes ``Credentials``, which the session asks before each request.
Secrets that rotate (service account tokens, token files, client certificate files, exec and OIDC
tokens) are looked at again once a minute, and at once after a 401.
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
"""How long a plugin may take at the start, when there may be somebody whom it asks."""

FetchAuthorization = Callable[[bool], Awaitable[str]]
"""Return the Authorization header; True asks for a new token even if the old one looks valid."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files; ``verify`` off takes any server certificate."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


async def _anonymous(_: bool) -> str:
    return ""


@dataclass
class Credentials:
    """An apiserver's address, how to trust it, and how to prove who we are.

    ``fetch_seconds``: how long ``fetch`` may take; what takes longer has failed.
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
    _cert_stamp: tuple[object, ...] = field(default=(), init=False, repr=False)

    def authorization(self) -> str | None:
        """Return the Authorization header ("" for none), or None when it must be fetched first."""
        if self._authorization is None or self.now() - self._fetched_at > _RECHECK_SECONDS:
            return None
        return self._authorization

    async def fetch_authorization(self) -> str:
        """Fetch the header anew; while the source fails, the old one goes on being used."""
        self._fetched_at = self.now()  # so that a slow plugin is not started by every request
        try:
            self._authorization = await self._fetch(False)
        except (ConfigError, OSError):
            if self._authorization is None:
                raise
        self._reload_certificate()
        return self._authorization

    async def refresh(self) -> bool:
        """After a 401, get new secrets; return whether it is worth trying again."""
        if self._authorization and self.now() - self._fetched_at < _DEBOUNCE_SECONDS:
            old = None  # another request has just refreshed them
        else:
            old = self._authorization
        self._fetched_at = self.now()
        try:
            self._authorization = await self._fetch(True)
        except (ConfigError, OSError):
            return False
        return self._reload_certificate() or self._authorization != old

    async def _fetch(self, force: bool) -> str:
        """Fetch the header; raises ``ConfigError`` when that takes too long."""
        try:
            async with asyncio.timeout(self.fetch_seconds):
                return await self.fetch(force)
        except TimeoutError as error:
            raise ConfigError(
                f"the credentials were not to be had within {self.fetch_seconds:g} s"
            ) from error

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the (one) TLS context, or None for a plain-text server."""
        if self._context is None and self.server.startswith("https"):
            self._context = _new_tls_context(self.tls)
            self._cert_stamp = self._stamp()
        return self._context

    def _stamp(self) -> tuple[object, ...]:
        files = [file for file in (self.tls.cert_file, self.tls.key_file) if file]
        return tuple((file, os.stat(file).st_mtime_ns) for file in files)

    def _reload_certificate(self) -> bool:
        """Take a rotated client certificate into use for the connections to come."""
        if self._context is None or not self.tls.cert_file:
            return False
        try:
            stamp = self._stamp()
            if stamp == self._cert_stamp:
                return False
            self._context.load_cert_chain(self.tls.cert_file, self.tls.key_file)
        except (OSError, ssl.SSLError):  # half written: looked at again in a minute
            return False
        self._cert_stamp = stamp
        return True


async def load(
    kubeconfig: str = "",
    master: str = "",
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Credentials:
    """Return credentials by kube-scheduler's precedence.

    A kubeconfig (``os.pathsep``-separated paths) is used when named; ``master`` overrides its
    server. With neither, the service account of the pod we run in; then KUBERNETES_MASTER. Raises
    ``ConfigError`` with one clear sentence.
    """
    if kubeconfig:
        return await _from_kubeconfig(kubeconfig, master, context, environ)
    if master:
        return _bare(master, environ)
    try:
        return await _from_service_account(environ)
    except kubernetes_config.ConfigException as error:
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
        # the loader indexes what it read without looking, so that bad YAML ends in any exception
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
        await credentials.fetch_authorization()  # a plugin that cannot run is told of at the start
    except (ConfigError, OSError) as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {error}") from error
    credentials.fetch_seconds = usual_seconds
    return credentials


def _fetch_of(loader: Any, credentials: Credentials) -> FetchAuthorization:
    """Return how this user's Authorization header is had, again and again."""
    user = loader._user.value if loader._user is not None else {}
    if user.get("tokenFile"):
        base = loader._get_base_path(loader._user.path)
        return _token_file(os.path.join(base, user["tokenFile"]))
    if "exec" not in user and loader.provider is None:
        header = loader.__dict__.get("token", "")

        async def fixed(_: bool) -> str:
            return str(header)

        return fixed

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
    """Run the plugin when its token has expired, or when the token was refused."""
    ran = loader.__dict__.get("token") or loader.__dict__.get("cert_file")
    expires = hasattr(loader, "exec_plugin_expiry")
    if force and expires:
        del loader.exec_plugin_expiry
    # Without an expiry a token serves until it is refused; the plugin may open a browser.
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
    """Kill the plugin that was waited for, or one more would be left every minute.

    The library keeps its process to itself, in a local variable.
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
    # The class hands out copies of a process-wide default when called; ours must start empty.
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
    # From Python 3.13 on the default wants extensions that cluster CAs often lack; Go does not.
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
