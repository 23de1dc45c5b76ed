"""GET from servers other than the apiserver, for plugins (``Handle.http_get``)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from proreus.base.errors import ApiError

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MAX_BODY_BYTES = 64 * 2**20
"""Room for the metrics of tens of thousands of nodes; a larger answer is refused."""


async def http_get(
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    insecure_skip_verify: bool,
) -> bytes:
    """Return the body of an answer with status 200; raises ``ApiError`` otherwise."""
    # In a thread: it takes so long that the plugin would be reported for blocking the event loop.
    await asyncio.to_thread(_import_aiohttp)
    import aiohttp

    # A session a request: they are seconds apart, and a connection that is kept open would be one
    # more thing to close.
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=dict(headers), ssl=not insecure_skip_verify) as response,
        ):
            body = await read_body(response, MAX_BODY_BYTES)
            status, reason = response.status, response.reason or ""
    except TimeoutError:
        raise ApiError(0, "Timeout", f"{url} did not answer in {timeout_seconds:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Its text says all that an operator can use; its traceback has fifty lines.
        raise ApiError(0, "NoAnswer", f"{url} cannot be read: {error}") from None
    if status != 200:
        raise ApiError(status, reason, f"{url} answered {status} {reason}")
    if body is None:
        raise ApiError(0, "TooLarge", f"{url} answered with more than {MAX_BODY_BYTES} bytes")
    return body


def _import_aiohttp() -> None:
    # Not before, since a start does without aiohttp, and few plugins need it.
    import aiohttp  # noqa: F401


async def read_body(response: ClientResponse, most: int) -> bytes | None:
    """Return the body of a response, decompressed; None if it has more than ``most`` bytes."""
    body = bytearray()
    while piece := await response.content.read(most + 1 - len(body)):
        body += piece
        if len(body) > most:
            return None
    return bytes(body)
