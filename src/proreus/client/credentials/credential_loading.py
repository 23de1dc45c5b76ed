"""Loads credentials: kubeconfig, service account, ``--master``.

There are two ways to ``Credentials``. ``plain_credentials`` reads the usual sources, a service
account and a kubeconfig of one file with a token or a client certificate. The ``kubernetes``
package does the rest: it merges files, does OIDC, runs exec plugins, and names the fault in a
kubeconfig. It is imported for these alone, since it takes 0.33 s of CPU.
"""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib import request as urllib_request
from urllib.parse import urlsplit

from msgspec.structs import replace

from proreus.base.errors import ConfigError
from proreus.base.logs import named_error_text
from proreus.client.credentials import plain_credentials
from proreus.client.credentials.credentials import (
    Credentials,
    FetchAuthorization,
    TlsFiles,
    not_fetched,
    stamp_of,
)
from proreus.client.credentials.exec_plugin import ExecCredentialStatus, ExecPlugin
from proreus.client.credentials.plain_credentials import (
    PlainCredentials,
    remove_temporary_file,
    temporary_file,
)

NOT_CONFIGURED = (
    "invalid configuration: no configuration has been provided, "
    "try setting KUBERNETES_MASTER environment variable"
)
_FIRST_FETCH_SECONDS = 60.0
"""Time limit of an exec plugin at the start, when it may wait for a person to log in."""


class NoKubeconfig(ConfigError):
    """There is no kubeconfig, or none of that name; the caller knows how it is named."""


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
    files = _paths_of(kubeconfig)
    again = partial(_load_once, kubeconfig, master, context=context, environ=environ)
    # Before it is read: a file that changes meanwhile is read again.
    stamp = stamp_of(files)
    try:
        credentials = await again()
    except ConfigError as error:
        error.file = error.file or kubeconfig
        raise
    if files:
        credentials.load_again_when_changed(files, again, stamp)
    return credentials


async def _load_once(
    kubeconfig: str, master: str, *, context: str | None, environ: Mapping[str, str]
) -> Credentials:
    if kubeconfig:
        paths = _paths_of(kubeconfig)
        plain = plain_credentials.from_kubeconfig(paths[0], context) if len(paths) == 1 else None
        if plain is None:
            return await _from_kubeconfig(kubeconfig, master, context, environ)
    elif master:
        plain = PlainCredentials(master)
    elif "KUBERNETES_SERVICE_HOST" in environ:
        plain = plain_credentials.from_service_account(environ)
    elif environ.get("KUBERNETES_MASTER"):
        plain = PlainCredentials(environ["KUBERNETES_MASTER"])
    else:
        raise NoKubeconfig(NOT_CONFIGURED)
    return await _first_fetched(_from_plain(plain, environ, master), kubeconfig)


def _paths_of(kubeconfig: str) -> list[str]:
    # An empty part of the list is no path (client-go ignores it too).
    return [path for path in kubeconfig.split(os.pathsep) if path]


def _checked_server(server: str) -> str:
    if "://" not in server:
        server = f"http://{server}"  # as client-go does
    try:
        parts = urlsplit(server)
    except ValueError as error:
        raise ConfigError(f"server: {error}") from error
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


def _from_plain(plain: PlainCredentials, environ: Mapping[str, str], master: str) -> Credentials:
    server = _checked_server(master or plain.server)
    header = f"Bearer {plain.token}" if plain.token else ""
    return Credentials(
        server,
        TlsFiles(plain.ca_file, plain.cert_file, plain.key_file, plain.verify),
        tls_server_name=plain.tls_server_name,
        proxy=_proxy_of(server, environ),
        fetch=_token_file(plain.token_file) if plain.token_file else _fixed(header),
    )


def _fixed(header: str) -> FetchAuthorization:
    async def fetch(_: bool) -> str:
        return header

    return fetch


def _token_file(path: str) -> FetchAuthorization:
    async def fetch(_: bool) -> str:
        try:
            token = Path(path).read_text("utf-8").strip()  # noqa: ASYNC240 - in memory
        except UnicodeDecodeError as error:
            raise ConfigError(f"the token file {path} is no text: {error}") from error
        if not token:
            raise ConfigError(f"the token file {path} is empty")
        return f"Bearer {token}"

    return fetch


async def _from_kubeconfig(
    kubeconfig: str, master: str, context: str | None, environ: Mapping[str, str]
) -> Credentials:
    if not any(map(os.path.exists, map(os.path.expanduser, _paths_of(kubeconfig)))):
        raise NoKubeconfig(f"kubeconfig: no such file: {kubeconfig}")
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException

    # Calling the class returns a copy of a process-wide default; ours must start empty.
    configuration: Configuration = type.__call__(Configuration)
    configuration.api_key = {}
    try:
        loader, plugin = _loader_of(kubeconfig, context)
        async with asyncio.timeout(_FIRST_FETCH_SECONDS):
            await loader.load_and_set(configuration)
    except TimeoutError as error:
        text = not_fetched(_FIRST_FETCH_SECONDS)
        raise ConfigError(f"kubeconfig {kubeconfig}: {text}") from error
    except ConfigError as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {error}") from error
    except ConfigException as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {_first_line(error)}") from error
    except OSError as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {error}") from error
    except Exception as error:
        # The loader does not check types, so malformed files may raise anything.
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
    credentials.fetch = _fetch_of(loader, plugin, credentials)
    return await _first_fetched(credentials, kubeconfig)


async def _first_fetched(credentials: Credentials, kubeconfig: str) -> Credentials:
    usual_seconds, credentials.fetch_seconds = credentials.fetch_seconds, _FIRST_FETCH_SECONDS
    try:
        # An exec plugin that cannot run must fail the start, not the first request.
        await credentials.fetch_authorization()
    except (ConfigError, OSError) as error:
        raise ConfigError(f"kubeconfig {kubeconfig}: {error}") from error
    credentials.fetch_seconds = usual_seconds
    return credentials


def _fetch_of(
    loader: Any, plugin: "_PluginOfLoader | None", credentials: Credentials
) -> FetchAuthorization:
    """Return the function that fetches this kubeconfig user's Authorization header."""
    user = loader._user.value if loader._user is not None else {}
    if user.get("tokenFile"):
        base = loader._get_base_path(loader._user.path)
        return _token_file(os.path.join(base, user["tokenFile"]))
    if plugin is None and loader.provider is None:
        return _fixed(str(loader.__dict__.get("token", "")))

    # The loader keeps the token in attributes of its own: two fetches at once would mix them.
    lock = asyncio.Lock()

    async def fetch(force: bool) -> str:
        async with lock:
            if plugin is not None:
                await plugin.load(force)
                files = loader.__dict__.get("cert_file"), loader.__dict__.get("key_file")
                credentials.tls = replace(credentials.tls, cert_file=files[0], key_file=files[1])
                return str(loader.__dict__.get("token", ""))
            try:
                if force and loader.provider == "oidc":
                    await _forced_oidc(loader)
                else:
                    await loader._load_authentication()
            except (ConfigError, OSError):
                raise
            except Exception as error:
                # It raises its own errors, aiohttp's, and errors of unchecked input.
                raise ConfigError(named_error_text(error)) from error
            return str(loader.token)

    return fetch


def _loader_of(kubeconfig: str, context: str | None) -> "tuple[Any, _PluginOfLoader | None]":
    """Return the library's loader of a kubeconfig, and the exec plugin that it runs."""
    from kubernetes.aio.config import kube_config

    merged = kube_config.KubeConfigMerger(kubeconfig)  # type: ignore[no-untyped-call]
    loader: Any = kube_config.KubeConfigLoader(  # type: ignore[no-untyped-call]
        config_dict=merged.config, config_base_path=None, active_context=context
    )
    user = loader._user.value if loader._user is not None else {}
    if "exec" not in user:
        return loader, None
    folder = loader._get_base_path(loader._user.path)
    plugin = _PluginOfLoader(loader, ExecPlugin.of(user["exec"], folder))
    # The library's own would wait for whatever the plugin has started, keep all that it prints, and
    # stop reading its errors until it has ended.
    loader.load_from_exec_plugin = plugin.load
    return loader, plugin


class _PluginOfLoader:
    """An exec plugin whose credentials go into a loader of the library."""

    def __init__(self, loader: Any, plugin: ExecPlugin) -> None:
        self._loader = loader
        self._plugin = plugin
        self._credential: ExecCredentialStatus | None = None
        self._files: list[str] = []
        self._files_before: list[str] = []

    async def load(self, force: bool = False) -> bool:
        """Run the plugin if its credential is not there yet, expires, or was rejected."""
        # One without expiry is used until the apiserver rejects it (client-go does the same): to
        # run the plugin each minute could open a browser window each minute.
        found = self._credential
        if found is None or force or found.expires_soon:
            found = self._credential = await self._plugin.run()
            if found.token:
                self._loader.token = f"Bearer {found.token}"
            if found.client_certificate_data and found.client_key_data:
                self._write(found.client_certificate_data, found.client_key_data)
        return True

    def _write(self, certificate: str, key: str) -> None:
        """Write a certificate and its key; remove older files that have been read long ago."""
        files = [temporary_file(text.encode()) for text in (certificate, key)]
        for path in self._files_before:
            if path not in (*self._files, *files):
                remove_temporary_file(path)
        self._files_before, self._files = self._files, files
        self._loader.cert_file, self._loader.key_file = files


async def _forced_oidc(loader: Any) -> None:
    provider = loader._user["auth-provider"]
    await loader._refresh_oidc(provider)
    loader.token = f"Bearer {provider['config']['id-token']}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
