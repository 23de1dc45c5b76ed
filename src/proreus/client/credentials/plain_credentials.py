"""Reads the two usual sources of credentials without the ``kubernetes`` package.

These are a service account, and a kubeconfig that is one file with a token or a client certificate.
Any other kubeconfig (several files, exec plugins, OIDC, a fault) is left to that package.
"""

from __future__ import annotations

import atexit
import base64
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from proreus.base import yaml_limits
from proreus.base.addresses import authority
from proreus.base.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CLUSTER_FIELDS = frozenset(
    (
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "tls-server-name",
    )
)
_USER_FIELDS = frozenset(
    (
        "token",
        "tokenFile",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
    )
)

_temporary_files: dict[bytes, str] = {}
"""Paths of temporary files by their content."""


class PlainCredentials(Struct, frozen=True):
    """The contents of a source. Files are absolute paths or None; ``token_file`` is read
    repeatedly.
    """

    server: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    token: str = ""
    token_file: str = ""
    verify: bool = True
    tls_server_name: str | None = None


def from_service_account(environ: Mapping[str, str]) -> PlainCredentials:
    """Return the credentials of the pod that this process runs in; raises ``ConfigError``."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("in-cluster configuration: Service host/port is not set")
    token, ca_file = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    for what, path in (("token", token), ("certification", ca_file)):
        # To go on with another apiserver's address would hide that it is not mounted.
        try:
            if not path.read_bytes().strip():
                raise ConfigError(f"in-cluster configuration: Service {what} file {path} is empty")
        except OSError as error:
            raise ConfigError(f"in-cluster configuration: Service {what} file: {error}") from error
    server = f"https://{authority(host, port)}"
    return PlainCredentials(server, ca_file=str(ca_file), token_file=str(token))


def from_kubeconfig(path: str, context: str | None) -> PlainCredentials | None:
    """Return the credentials of a context, by default the current one; None if not plain."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            content = file.read()
        config = yaml_limits.load(content)
        folder = os.path.dirname(os.path.abspath(os.path.expanduser(path)))
        chosen = _named(config, "contexts", context or config["current-context"])["context"]
        cluster = _named(config, "clusters", chosen["cluster"])["cluster"]
        user = _named(config, "users", chosen["user"])["user"] or {}
        return _credentials(cluster, user, folder)
    # The file is not checked yet, so unexpected contents may raise anything.
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        return None


def _named(config: dict[str, Any], what: str, name: str) -> dict[str, Any]:
    [found] = [entry for entry in config[what] if entry["name"] == name]
    return dict(found)


def _credentials(
    cluster: dict[str, Any], user: dict[str, Any], folder: str
) -> PlainCredentials | None:
    verify = not cluster.pop("insecure-skip-tls-verify", False)
    texts = [*cluster.values(), *user.values()]
    if not (cluster.keys() <= _CLUSTER_FIELDS and user.keys() <= _USER_FIELDS):
        return None
    if not all(isinstance(text, str) and text for text in texts) or not cluster.get("server"):
        return None
    server = cluster["server"].rstrip("/")
    secure = server.startswith("https")
    files = {
        "ca_file": _file(cluster, "certificate-authority", folder),
        "cert_file": _file(user, "client-certificate", folder),
        "key_file": _file(user, "client-key", folder),
    }
    token_file = user.get("tokenFile", "")
    return PlainCredentials(
        server,
        **(files if secure else {}),
        token=user.get("token", ""),
        token_file=os.path.join(folder, token_file) if token_file else "",
        verify=verify,
        tls_server_name=cluster.get("tls-server-name"),
    )


def _file(entry: dict[str, Any], name: str, folder: str) -> str | None:
    """Return the path of a file, or of a temporary one with the base64 data given instead."""
    if data := entry.get(f"{name}-data"):
        return temporary_file(base64.b64decode(data, validate=True))
    if not (given := entry.get(name)):
        return None
    path = os.path.normpath(os.path.join(folder, given))
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    return path


def temporary_file(content: bytes) -> str:
    """Write a file that is removed at the end of the process: TLS contexts read files only."""
    if content not in _temporary_files:
        if not _temporary_files:
            atexit.register(_remove_temporary_files)
        descriptor, path = tempfile.mkstemp(prefix="proreus-")
        with open(descriptor, "wb") as file:
            file.write(content)
        _temporary_files[content] = path
    return _temporary_files[content]


def remove_temporary_file(path: str) -> None:
    """Remove such a file at once: nobody reads it any more."""
    for content in [one for one, known in _temporary_files.items() if known == path]:
        del _temporary_files[content]
        with suppress(OSError):
            os.unlink(path)


def _remove_temporary_files() -> None:
    for path in _temporary_files.values():
        with suppress(OSError):
            os.unlink(path)
