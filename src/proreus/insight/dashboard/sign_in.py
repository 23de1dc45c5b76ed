"""Signs a browser in: by a client certificate, or by a token that it keeps in a cookie.

A page cannot be asked for with an Authorization header by typing its address, nor can a stream of
events. The token is in the cookie only, not in this process. It is sent with requests from our own
pages alone (SameSite), and scripts cannot read it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from aiohttp import web

from proreus.server.options import FORWARDED_AUTHORIZATION

COOKIE = "__Secure-proreus-token"
_READ_SECONDS = 10.0
_MAX_TOKEN = 3_500
"""Browsers refuse cookies of more than 4 KiB. Tokens of service accounts have about 1 KiB."""


class BadToken(ValueError):
    """The text given as a token cannot be one."""


def cookie_credentials(request: web.BaseRequest) -> dict[str, str]:
    """Return the Authorization header that stands for a request's cookie, {} without one.

    A header of the request itself goes first.
    """
    if "Authorization" in request.headers or FORWARDED_AUTHORIZATION in request.headers:
        return {}
    token = request.cookies.get(COOKIE, "")
    return {"Authorization": f"Bearer {token}"} if token else {}


async def sent_token(request: web.BaseRequest) -> str:
    """Return the token of the sign-in form; raises ``BadToken``."""
    # Everybody who reaches the port can send one. aiohttp limits a body to 1 MiB.
    try:
        async with asyncio.timeout(_READ_SECONDS):
            body = await request.read()
        fields = parse_qs(body.decode("ascii", "replace"), max_num_fields=5)
    except (TimeoutError, ValueError, web.HTTPRequestEntityTooLarge):
        raise BadToken("It did not arrive, or is no form of this page.") from None
    token = fields.get("token", [""])[0].strip().removeprefix("Bearer ").strip()
    if not token:
        raise BadToken("There is no token in it.")
    if len(token) > _MAX_TOKEN:
        raise BadToken(f"It is longer than {_MAX_TOKEN} characters.")
    # The characters of RFC 6750; a quote or a semicolon would end the cookie.
    if not all(char.isalnum() or char in "-._~+/=" for char in token) or not token.isascii():
        raise BadToken("It has characters that no token has.")
    return token


def keep_token(response: web.StreamResponse, token: str, path: str) -> None:
    """Set a cookie with a token for pages below ``path``, which the browser keeps until it is
    closed.
    """
    response.set_cookie(COOKIE, token, path=path, secure=True, httponly=True, samesite="Strict")


def forget_token(response: web.StreamResponse, path: str) -> None:
    """Delete the cookie with the token."""
    response.del_cookie(COOKIE, path=path, secure=True, httponly=True, samesite="Strict")
