"""Connections to the apiserver: one pool for each purpose, so that none can starve another."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.base.metrics import SchedulerMetrics
from proreus.client.credentials.authentication_health import AuthenticationHealth
from proreus.client.credentials.credential_loading import NoKubeconfig
from proreus.client.credentials.credential_loading import load as load_credentials
from proreus.client.credentials.credentials import Credentials
from proreus.client.http.request_headers import user_agent
from proreus.client.http.responses import read_json
from proreus.client.http.session import ApiClient, RequestHooks
from proreus.client.http.write_fence import WriteFence
from proreus.client.writing.request_window import Priority, RequestWindow
from proreus.config.types import SchedulerConfiguration
from proreus.process.options import RunOptions

log = logs.logger(__name__)


class Clients(Struct, frozen=True):
    """One connection pool for each purpose, so that none can starve another.

    ``connect_for_lease`` must be called on the loop that renews the Lease: credentials and
    connections belong to the loop that they were made on. ``fence`` stops all other writes.
    ``health``: of our requests, and of those for the Lease.
    """

    main: ApiClient
    events: ApiClient
    connect_for_lease: Callable[[], AbstractAsyncContextManager[ApiClient]]
    fence: WriteFence
    authentication: Delegation | None
    authorization: Delegation | None
    health: tuple[AuthenticationHealth, ...]

    def authentication_problem(self, at_most_seconds: float) -> str | None:
        """Return a sentence if our requests have been refused for longer than that."""
        problems = (one.problem(at_most_seconds) for one in self.health)
        return next(filter(None, problems), None)


async def make_clients(
    options: RunOptions,
    config: SchedulerConfiguration,
    metrics: SchedulerMetrics,
    stack: contextlib.AsyncExitStack,
) -> Clients:
    """Make all connection pools; ``stack`` closes them. Raises ``ConfigError``."""
    if ignored := ignored_settings(options, config, os.environ):
        log.warning("Settings are ignored", **ignored)
    load_ours = partial(load_credentials, config.client_connection.kubeconfig, options.master)
    with _naming("--kubeconfig, or by clientConnection.kubeconfig beside --config"):
        credentials = await load_ours()
    hooks, fence = request_hooks(metrics), WriteFence()
    health, lease_health = AuthenticationHealth(), AuthenticationHealth()
    hooks_from_elsewhere = _hooks_on(asyncio.get_running_loop(), hooks)

    async def client(
        component: str,
        of: Credentials = credentials,
        fence: WriteFence | None = None,
        health: AuthenticationHealth | None = None,
    ) -> ApiClient:
        agent = user_agent(component)
        made = ApiClient(of, agent=agent, hooks=hooks, fence=fence, health=health)
        return await stack.enter_async_context(made)

    @contextlib.asynccontextmanager
    async def connect_for_lease() -> AsyncIterator[ApiClient]:
        agent = user_agent("leader-election")
        async with ApiClient(
            await load_ours(), agent=agent, hooks=hooks_from_elsewhere, health=lease_health
        ) as made:
            yield made

    async def delegate(flag: str, kubeconfig: str) -> Delegation | None:
        try:
            with _naming(flag):
                of = await load_credentials(kubeconfig)
        except ConfigError:
            # Without a kubeconfig, in-cluster credentials are a default that may be missing.
            if kubeconfig:
                raise
            return None
        return Delegation(await client("delegation", of))

    serving = options.serving
    return Clients(
        main=await client("scheduler", fence=fence, health=health),
        events=await client("events", fence=fence, health=health),
        connect_for_lease=connect_for_lease,
        fence=fence,
        authentication=await delegate(
            "--authentication-kubeconfig", serving.authentication.kubeconfig
        ),
        authorization=await delegate(
            "--authorization-kubeconfig", serving.authorization.kubeconfig
        ),
        health=(health, lease_health),
    )


@contextlib.contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Say how a kubeconfig that is not there is named."""
    try:
        yield
    except NoKubeconfig as error:
        error.remedy = f"name a kubeconfig by {flag}"
        raise


def ignored_settings(
    options: RunOptions, config: SchedulerConfiguration, environ: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return flags and variables without effect, and the fields to write instead; or nothing."""
    connection = config.client_connection
    instead: dict[str, str] = {}
    if options.config:
        for flag, given, used, field in (
            ("--kubeconfig", options.kubeconfig, connection.kubeconfig, "kubeconfig"),
            ("--kube-api-qps", options.kube_api_qps, connection.qps, "qps"),
            ("--kube-api-burst", options.kube_api_burst, connection.burst, "burst"),
        ):
            if given not in ("", None, used):
                instead[flag] = f"clientConnection.{field}"
        if config.enable_profiling and not options.profiling:
            instead["--profiling"] = "enableProfiling"
    if environ.get("KUBECONFIG") and not (connection.kubeconfig or options.master):
        field = "clientConnection.kubeconfig" if options.config else "--kubeconfig"
        instead["KUBECONFIG"] = field
    if not instead:
        return {}
    return {"ignored": list(instead), "instead": list(dict.fromkeys(instead.values()))}


class Delegation:
    """Implements ``server.delegation.ApiAccess`` over one of our clients."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return it as the apiserver stored it."""
        response = await self._client.request("POST", path, msgspec.json.encode(body))
        return read_json(response)

    async def get(self, path: str) -> dict[str, Any]:
        """Return an object."""
        return read_json(await self._client.request("GET", path))


def call_on(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *args: Any) -> None:
    """Call a function on the loop of another thread, unless that loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *args)


def _hooks_on(loop: asyncio.AbstractEventLoop, hooks: RequestHooks) -> RequestHooks:
    """Return hooks for another thread: metrics have no lock and belong to one thread."""
    return RequestHooks(
        on_request=partial(call_on, loop, hooks.on_request),
        on_retry=partial(call_on, loop, hooks.on_retry),
        on_throttle=partial(call_on, loop, hooks.on_throttle),
    )


def show_request_window(window: RequestWindow, metrics: SchedulerMetrics) -> None:
    """Let metrics show the state of a window."""
    metrics.request_window.set_function(lambda: {(): window.limit})
    metrics.request_window_in_flight.set_function(lambda: {(): window.in_flight})
    metrics.request_window_waiting.set_function(
        lambda: {(one.name.lower(),): window.waiting(one) for one in Priority}
    )
    metrics.request_window_shrinks_total.set_function(
        lambda: {(reason,): count for reason, count in window.shrinks.items()}
    )


def request_hooks(metrics: SchedulerMetrics) -> RequestHooks:
    """Return the hooks that let a client's requests be counted as rest_client_*."""
    requests = metrics.rest_client_requests_total.labels
    durations = metrics.rest_client_request_duration_seconds.labels
    sent_sizes = metrics.rest_client_request_size_bytes.labels
    received_sizes = metrics.rest_client_response_size_bytes.labels
    throttled = metrics.rest_client_rate_limiter_duration_seconds.labels

    def on_request(
        code: str, method: str, verb: str, host: str, seconds: float, sent: int, received: int
    ) -> None:
        requests(code, method, host).inc()
        # The duration of a watch says nothing about the apiserver.
        if verb != "WATCH":
            durations(verb, host).observe(seconds)
            received_sizes(verb, host).observe(received)
        if sent:
            sent_sizes(verb, host).observe(sent)

    return RequestHooks(
        on_request=on_request,
        on_retry=lambda code, verb, host: metrics.rest_client_request_retries_total.labels(
            code, verb, host
        ).inc(),
        on_throttle=lambda verb, host, seconds: throttled(verb, host).observe(seconds),
    )
