"""A small, fast, blocking client for tests.

Tests put thousands of objects into a cluster and read them back; generated clients spend a
millisecond on each. This one sends plain dicts from a few threads over kept connections. It is not
proreus's client on purpose: what checks proreus must not share its bugs.
"""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml

Json = dict[str, Any]

CONNECTIONS = 16

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiFailure(Exception):
    """An error response; ``status`` is the HTTP status code, ``body`` the Status object."""

    def __init__(self, status: int, method: str, path: str, body: Json) -> None:
        super().__init__(f"{method} {path}: {status} {body.get('message', body)}")
        self.status = status
        self.body = body


class KubeClient:
    """A client of one apiserver, as one user."""

    def __init__(
        self, server: str, *, token: str | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self.server = server.rstrip("/")
        self.token = token
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS, block=True, ssl_context=context, retries=False
        )
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="kube-client")

    @classmethod
    def from_kubeconfig(cls, path: Path) -> KubeClient:
        """Return a client for the current context of a kubeconfig (certificate or token)."""
        config = yaml.safe_load(path.read_text())
        contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
        current = contexts[config["current-context"]]
        cluster = {e["name"]: e["cluster"] for e in config["clusters"]}[current["cluster"]]
        user = {e["name"]: e["user"] for e in config["users"]}[current["user"]]
        with tempfile.TemporaryDirectory() as folder:
            authority = _file_of(cluster, "certificate-authority", folder)
            context = ssl.create_default_context(cafile=authority)
            if certificate := _file_of(user, "client-certificate", folder):
                context.load_cert_chain(certificate, _file_of(user, "client-key", folder))
        return cls(cluster["server"], token=user.get("token"), context=context)

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown(cancel_futures=True)
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_seconds: float = 60,
        **query: str,
    ) -> urllib3.BaseHTTPResponse:
        """Return the raw response, whatever its status; raises OSError when the network fails."""
        url = self.server + path + (f"?{urlencode(query)}" if query else "")
        try:
            return self._pool.request(
                method,
                url,
                body=json.dumps(body) if isinstance(body, dict) else body,
                headers=self._headers | {"Content-Type": content_type, "Accept": accept},
                timeout=timeout_seconds,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {path}: {error}") from error

    @contextmanager
    def stream(self, path: str, **query: str) -> Iterator[urllib3.BaseHTTPResponse]:
        """GET without reading the body, which the caller reads as it arrives."""
        url = f"{self.server}{path}?{urlencode(query)}"
        answer = self._pool.request(
            "GET", url, headers=self._headers, timeout=30, preload_content=False
        )
        try:
            yield answer
        finally:
            answer.close()
            answer.release_conn()

    def call(self, method: str, path: str, body: Json | None = None, **options: Any) -> Json:
        """Return the response's object; raises ApiFailure for a status of 400 or more."""
        answer = self.request(method, path, body, **options)
        try:
            decoded: Json = json.loads(answer.data) if answer.data else {}
        except ValueError:
            decoded = {"message": answer.data.decode(errors="replace")}
        if answer.status >= 400:
            raise ApiFailure(answer.status, method, path, decoded)
        return decoded

    def get(self, path: str, **query: str) -> Json:
        """GET an object."""
        return self.call("GET", path, **query)

    def create(self, path: str, body: Json) -> Json:
        """POST an object to its collection."""
        return self.call("POST", path, body)

    def create_bytes(self, path: str, body: bytes) -> None:
        """POST raw JSON; the response is not decoded, since it may be malformed too."""
        answer = self.request("POST", path, body)
        if answer.status >= 400:
            raise ApiFailure(answer.status, "POST", path, {"message": answer.data[:500]})

    def patch(self, path: str, body: Json, content_type: str = MERGE_PATCH) -> Json:
        """PATCH an object, by default with a merge patch."""
        return self.call("PATCH", path, body, content_type=content_type)

    def delete(self, path: str, body: Json | None = None, **query: str) -> Json:
        """DELETE an object or a collection, which need not exist."""
        try:
            return self.call("DELETE", path, body, **query)
        except ApiFailure as failure:
            if failure.status == 404:
                return {}
            raise

    def list(self, path: str, **query: str) -> list[Json]:
        """Return all items of a collection, read in pages."""
        items: list[Json] = []
        query = {"limit": "2000"} | query
        while True:
            page = self.get(path, **query)
            items += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                return items
            query = query | {"continue": token}

    def count(self, path: str, **query: str) -> int:
        """Return the number of items, without reading all of them."""
        page = self.call("GET", path, accept=METADATA_ONLY, **query)
        return len(page.get("items") or [])

    def in_parallel(self, call: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
        """Return the result of ``call`` for each argument, by threads; raise the first error."""
        return list(self._threads.map(call, arguments))

    def create_all(self, path: str, bodies: Iterable[Json]) -> list[Json]:
        """POST many objects; ``{}`` in ``path`` is replaced by the namespace of each object."""

        def create(body: Json) -> Json:
            return self.create(path.format(body["metadata"].get("namespace", "")), body)

        return self.in_parallel(create, bodies)

    def watch_lines(self, path: str, **query: str) -> Iterator[bytes]:
        """Yield the lines of a watch as they arrive; raises ApiFailure and urllib3's errors."""
        with self.stream(path, watch="true", **query) as answer:
            if answer.status != 200:
                raise ApiFailure(answer.status, "GET", path, {"message": answer.read()[:500]})
            rest = b""
            for chunk in answer.stream(2**16, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines

    def watch(self, path: str, resource_version: str, seconds: int = 5) -> Iterator[Json]:
        """Yield the events of a watch with a timeout of ``seconds``."""
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        answer = self.request("GET", path, **query)
        for line in answer.data.splitlines():
            yield json.loads(line)


def _file_of(entry: Json, key: str, folder: str) -> str | None:
    if inline := entry.get(f"{key}-data"):
        path = Path(folder) / key
        path.write_bytes(base64.b64decode(inline))
        return str(path)
    return entry.get(key)
