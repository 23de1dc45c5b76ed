"""The bench's API client: concurrent writes, objects of any kind, retries.

It generates the load, so it has connections of its own and no rate limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from proreus.base.errors import ApiError, Conflict, NotFound, TooManyRequests
from proreus.client.credentials import credential_loading
from proreus.client.http.request_headers import JSON, MERGE_PATCH, user_agent
from proreus.client.http.responses import ResponseLost, Unreachable
from proreus.client.http.session import ApiClient
from proreus.workbench.bench.templates import JsonObject

T = TypeVar("T")

CONCURRENCY = 32
"""Concurrent writes; scheduler_perf has 30."""

_ATTEMPTS = 6
_REQUEST_SECONDS = 120.0
_NOT_SERVED_SECONDS = 20.0

encode = msgspec.json.encode
decode = msgspec.json.decode


@dataclass(frozen=True)
class RestMapping:
    """The path below which a kind is served (client-go's RESTMapping)."""

    prefix: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object or a subresource."""
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        rest = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{self.prefix}{middle}/{self.plural}{rest}"


class Api:
    """A client of one apiserver. Methods raise ``ApiError`` after the last retry."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self._rest_mappings: dict[tuple[str, str], RestMapping] = {}

    async def create(self, path: str, body: JsonObject | bytes) -> JsonObject:
        """POST an object and return it as created; ``{}`` if it already exists."""
        data = body if isinstance(body, bytes) else encode(body)
        try:
            response = await self.request("POST", path, data)
        except Conflict:
            return {}
        return dict(decode(response))

    async def get(self, path: str) -> JsonObject:
        """GET an object."""
        return dict(decode(await self.request("GET", path)))

    async def put(self, path: str, body: JsonObject) -> None:
        """PUT an object."""
        await self.request("PUT", path, encode(body))

    async def patch(self, path: str, body: JsonObject) -> None:
        """PATCH an object by a JSON merge patch."""
        await self.request("PATCH", path, encode(body), content_type=MERGE_PATCH)

    async def delete(self, path: str, *, now: bool = False) -> None:
        """DELETE an object or a collection, which need not exist; ``now``: without grace period."""
        body = encode({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        with suppress(NotFound):
            await self.request("DELETE", path, body if now else None)

    async def list(self, path: str) -> list[JsonObject]:
        """Return all objects of a collection."""
        items: list[JsonObject] = []
        query = "limit=2000"
        while True:
            page = decode(await self.request("GET", path, query=query))
            items += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                return items
            query = f"limit=2000&continue={token}"

    async def rest_mapping_for(self, obj: JsonObject) -> RestMapping:
        """Return the RestMapping of an object's apiVersion and kind, from discovery."""
        version, kind = obj["apiVersion"], obj["kind"]
        if (version, kind) not in self._rest_mappings:
            prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for resource in (await self.get(prefix))["resources"]:
                if "/" not in resource["name"]:
                    mapping = RestMapping(prefix, resource["name"], resource["namespaced"])
                    self._rest_mappings[version, resource["kind"]] = mapping
        return self._rest_mappings[version, kind]

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: str = "",
        content_type: str = JSON,
    ) -> bytes:
        """Return the response to a request.

        Retries when the apiserver is overloaded, fails, or cannot be reached; raises the last
        ``ApiError``.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self.client.request(
                    method,
                    path,
                    body,
                    query=query,
                    content_type=content_type,
                    timeout_seconds=_REQUEST_SECONDS,
                )
            except ApiError as error:
                passing = isinstance(error, TooManyRequests | Unreachable | ResponseLost)
                if attempt == _ATTEMPTS or not (passing or error.status >= 500):
                    raise
                await asyncio.sleep(getattr(error, "retry_after", 0.1 * 2**attempt))


@asynccontextmanager
async def connected(kubeconfig: Path, component: str = "bench") -> AsyncIterator[Api]:
    """Yield a client of the apiserver that a kubeconfig names."""
    user = await credential_loading.load(str(kubeconfig))
    async with ApiClient(user, agent=user_agent(component)) as client:
        yield Api(client)


async def for_each(
    items: Iterable[T], work: Callable[[T], Awaitable[Any]], concurrency: int = CONCURRENCY
) -> None:
    """Await ``work`` for each item, ``concurrency`` at a time; the first error ends all."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def retry_until_served(work: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
    """Retry on 404 for some seconds: a kind that was just defined is not served at once."""
    deadline = time.perf_counter() + _NOT_SERVED_SECONDS
    while True:
        try:
            return await work()
        except ApiError as error:
            if error.status != 404 or time.perf_counter() > deadline:
                raise
            await asyncio.sleep(0.5)
