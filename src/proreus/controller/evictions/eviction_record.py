"""The record of evictions: a ConfigMap that is written before any eviction.

An eviction is *planned*, then *done*, or *refused* by the apiserver. A process that is killed in
between leaves the plan, which the next one finishes; it names the pod by its uid, so that it is the
same eviction. The ConfigMap is replaced under its resourceVersion: of two processes that both
believe they lead, one fails before it has evicted anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from proreus.base.errors import NotFound, ProreusError
from proreus.client.http.responses import read_json
from proreus.client.http.session import ApiClient
from proreus.objects.codec import UNDECODABLE

NAME = "proreus-controller-evictions"
_KEY = "evictions.json"


class UnreadableRecord(ProreusError):
    """The ConfigMap has other contents than a record of this controller."""


class RecordedEviction(msgspec.Struct, frozen=True):
    """An eviction. ``pod``: its key; ``at``: when it was planned, in Unix seconds."""

    pod: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*$")]
    uid: str
    workload: str
    node: str
    at: float
    state: Literal["planned", "done", "refused"] = "planned"


_decoder = msgspec.json.Decoder(list[RecordedEviction])


class EvictionRecord:
    """Reads and replaces the record; ``read`` comes first."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._version = ""

    async def read(self) -> list[RecordedEviction]:
        """Return the recorded evictions, the oldest first.

        Raises ``ApiError``, and ``UnreadableRecord`` for a ConfigMap with other contents: without
        the evictions of the last period there is no budget for the next.
        """
        try:
            found = read_json(await self._client.request("GET", f"{self._collection}/{NAME}"))
        except NotFound:
            self._version = ""
            return []
        self._version = found["metadata"]["resourceVersion"]
        try:
            return _decoder.decode((found.get("data") or {}).get(_KEY, "[]"))
        except UNDECODABLE as error:
            raise UnreadableRecord(
                f"{_KEY} of ConfigMap {self._namespace}/{NAME} cannot be read ({error}): nobody is"
                " evicted until the ConfigMap is deleted, or corrected"
            ) from error

    async def write(self, evictions: Iterable[RecordedEviction]) -> None:
        """Replace the record that was read or written last; raises ``Conflict`` if another
        process has replaced it since."""
        text = msgspec.json.encode(list(evictions)).decode()
        metadata = {"name": NAME, "namespace": self._namespace}
        if self._version:
            metadata["resourceVersion"] = self._version
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {_KEY: text},
        }
        method = "PUT" if self._version else "POST"
        path = f"{self._collection}/{NAME}" if self._version else self._collection
        answer = read_json(await self._client.request(method, path, msgspec.json.encode(body)))
        self._version = answer["metadata"]["resourceVersion"]
