"""The embedded cluster as one object: store, apiserver, fake kubelets, kubeconfig (ADR 0011)."""

import asyncio
import base64
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from proreus.base.addresses import authority
from proreus.base.clock import Clock
from proreus.workbench.sandbox.cluster import make_nodes
from proreus.workbench.sandbox.http import HttpServer, make_server_context
from proreus.workbench.sandbox.kubelet import KubeletOptions, Kubelets
from proreus.workbench.sandbox.metrics_server import DEFAULT_SHARE, FakeMetricsServer
from proreus.workbench.sandbox.reviews import Users
from proreus.workbench.sandbox.server import ApiServer
from proreus.workbench.sandbox.store import DEFAULT_HISTORY_BYTES, Store
from proreus.workbench.sandbox.strategies import STRATEGIES

JsonObject = dict[str, Any]

ADMINISTRATOR = "sandbox-admin"


@dataclass(frozen=True)
class ListenOptions:
    """Options of a sandbox: the address and the behaviour of its API.

    ``port`` and ``secure_port``: for HTTP and HTTPS, 0 for any free port. ``tls``: whether to serve
    HTTPS at all; kubectl needs it, since it sends no token over plain HTTP. ``token``: the bearer
    token that requests must have; random if empty. ``bookmark_seconds``: how often watches get a
    bookmark.
    """

    host: str = "127.0.0.1"
    port: int = 0
    secure_port: int = 0
    tls: bool = True
    token: str = ""
    bookmark_seconds: float = 60.0


class Sandbox:
    """A cluster inside this process: ``async with Sandbox(nodes=100) as sandbox``.

    Inside the block the API is served at ``url`` (HTTP) and ``secure_url`` (HTTPS, with a
    certificate that the kubeconfig trusts) for requests with the bearer token ``token``. ``store``
    is the content of the cluster, for reading and writing without a network. Fake kubelets run the
    pods of all nodes.

    ``nodes``: how many (see ``cluster.make_nodes``, also for ``zones``), or Node objects.
    ``kubelet``: None for a cluster whose nodes run nothing. ``history_bytes``: see ``Store``.
    ``usage_share``: the fraction of its requests that a running pod uses, according to
    metrics.k8s.io. Entering the block raises ``OSError`` when an address cannot be bound.
    """

    def __init__(
        self,
        nodes: int | Iterable[JsonObject] = 0,
        *,
        zones: int = 3,
        kubelet: KubeletOptions | None = KubeletOptions(),  # noqa: B008 - frozen
        listen: ListenOptions = ListenOptions(),
        clock: Clock | None = None,
        history_bytes: int = DEFAULT_HISTORY_BYTES,
        usage_share: float = DEFAULT_SHARE,
    ) -> None:
        self.token = listen.token or secrets.token_urlsafe(24)
        self.store = Store(STRATEGIES, clock, history_bytes)
        usage = FakeMetricsServer(self.store, usage_share)
        self.api = ApiServer(self.store, Users({self.token: ADMINISTRATOR}), usage)
        self.url = ""
        self.secure_url = ""
        self._http = HttpServer(self.api, listen.bookmark_seconds)
        self._listen = listen
        self._certificate = b""
        self._timer: asyncio.TimerHandle | None = None
        self.kubelets = None if kubelet is None else Kubelets(self.store, kubelet)
        for node in make_nodes(nodes, zones=zones) if isinstance(nodes, int) else nodes:
            self.store.create("nodes", node)

    async def __aenter__(self) -> Self:
        """Start the servers and the kubelets."""
        listen = self._listen
        number = await self._http.listen(listen.host, listen.port)
        self.url = f"http://{authority(listen.host, number)}"
        if listen.tls:
            context, self._certificate = make_server_context(listen.host)
            number = await self._http.listen(listen.host, listen.secure_port, context)
            self.secure_url = f"https://{authority(listen.host, number)}"
        self._publish_client_ca()
        if self.kubelets is not None:
            self.kubelets.start()
        self._expire_events()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the kubelets, end the watches, stop listening."""
        if self._timer is not None:
            self._timer.cancel()
        if self.kubelets is not None:
            await self.kubelets.stop()
        await self._http.close()

    def _publish_client_ca(self) -> None:
        """Create the ConfigMap in which schedulers look up the CA of client certificates.

        Nobody has one here, so it is the certificate of the sandbox itself.
        """
        name, namespace = "extension-apiserver-authentication", "kube-system"
        if self.store.collection("configmaps").get(name, namespace) is None:
            data = {"client-ca-file": self._certificate.decode()} if self._certificate else {}
            self.store.create("configmaps", {"metadata": {"name": name}, "data": data}, namespace)

    def _expire_events(self) -> None:
        self.store.expire_events()
        self._timer = asyncio.get_running_loop().call_later(60.0, self._expire_events)

    def compact(self) -> None:
        """Drop the history and unfinished paged lists: watches that resume get 410."""
        self.store.compact()
        self.api.lists.forget()

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig with the contexts ``sandbox`` (HTTPS) and ``sandbox-http``."""
        clusters: dict[str, JsonObject] = {}
        if self.secure_url:
            authority = base64.b64encode(self._certificate).decode()
            clusters["sandbox"] = {
                "server": self.secure_url,
                "certificate-authority-data": authority,
            }
        clusters["sandbox-http"] = {"server": self.url}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": entry} for name, entry in clusters.items()],
            "users": [{"name": ADMINISTRATOR, "user": {"token": self.token}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": ADMINISTRATOR}}
                for name in clusters
            ],
            "current-context": next(iter(clusters)),
        }

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Write the kubeconfig, readable by its owner only, and return its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            yaml.safe_dump(self.kubeconfig(), file, sort_keys=False)
        return path
