"""Names the objects to list and watch, and sends these requests (client-go's ListWatch)."""

from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from proreus.client.http.request_headers import JSON
from proreus.client.http.session import ApiClient
from proreus.client.http.stream import Stream
from proreus.objects.meta import ApiObject, Resource

T = TypeVar("T", bound=ApiObject)


class ListWatch(Struct, Generic[T], frozen=True):
    """The objects of one resource in all namespaces that match ``field_selector`` (empty: all
    objects).
    """

    client: ApiClient
    resource: Resource[T]
    field_selector: str = ""

    @property
    def path(self) -> str:
        """The path of the collection."""
        return self.resource.path()

    async def list(
        self, parameters: dict[str, str], timeout_seconds: float, content_type: str = JSON
    ) -> bytes:
        """Return the body of a list, or of one page of it; raises ``ApiError``."""
        return await self.client.request(
            "GET",
            self.path,
            query=self._query(parameters),
            content_type=content_type,
            timeout_seconds=timeout_seconds,
        )

    async def find(self, namespace: str, name: str, timeout_seconds: float) -> bytes:
        """Return the body of a list with one object, or with none; raises ``ApiError``."""
        # Not a GET by name: that would return an object also if the selector excludes it.
        selector = ",".join(filter(None, (f"metadata.name={name}", self.field_selector)))
        return await self.client.request(
            "GET",
            self.resource.path(namespace),
            query=urlencode({"fieldSelector": selector}),
            timeout_seconds=timeout_seconds,
        )

    def watch(
        self, parameters: dict[str, str], read_timeout_seconds: float
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a watch that fails once nothing has arrived for ``read_timeout_seconds``."""
        return self.client.stream(
            self.path,
            query=self._query({"watch": "true", "allowWatchBookmarks": "true", **parameters}),
            read_timeout_seconds=read_timeout_seconds,
        )

    def _query(self, parameters: dict[str, str]) -> str:
        selectors = {"fieldSelector": self.field_selector} if self.field_selector else {}
        return urlencode({**selectors, **parameters})
