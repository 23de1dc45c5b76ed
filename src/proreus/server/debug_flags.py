"""/debug/flags: the flags that can be changed while the process runs."""

from __future__ import annotations

from aiohttp import web

from proreus.base import logs
from proreus.server.responses import plain


async def set_verbosity(request: web.BaseRequest) -> web.Response:
    """Set the verbosity of logs to the body of a PUT."""
    if request.method != "PUT":
        return plain("unsupported http method\n", status=406)
    text = (await request.text()).strip()
    try:
        logs.set_verbosity(int(text))
    except ValueError:
        return plain(
            f'failed to set klog.logging.verbosity {text}: "{text}" is not a whole number\n',
            status=400,
        )
    return plain(f"successfully set klog.logging.verbosity to {text}")


def flags_index(_: web.BaseRequest) -> web.Response:
    """List the flags that can be changed."""
    return plain("flags that can be changed by PUT:\n/debug/flags/v\n")
