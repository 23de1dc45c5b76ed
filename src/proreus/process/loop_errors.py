"""Handles errors that nobody awaits, which the event loop reports."""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from typing import Any

from proreus.base import logs

log = logs.logger(__name__)

_CLOSED = "the handler is closed"


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error with its traceback, unless it is of a connection whose user knows of it.

    uvloop raises RuntimeError where data arrive on a TLS connection whose transport was closed in
    the same moment: the connection was given up. asyncio, until Python 3.12.2, raises TypeError
    after a handshake that failed within a proxy's TLS: whoever connects gets the error
    (``client.http.dialer``).
    """
    error = context.get("exception")
    if isinstance(error, RuntimeError) and _CLOSED in str(error) and "protocol" in context:
        log.v(4).info("A connection was closed while data arrived", err=error)
        return
    in_tls = isinstance(context.get("protocol"), sslproto.SSLProtocol)
    if in_tls and isinstance(error, TypeError) and isinstance(error.__context__, OSError):
        log.v(4).info("A TLS handshake failed within a proxy's TLS", err=error.__context__)
        return
    loop.default_exception_handler(context)
