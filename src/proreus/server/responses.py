"""Responses that several endpoints share: plain text, JSON, and errors in Kubernetes' form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

Page = Callable[[web.BaseRequest], web.StreamResponse | Awaitable[web.StreamResponse]]
"""Answers the requests for one path."""

CACHE_CONTROL = {"Cache-Control": "no-cache, private"}
_NO_SNIFF = {"X-Content-Type-Options": "nosniff"}


def plain(text: str, *, status: int = 200) -> web.Response:
    """Return a text/plain response, with nosniff so that browsers do not render it as HTML."""
    return web.Response(
        text=text, status=status, content_type="text/plain", charset="utf-8", headers=_NO_SNIFF
    )


def json_body(content: object, *, status: int = 200) -> web.Response:
    """Return an application/json response."""
    return web.Response(
        body=msgspec.json.encode(content), status=status, content_type="application/json"
    )


def status_body(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
) -> web.Response:
    """Return a metav1.Status that describes a failure."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details is not None:
        body["details"] = details
    response = json_body({**body, "code": code}, status=code)
    response.headers.update(_NO_SNIFF)
    return response


def method_not_allowed(*methods: str) -> web.Response:
    """Return the 405 for a page that has only these methods."""
    message = f"supported: {', '.join(methods)}"
    response = status_body(405, "MethodNotAllowed", message)
    response.headers["Allow"] = ", ".join(methods)
    return response


def unauthorized() -> web.Response:
    """Return the 401 for invalid credentials."""
    return status_body(401, "Unauthorized", "Unauthorized")


def forbidden(user: str, verb: str, path: str, reason: str = "") -> web.Response:
    """Return the 403 for a request that is not authorized."""
    # Escaped as in k8s.io/apiserver, so that a link cannot inject markup into a web console.
    path = path.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    message = f'forbidden: User "{user}" cannot {verb} path "{path}"'
    if reason:
        message += f": {reason}"
    return status_body(403, "Forbidden", message, {})


def not_found() -> web.Response:
    """Return the 404 of Go's mux for an unknown path."""
    return plain("404 page not found\n", status=404)
