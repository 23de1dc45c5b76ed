"""The scripts and styles of the pages: our own, and libraries with their versions."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFiles:
    """Serves files by name; a file that a browser has and that did not change is not sent again."""

    def __init__(self, *folders: str) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        root = files("proreus.insight.dashboard")
        for folder in folders:
            for file in (root / folder).iterdir():
                self._add(file)

    def _add(self, file: Traversable) -> None:
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in _TYPES:
            content = file.read_bytes()
            tag = hashlib.sha256(content).hexdigest()[:32]
            self._files[file.name] = content, _TYPES[suffix], f'"{tag}"'

    @property
    def names(self) -> list[str]:
        """The names of all files."""
        return sorted(self._files)

    def response(
        self, request: web.BaseRequest, name: str, headers: dict[str, str]
    ) -> web.Response:
        """Return a file; raises ``KeyError`` if there is none of this name."""
        content, content_type, tag = self._files[name]
        # no-cache: ask each time whether it changed, so that an update is seen at once.
        headers = {**headers, "Cache-Control": "no-cache", "ETag": tag}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        response = web.Response(
            body=content, content_type=content_type, charset="utf-8", headers=headers
        )
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response
