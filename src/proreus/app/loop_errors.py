"""What the event loop reports when nobody awaits the error."""

from __future__ import annotations

import asyncio
from typing import Any

from proreus import logs

log = logs.logger(__name__)

_CLOSED = "the handler is closed"


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error with its traceback, unless it is only a connection that is closed already.

    uvloop raises RuntimeError where data arrive on a TLS connection whose transport was closed in
    the same moment. Nothing is lost by it: the connection was given up, and its user knows that.
    """
    error = context.get("exception")
    if isinstance(error, RuntimeError) and _CLOSED in str(error) and "protocol" in context:
        log.v(4).info("A connection was closed while data arrived", err=error)
        return
    loop.default_exception_handler(context)
