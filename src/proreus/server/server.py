"""The HTTPS server: authentication, authorization, then the page.

As in kube-scheduler a request passes panic recovery, logging, Cache-Control, authentication,
authorization and the mux. Pages are sync functions over state of the event loop; only delegated
reviews, and the writing of a large page, await.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from proreus.base import logs
from proreus.base.addresses import authority
from proreus.base.errors import ApiError, ConfigError
from proreus.base.kubernetes_version import DEFAULT_VERSION
from proreus.base.metrics import SchedulerMetrics
from proreus.base.metrics.exposition import expose
from proreus.objects.pod import Pod
from proreus.server.authentication import Authenticator, NotAuthenticated
from proreus.server.authorization import Authorizer
from proreus.server.certificates import ServingCertificate
from proreus.server.client_ca import ClientCAs
from proreus.server.connections import ClientChains, ConnectionLimits, ConnectionServer
from proreus.server.delegation import ApiAccess
from proreus.server.health import PING, HealthCheck, HealthEndpoint, HealthMetrics
from proreus.server.listener import listen
from proreus.server.options import ServingOptions
from proreus.server.pod_resources import write_pod_resources
from proreus.server.responses import (
    CACHE_CONTROL,
    Page,
    forbidden,
    json_body,
    not_found,
    plain,
    status_body,
    unauthorized,
)
from proreus.server.section import Section
from proreus.server.zpages import ZPages, flags_index, set_verbosity

log = logs.logger(__name__)

_NOTHING = HealthMetrics()

_FILES_SECONDS = 5.0
_CLIENT_CA_SECONDS = 60.0
_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class EndpointSources:
    """The content of the pages, given by ``app``.

    healthz, readyz: their checks; healthz without any has ping.
    livez: checks after ping.
    configz: returns the completed configuration, with apiVersion and kind.
    last_reload: returns the result of its latest reload, or None if there was none.
    plugin_files: returns the out-of-tree plugin files in force, with their hashes.
    flags: the flags in force, for /flagz.
    leader_pods: returns all pods, or None while this instance does not lead.
    partial_limits: whether /metrics/resources sums up limits that some containers do not have.
    profiling: whether /debug/flags is served (enableProfiling).
    """

    metrics: SchedulerMetrics
    healthz: tuple[HealthCheck, ...] = ()
    livez: tuple[HealthCheck, ...] = ()
    readyz: tuple[HealthCheck, ...] = ()
    configz: Callable[[], Mapping[str, Any]] = dict
    last_reload: Callable[[], Mapping[str, Any] | None] = lambda: None
    plugin_files: Callable[[], Sequence[Mapping[str, Any]]] = list
    flags: Mapping[str, str] = field(default_factory=dict)
    leader_pods: Callable[[], Iterable[Pod] | None] = lambda: None
    partial_limits: bool = True
    binary_version: str = str(DEFAULT_VERSION)
    emulation_version: str = str(DEFAULT_VERSION)
    profiling: bool = True
    component: str = "kube-scheduler"


class Server:
    """Serves from ``start`` (or ``async with``) to ``stop``; does nothing if the port is 0.

    ``authentication_api`` and ``authorization_api`` send the reviews; None if no apiserver can be
    reached, and then no token and no unlisted path is accepted.
    """

    def __init__(
        self,
        options: ServingOptions,
        sources: EndpointSources,
        *,
        authentication_api: ApiAccess | None = None,
        authorization_api: ApiAccess | None = None,
    ) -> None:
        problems = options.problems()
        if problems:
            raise ConfigError(*problems)
        self._options = options
        self._sources = sources
        self._trusted = ClientCAs(options.authentication, authentication_api)
        self._authenticator = Authenticator(
            self._trusted,
            authentication_api,
            token_cache_ttl_seconds=options.authentication.token_cache_ttl_seconds,
            metrics=sources.metrics,
        )
        self._authorizer = Authorizer(
            options.authorization, authorization_api, metrics=sources.metrics
        )
        self._chains = ClientChains()
        self._slis = HealthMetrics()
        self._health = [
            HealthEndpoint("healthz", sources.healthz or (PING,), self._slis),
            HealthEndpoint("livez", (PING, *sources.livez), self._slis),
            HealthEndpoint("readyz", sources.readyz, self._slis),
        ]
        self._listed_paths = ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz"]
        self._pages = self._mux()
        self._sections: list[Section] = []
        self._certificate: ServingCertificate | None = None
        self._connections: ConnectionServer | None = None
        self._background_tasks: list[asyncio.Task[None]] = []
        self.port = 0

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def add_page(self, path: str, page: Page) -> None:
        """Serve another path (exact match), with authorization."""
        self._pages[path] = page
        self._listed_paths.append(path)

    def add_section(self, section: Section) -> None:
        """Serve all paths below one; they are authorized together."""
        self._sections.append(section)
        self._listed_paths.append(section.path)

    async def start(self, listener: socket.socket | None = None) -> None:
        """Listen, on the caller's socket if given; raises ``ConfigError`` if that fails."""
        for section in self._sections:
            await section.start()
        if self._options.secure_port == 0 and listener is None:
            return
        certificate = ServingCertificate(self._options, self._sources.component)
        await self._trusted.refresh()
        certificate.trust_clients(self._trusted.pem)
        listener = listener or listen(self._options)
        self._certificate = certificate
        self._connections = ConnectionServer(
            self._handle, certificate.context, ConnectionLimits.within_open_files()
        )
        address, self.port = listener.getsockname()[:2]
        self._background_tasks = [
            asyncio.create_task(self._connections.accept(listener)),
            asyncio.create_task(self._follow_files(certificate)),
            asyncio.create_task(self._follow_client_ca(certificate)),
        ]
        log.info("Serving securely", address=authority(address, self.port))

    async def stop(self) -> None:
        """Stop listening, within five seconds; requests in progress have half of it to complete."""
        tasks, self._background_tasks = self._background_tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for section in self._sections:
            await section.stop()
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close(_GRACE_SECONDS)

    async def _follow_files(self, certificate: ServingCertificate) -> None:
        while True:
            await asyncio.sleep(_FILES_SECONDS)
            if certificate.reload_if_changed():
                certificate.trust_clients(self._trusted.pem)

    async def _follow_client_ca(self, certificate: ServingCertificate) -> None:
        while True:
            await asyncio.sleep(_CLIENT_CA_SECONDS)
            try:
                if await self._trusted.refresh():
                    certificate.trust_clients(self._trusted.pem)
            except ConfigError as error:
                log.error("Keeping the known client CAs", err=error)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        started = time.perf_counter()
        try:
            response = await self._respond(request)
        except ConnectionError:
            raise  # the client disconnected in the middle of a page: no error of ours to log
        except web.HTTPRequestEntityTooLarge as error:
            response = status_body(413, "RequestEntityTooLarge", str(error.text))
        except web.RequestPayloadError as error:
            response = status_body(400, "BadRequest", f"the body cannot be read: {error}")
        except Exception as error:
            log.error("A page failed", err=error, trace=True, path=request.path)
            response = status_body(
                500,
                "InternalError",
                "This request caused apiserver to panic. Look in the logs for details.",
            )
        if not response.prepared:
            response.headers.update(CACHE_CONTROL)
        if detail := log.v(4):
            detail.info(
                "HTTP",
                verb=request.method,
                URI=request.path_qs,
                latency=f"{(time.perf_counter() - started) * 1000:.3f}ms",
                userAgent=request.headers.get("User-Agent", ""),
                srcIP=request.remote,
                resp=response.status,
            )
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        for section in self._sections:
            if request.path.startswith(section.path):
                return await self._respond_in(section, request)
            if f"{request.path}/" == section.path:
                return web.Response(status=301, headers={"Location": section.path})
        refusal = await self._refusal(request, request.headers, request.path)
        if refusal is not None:
            return refusal
        # Only now: a caller without authorization must not learn which paths exist.
        page = self._pages.get(request.path)
        if page is None:
            return not_found()
        response = page(request)
        return await response if isinstance(response, Awaitable) else response

    async def _respond_in(self, section: Section, request: web.BaseRequest) -> web.StreamResponse:
        response = await section.open_page(request)
        if response is not None:
            return response
        headers = CIMultiDict(request.headers)
        headers.update(section.credentials(request))
        refusal = await self._refusal(request, CIMultiDictProxy(headers), section.path)
        if refusal is not None:
            return section.refuse(request, refusal)
        return await section.respond(request)

    async def _refusal(
        self, request: web.BaseRequest, headers: CIMultiDictProxy[str], path: str
    ) -> web.Response | None:
        """Return the response to a caller who is not authorized for a path, else None."""
        verb = request.method.lower()
        transport = request.transport
        connection = None if transport is None else transport.get_extra_info("ssl_object")
        try:
            user = await self._authenticator.authenticate(headers, self._chains.of(connection))
        except NotAuthenticated as error:
            log.error("Unable to authenticate the request", err=error)
            return unauthorized()
        try:
            decision = await self._authorizer.authorize(user, verb, path)
        except ApiError as error:
            log.error("Unable to authorize the request", err=error, path=path)
            return plain(f'Internal Server Error: "{path}": {error}\n', status=500)
        if not decision.allowed:
            return forbidden(user.name, verb, path, decision.reason)
        return None

    def _mux(self) -> dict[str, Page]:
        sources = self._sources
        pages: dict[str, Page] = {
            **_metrics_pages(sources, self._slis),
            "/configz": lambda _: json_body(_configz(sources)),
        }
        for endpoint in self._health:
            pages[f"/{endpoint.name}"] = _health_root(endpoint)
            for check in endpoint.checks:
                pages[f"/{endpoint.name}/{check.name}"] = _health_check(endpoint, check.name)
        zpages = ZPages(
            sources.component,
            sources.flags,
            sources.binary_version,
            sources.emulation_version,
            self._listed_paths,
        )
        pages["/flagz"] = lambda request: zpages.flagz(request.headers.get("Accept", ""))
        pages["/statusz"] = lambda request: zpages.statusz(request.headers.get("Accept", ""))
        if sources.profiling:
            pages["/debug/flags/v"] = set_verbosity
            pages["/debug/flags"] = pages["/debug/flags/"] = flags_index
        return pages


def _metrics_pages(sources: EndpointSources, slis: HealthMetrics) -> dict[str, Page]:
    """Return the pages by path."""
    metrics = sources.metrics
    return {
        "/metrics": lambda request: _resettable(request, metrics.reset, metrics.expose),
        "/metrics/slis": lambda request: _resettable(
            request, slis.reset, lambda accept: expose(slis, accept)
        ),
        "/metrics/resources": lambda request: _resources(request, sources),
    }


def _resettable(
    request: web.BaseRequest,
    reset: Callable[[], None],
    expose_as: Callable[[str], tuple[bytes, str]],
) -> web.Response:
    """Answer GET with the metrics; DELETE resets them, as in kube-scheduler."""
    if request.method == "DELETE":
        reset()
        return plain("metrics reset\n")
    body, content_type = expose_as(request.headers.get("Accept", ""))
    response = web.Response(body=body, headers={"Content-Type": content_type})
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response


async def _resources(request: web.BaseRequest, sources: EndpointSources) -> web.StreamResponse:
    content_type = expose(_NOTHING, request.headers.get("Accept", ""))[1]
    response = web.StreamResponse(headers={**CACHE_CONTROL, "Content-Type": content_type})
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    await response.prepare(request)
    openmetrics = content_type.startswith("application/openmetrics-text")
    parts = write_pod_resources(
        sources.leader_pods() or (),
        openmetrics=openmetrics,
        partial_limits=sources.partial_limits,
    )
    async for part in parts:
        await response.write(part)
        await asyncio.sleep(0)
    await response.write_eof()
    return response


def _configz(sources: EndpointSources) -> dict[str, Any]:
    body: dict[str, Any] = {"componentconfig": sources.configz()}
    if (last := sources.last_reload()) is not None:
        body["lastReload"] = last
    if files := sources.plugin_files():
        body["pluginFiles"] = files
    return body


def _health_root(endpoint: HealthEndpoint) -> Page:
    return lambda request: endpoint.root(list(request.query.items()))


def _health_check(endpoint: HealthEndpoint, name: str) -> Page:
    return lambda _: endpoint.single(name) or not_found()
