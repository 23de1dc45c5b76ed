"""/dashboard/: which page answers which path, and who may see it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from pathlib import Path
from time import perf_counter
from urllib.parse import parse_qs, unquote

import msgspec
from aiohttp import web

from proreus.base import logs
from proreus.insight.dashboard.live import LiveSamples
from proreus.insight.dashboard.pages import Pages
from proreus.insight.dashboard.rendering import HEADERS, Renderer
from proreus.insight.dashboard.samples import Samples
from proreus.insight.page_sources import PageSources
from proreus.server.local_server import LocalServer
from proreus.server.options import FORWARDED_AUTHORIZATION
from proreus.server.responses import method_not_allowed, plain, status_body

log = logs.logger(__name__)

PATH = "/dashboard/"
_LONG_SECONDS = 0.2
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}


class Dashboard:
    """The pages of one process: a ``server.Section``.

    ``local_address``: where they are served without authentication, None for nowhere.
    """

    path = PATH

    def __init__(self, sources: PageSources, local_address: tuple[str, int] | None = None) -> None:
        self._renderer = Renderer(
            sources.clock.now,
            base=PATH,
            title=sources.title,
            version=sources.version,
            standby=sources.standby,
            changes=sources.changes,
            what_if=sources.dry_runs is not None,
        )
        folders = (Path(__file__).parent / name for name in ("static", "vendored"))
        self._files = {file.name: file for folder in folders for file in folder.iterdir()}
        queue = sources.scheduler.queue
        self._live = LiveSamples(Samples(sources.metrics, queue, sources.clock))
        self._pages = Pages(sources, self._renderer)
        self._local = None if local_address is None else LocalServer(local_address, self._locally)

    @property
    def local_url(self) -> str:
        """The address of the pages without authentication, empty for none; known after
        ``start``.
        """
        return "" if self._local is None else f"{self._local.url}{PATH}"

    # ---- server.Section ------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to take samples, and to serve on the loopback address if there is one."""
        self._live.start()
        if self._local is not None:
            await self._local.start()
            log.info("Serving the dashboard without authentication", url=self.local_url)

    async def stop(self) -> None:
        """End streams, and stop serving on the loopback address."""
        await self._live.stop()
        if self._local is not None:
            await self._local.stop()

    async def open_page(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Return scripts, styles and the sign-in page; none of them reveals anything about the
        cluster.
        """
        section, _, name = request.path.removeprefix(PATH).partition("/")
        if section == "static":
            return self._static(request, name)
        if section == "sign-in":
            return await self._sign_in(request)
        if section == "sign-out":
            response = web.Response(status=303, headers={**HEADERS, "Location": f"{PATH}sign-in"})
            forget_token(response, PATH)
            return response
        return None

    def _static(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        file = self._files.get(name)
        if file is None or file.suffix not in _TYPES:
            return status_body(404, "NotFound", f"there is no file {name}")
        # no-cache: ask each time whether it changed, so that an update is seen at once.
        headers = {**HEADERS, "Cache-Control": "no-cache", "Content-Type": _TYPES[file.suffix]}
        response = web.FileResponse(file, headers=headers)
        # aiohttp would write the end of a compressed body after a 304 too.
        conditional = "If-None-Match" in request.headers or "If-Modified-Since" in request.headers
        if "gzip" in request.headers.get("Accept-Encoding", "") and not conditional:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    def credentials(self, request: web.BaseRequest) -> dict[str, str]:
        """Return the token that the browser keeps as a header."""
        return cookie_credentials(request)

    def refuse(self, request: web.BaseRequest, refusal: web.Response) -> web.Response:
        """Ask people to sign in; programs get the refusal as it is."""
        if "text/html" not in request.headers.get("Accept", ""):
            return refusal
        why = reason_of(refusal)
        if why.startswith("system:anonymous may not") and not cookie_credentials(request):
            why = ""
        return self._renderer.page("sign_in.html", status=refusal.status, why=why)

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the page of a path."""
        # The raw path: a name in it may contain an encoded slash.
        raw = request.rel_url.raw_path.removeprefix(PATH)
        page, *rest = [unquote(part) for part in raw.split("/")]
        methods = ("GET", "HEAD", "POST") if page in self._pages.with_forms else ("GET", "HEAD")
        if request.method not in methods:
            return method_not_allowed(*methods)
        if page == "events":
            return await self._live.stream(request, HEADERS)
        respond = self._pages.by_name.get(page)
        if respond is None:
            return self._renderer.page("not_found.html", status=404, what=f"page {page}")
        started = perf_counter()
        answered = respond(request, rest)
        seconds = perf_counter() - started
        response = await answered if isinstance(answered, Awaitable) else answered
        if seconds >= _LONG_SECONDS:
            log.info("A page took long", path=request.path, seconds=round(seconds, 3))
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    # ---- signing in ----------------------------------------------------------------------------

    async def _sign_in(self, request: web.BaseRequest) -> web.Response:
        if request.method != "POST":
            return self._renderer.page("sign_in.html", why="")
        try:
            token = await sent_token(request)
        except BadToken as error:
            return self._renderer.page("sign_in.html", status=400, why=str(error))
        response = web.Response(status=303, headers={**HEADERS, "Location": PATH})
        keep_token(response, token, PATH)
        return response

    async def _locally(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request over plain HTTP on loopback."""
        if request.path in ("/", PATH.rstrip("/")):
            return web.Response(status=307, headers={"Location": PATH})
        if not request.path.startswith(PATH):
            return plain("404 page not found\n", status=404)
        response = await self.open_page(request)
        return await self.respond(request) if response is None else response


def reason_of(refusal: web.Response) -> str:
    """Return the reason for a refusal as sentences for people."""
    if refusal.status == 401:
        return "The token is wrong, or it has expired."
    try:
        message = str(msgspec.json.decode(refusal.text or "{}")["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return str(refusal.text)
    found = _FORBIDDEN.match(message)
    if found is None:
        return message
    user, verb = found["user"], found["verb"]
    right = "see the dashboard" if verb == "get" else f"use this page (verb {verb})"
    why = f" The apiserver says: {found['reason']}." if found["reason"] else ""
    return (
        f"{user} may not {right}.{why} An administrator can allow it with a ClusterRole for "
        f"the nonResourceURL {PATH} and the verb {verb}."
    )


_FORBIDDEN = re.compile(
    r'forbidden: User "(?P<user>.*)" cannot (?P<verb>\w+) path "[^"]*"(: (?P<reason>.*))?$'
)
"""The message of ``server.responses.forbidden``."""

# A browser is signed in by a client certificate, or by a token that it keeps in a cookie: a page
# cannot be asked for with an Authorization header by typing its address, nor can a stream of
# events. The token is in the cookie only, not in this process. It is sent with requests from our
# own pages alone (SameSite), and scripts cannot read it.
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
