"""Request headers, built once for many requests: content types, User-Agent, Authorization."""

from __future__ import annotations

import os
import platform

import proreus

JSON = "application/json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Requests with this content type, GETs included, get their response in it."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""GETs of a list with this content type get the metadata of its objects, and no more."""

_MOST_KEPT = 16
"""Tokens rotate, so headers with old tokens are not kept."""


def user_agent(component: str = "scheduler", program: str = "proreus") -> str:
    """Return ``program/version (os/arch) component``, in the form of client-go's."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    version = getattr(proreus, "__version__", "unknown")
    return f"{program}/v{version} ({os.uname().sysname.lower()}/{machine}) {component}"


class RequestHeaders:
    """The headers for one server, by Authorization and content type.

    ``forwarded_as``: a header that has the value of Authorization too, for a server behind the
    apiserver's proxy, which removes that one.
    """

    def __init__(self, host: str, agent: str, forwarded_as: str = "") -> None:
        self._host = host
        self._forwarded_as = forwarded_as
        self._agent = agent
        self._lines: dict[tuple[str, str], bytes] = {}

    def _fields(self, authorization: str, content_type: str) -> dict[str, str]:
        accept = content_type if content_type in (PROTOBUF, METADATA_LIST) else JSON
        sent = JSON if content_type == METADATA_LIST else content_type
        headers = {
            "Host": self._host,
            "Accept": accept,
            "User-Agent": self._agent,
            "Content-Type": sent,
        }
        if authorization:
            headers["Authorization"] = authorization
            if self._forwarded_as:
                headers[self._forwarded_as] = authorization
        return headers

    def lines(self, authorization: str, content_type: str) -> bytes:
        """Return the header lines except Content-Length; raises ``ValueError`` for invalid ones."""
        cached = self._lines.get((authorization, content_type))
        if cached is not None:
            return cached
        fields = self._fields(authorization, content_type)
        lines = [f"{name}: {value}" for name, value in fields.items()]
        # A line break in a token file would otherwise inject a header of its own.
        if not all(line.isprintable() for line in lines):
            raise ValueError("the token or User-Agent has characters that no HTTP header may have")
        if len(self._lines) > _MOST_KEPT:
            self._lines.clear()
        made = self._lines[authorization, content_type] = "".join(
            f"{line}\r\n" for line in lines
        ).encode()
        return made
