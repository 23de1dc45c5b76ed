"""Pages below one path that are authorized together, and have their own ways to sign in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from aiohttp import web


class Section(Protocol):
    """Pages below ``path``, which ends in a slash.

    A user is authorized for ``path``, not for each page below it: the pages are one thing to read.
    """

    path: str

    async def start(self) -> None:
        """Start the work that the pages need; called before the server listens."""
        ...

    async def stop(self) -> None:
        """End that, and responses that would go on for ever."""
        ...

    async def open_page(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Return a response that needs no authorization, None if the page needs it."""
        ...

    def credentials(self, request: web.BaseRequest) -> Mapping[str, str]:
        """Return headers to add to the request's own for its authentication."""
        ...

    def refuse(self, request: web.BaseRequest, refusal: web.Response) -> web.Response:
        """Return the response to a caller who is not authenticated (401) or not authorized
        (403).
        """
        ...

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the page; the request is authorized."""
        ...
