"""Connections to the apiserver: one pool for each purpose, so that none can starve another."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import msgspec

from proreus.app.options import RunOptions
from proreus.client.credentials import Credentials
from proreus.client.credentials import load as load_credentials
from proreus.client.request_headers import user_agent
from proreus.client.responses import read_json
from proreus.client.session import ApiClient, RequestHooks
from proreus.config.types import SchedulerConfiguration
from proreus.errors import ConfigError
from proreus.metrics import SchedulerMetrics


@dataclass(frozen=True)
class Clients:
    """One connection pool for each purpose, so that none can starve another."""

    main: ApiClient
    events: ApiClient
    lease: ApiClient
    authentication: Delegation | None
    authorization: Delegation | None


async def make_clients(
    options: RunOptions,
    config: SchedulerConfiguration,
    metrics: SchedulerMetrics,
    stack: contextlib.AsyncExitStack,
) -> Clients:
    """Make all connection pools; ``stack`` closes them. Raises ``ConfigError``."""
    credentials = await load_credentials(config.client_connection.kubeconfig, options.master)
    hooks = request_hooks(metrics)

    async def client(component: str, of: Credentials = credentials) -> ApiClient:
        made = ApiClient(of, agent=user_agent(component), hooks=hooks)
        return await stack.enter_async_context(made)

    async def delegate(kubeconfig: str) -> Delegation | None:
        try:
            of = await load_credentials(kubeconfig) if kubeconfig else await load_credentials()
        except ConfigError:
            if kubeconfig:
                raise
            return None
        return Delegation(await client("delegation", of))

    serving = options.serving
    return Clients(
        main=await client("scheduler"),
        events=await client("events"),
        lease=await client("leader-election"),
        authentication=await delegate(serving.authentication.kubeconfig),
        authorization=await delegate(serving.authorization.kubeconfig),
    )


class Delegation:
    """Implements ``server.delegation.ApiAccess`` over one of our clients."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return what the apiserver made of it."""
        answer = await self._client.request("POST", path, msgspec.json.encode(body))
        return read_json(answer)

    async def get(self, path: str) -> dict[str, Any]:
        """Return an object."""
        return read_json(await self._client.request("GET", path))


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
        if verb != "WATCH":  # how long a watch lasts says nothing about the apiserver
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
