"""``/plugins/v1/register``: processes with a plugin take a slot at run time, and leave it.

Who may do so is decided before (nonResourceURL, verbs get, post and delete). What a registration is
and what comes of it is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import web

from proreus.errors import ConfigError, UnknownPluginSlot
from proreus.objects.codec import DecodeError, decode_strictly
from proreus.server.responses import json_body, plain

PATH = "/plugins/v1/register"


class Registrar(Protocol):
    """Who keeps the slots; raises ``ConfigError``, and ``UnknownPluginSlot`` for a name without
    one."""

    async def register(self, address: str, posted: bytes) -> Mapping[str, Any]:
        """Let the process at an address take the slot of its plugin's name; return its state.

        ``posted``: the JSON in which it says who it is; may be empty.
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
    """Answer a request to ``PATH``."""
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
