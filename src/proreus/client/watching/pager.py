"""Lists of a resource, page by page (client-go's tools/pager)."""

from __future__ import annotations

from typing import TypeVar

from proreus.base.errors import Gone
from proreus.client.watching.list_watch import ListWatch
from proreus.client.watching.watch import ListDecoder, Page
from proreus.objects.meta import ApiObject, ListMeta

T = TypeVar("T", bound=ApiObject)


async def list_all_pages(
    list_watch: ListWatch[T], decoder: ListDecoder[T], page_size: int, timeout_seconds: float
) -> Page[T]:
    """List all pages and return them as one; ``page_size`` 0 lists without pagination.

    ``timeout_seconds``: for each page. Raises ``ApiError``.
    """
    found: Page[T] = Page(ListMeta(), [])
    paging = {"limit": str(page_size)} if page_size else {}
    while True:
        try:
            body = await list_watch.list(paging, timeout_seconds)
        except Gone:
            if "continue" not in paging:
                raise
            # The continue token has expired: paging took longer than etcd keeps its history, and
            # would again. client-go's pager falls back to one full list too.
            return await list_all_pages(list_watch, decoder, 0, timeout_seconds)
        page = await decoder.page(body)
        found.items += page.items
        found.unreadable += page.unreadable
        found.metadata = page.metadata
        paging["continue"] = page.metadata.continue_
        if not page.metadata.continue_:
            return found
