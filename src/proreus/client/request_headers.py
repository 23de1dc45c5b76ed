"""The headers of requests, made once for many: content types, and how we introduce ourselves."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

import proreus

JSON = "application/json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Who writes it is answered in it, and so is a GET of this content type."""

_MOST_KEPT = 16
"""Tokens rotate; the headers with old ones need not be kept."""


def user_agent(component: str = "scheduler", program: str = "proreus") -> str:
    """Return ``program/version (os/arch) component``, as client-go words it."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    version = getattr(proreus, "__version__", "unknown")
    return f"{program}/v{version} ({os.uname().sysname.lower()}/{machine}) {component}"


class RequestHeaders:
    """The headers for one server, by Authorization and content type.

    ``fields`` is as aiohttp takes them, ``lines`` as they go over the wire.
    """

    def __init__(self, host: str, agent: str) -> None:
        self._host = host
        self._agent = agent
        self._fields: dict[tuple[str, str], Mapping[str, str]] = {}
        self._lines: dict[tuple[str, str], bytes] = {}

    def fields(self, authorization: str, content_type: str) -> Mapping[str, str]:
        """Return the headers, but for Host and the length of the body."""
        cached = self._fields.get((authorization, content_type))
        if cached is not None:
            return cached
        accept = PROTOBUF if content_type == PROTOBUF else JSON
        headers = {"Accept": accept, "User-Agent": self._agent, "Content-Type": content_type}
        if authorization:
            headers["Authorization"] = authorization
        if len(self._fields) > _MOST_KEPT:
            self._fields.clear()
        self._fields[authorization, content_type] = headers
        return headers

    def lines(self, authorization: str, content_type: str) -> bytes:
        """Return the header lines, but for the length; raises ``ValueError`` for invalid ones."""
        cached = self._lines.get((authorization, content_type))
        if cached is not None:
            return cached
        headers = {"Host": self._host, **self.fields(authorization, content_type)}
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if not all(line.isprintable() for line in lines):
            raise ValueError("the token or User-Agent has characters that no HTTP header may have")
        if len(self._lines) > _MOST_KEPT:
            self._lines.clear()
        made = self._lines[authorization, content_type] = "".join(
            f"{line}\r\n" for line in lines
        ).encode()
        return made
