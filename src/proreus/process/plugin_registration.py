"""``/plugins/v1/register``: out-of-process plugins take a slot at run time, and leave it.

Requests are authorized before they get here (nonResourceURL, verbs get, post and delete).
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from proreus.base.errors import ConfigError, UnknownPluginSlot
from proreus.objects.codec import DecodeError, decode_strictly
from proreus.process.remote_plugins import RemotePlugins
from proreus.server.responses import json_body, plain

PATH = "/plugins/v1/register"


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a POST."""

    endpoint: str
    descriptor: msgspec.Raw = msgspec.Raw()  # empty: not posted


class Withdrawal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a DELETE."""

    name: str


async def registration_page(plugins: RemotePlugins, request: web.BaseRequest) -> web.Response:
    """Return the response to a request for ``PATH``."""
    if request.method == "GET":
        return json_body({"slots": list(plugins.slots())})
    if request.method not in ("POST", "DELETE"):
        return plain("allowed are GET, POST and DELETE\n", status=405)
    body = await request.read()
    try:
        if request.method == "POST":
            wanted = decode_strictly(body, Registration)
            posted = bytes(wanted.descriptor)
            return json_body(await plugins.register(wanted.endpoint, posted))
        named = decode_strictly(body, Withdrawal)
        return json_body(await plugins.withdraw(named.name))
    except UnknownPluginSlot as error:
        return json_body({"error": str(error)}, status=404)
    except (ConfigError, DecodeError) as error:
        return json_body({"error": str(error)}, status=400)
