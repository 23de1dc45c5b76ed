"""``/plugins/v1/register``: out-of-process plugins take a slot at run time, and leave it.

Requests are authorized before they get here (nonResourceURL, verbs get, post and delete). A
``Registrar`` does the registration itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import web

from proreus.base.errors import ConfigError, UnknownPluginSlot
from proreus.objects.codec import DecodeError, decode_strictly
from proreus.server.responses import json_body, plain

PATH = "/plugins/v1/register"


class Registrar(Protocol):
    """Keeps the plugin slots.

    Its methods raise ``ConfigError``, and ``UnknownPluginSlot`` for a name without a slot.
    """

    async def register(self, address: str, posted: bytes) -> Mapping[str, Any]:
        """Give the slot of its plugin's name to the process at an address; return the slot's state.

        ``posted``: the plugin's descriptor as JSON; may be empty.
        """
        ...

    async def withdraw(self, name: str) -> Mapping[str, Any]:
        """Empty a slot; return its state."""
        ...

    def slots(self) -> Sequence[Mapping[str, Any]]:
        """Return the state of every slot."""
        ...


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a POST."""

    endpoint: str
    descriptor: msgspec.Raw = msgspec.Raw()  # empty: not posted


class Withdrawal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a DELETE."""

    name: str


async def registration_page(registrar: Registrar, request: web.BaseRequest) -> web.Response:
    """Return the response to a request for ``PATH``."""
    if request.method == "GET":
        return json_body({"slots": list(registrar.slots())})
    if request.method not in ("POST", "DELETE"):
        return plain("allowed are GET, POST and DELETE\n", status=405)
    body = await request.read()
    try:
        if request.method == "POST":
            wanted = decode_strictly(body, Registration)
            posted = bytes(wanted.descriptor)
            return json_body(await registrar.register(wanted.endpoint, posted))
        named = decode_strictly(body, Withdrawal)
        return json_body(await registrar.withdraw(named.name))
    except UnknownPluginSlot as error:
        return json_body({"error": str(error)}, status=404)
    except (ConfigError, DecodeError) as error:
        return json_body({"error": str(error)}, status=400)
