"""One scheduler process from start to end: ``run`` is the order in which things come and go.

Everything is made here and handed down; the rooms below do not look for each other. The order is
kube-scheduler's (configuration, clients, engine, server, informers, Lease, loop), and so are the
exit codes, but that a signal ends with 0 also without leader election.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proreus import logs
from proreus.client.session import ApiClient, RequestHooks
from proreus.errors import LeaseLost, ProreusError
from proreus.feature_gates import FeatureGates
from proreus.logs import Format
from proreus.metrics import SchedulerMetrics
from proreus.server.options import ServingOptions

log = logs.logger(__name__)


@dataclass(frozen=True)
class RunOptions:
    """The flags of ``proreus run``, checked; see ``cli/run_flags.py`` for what each means.

    ``kube_api_qps``, ``kube_api_burst``: None when not given. ``leader_election``: the values that
    were given on the command line, by field of ``config.types.LeaderElection``; they override the
    file. ``flags``: every flag as text, for /flagz. ``assumed_pod_expiration_seconds``: None for
    never. ``version`` is the reported git version without its v.
    """

    config: str = ""
    write_config_to: str = ""
    master: str = ""
    kubeconfig: str = ""
    profiling: bool = True
    kube_api_qps: float | None = None
    kube_api_burst: int | None = None
    max_unschedulable_seconds: float = 300.0
    assumed_pod_expiration_seconds: float | None = None
    leader_election: Mapping[str, Any] = field(default_factory=dict)
    serving: ServingOptions = field(default_factory=ServingOptions)
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    disabled_metrics: tuple[str, ...] = ()
    allow_metric_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    verbosity: int = 0
    vmodule: str = ""
    logging_format: Format = "text"
    flags: Mapping[str, str] = field(default_factory=dict)
    flags_without_effect: tuple[str, ...] = ()
    version: str = "1.36.0"


async def run(options: RunOptions) -> int:
    """Run one scheduler process; return its exit code.

    0 after SIGTERM or SIGINT, 1 after a lost Lease or an error, which is one sentence in the log. A
    second signal ends the process with 1 on the spot.
    """
    logs.configure(options.verbosity, options.logging_format, options.vmodule)
    if options.flags_without_effect:
        log.warning("Flags without effect in proreus", flags=list(options.flags_without_effect))
    stopping = asyncio.Event()
    failure: tuple[str, BaseException] | None = None
    with _signals(stopping):
        try:
            await _run_until(stopping, options)
        except* LeaseLost as group:
            failure = "Leaderelection lost", _first(group)
        except* ProreusError as group:
            failure = "command failed", _first(group)
    if failure is not None:
        message, error = failure
        log.error(message, err=error)
        return 1
    log.info("Requested to terminate, exiting")
    return 0


async def _run_until(stopping: asyncio.Event, options: RunOptions) -> None:
    """Start, schedule until ``stopping`` is set, and stop in good order.

    Not wired yet. To stand here, in this order, each on the shoulders of the one before:

    1. configuration: ``--config`` or the defaults, flags over it, checked
    2. metrics, with versions and feature gates told
    3. credentials and clients: one to schedule with, one for Events, one for the Lease, and those
       of the delegated authentication and authorization (``Delegation``)
    4. the engine: profiles, cache, queue; informers registered, not started
    5. ``--write-config-to``: write the completed configuration and return
    6. the event recorder, then the HTTPS server
    7. informers, until their caches are in sync (after 8 if delayCacheUntilActive)
    8. the Lease, if leader election is on
    9. the clock's ticks and the scheduling loop

    and then in reverse: pop no more pods, let bindings end or be undone, flush Events, release the
    Lease, stop serving.
    """
    raise NotImplementedError("the process is not wired yet")


class Delegation:
    """Implements ``server.delegation.ApiAccess`` over one of our clients."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return what the apiserver made of it."""
        answer = await self._client.request("POST", path, msgspec.json.encode(body))
        return msgspec.json.decode(answer, type=dict[str, Any])

    async def get(self, path: str) -> dict[str, Any]:
        """Return an object."""
        return msgspec.json.decode(await self._client.request("GET", path), type=dict[str, Any])


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


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    """Turn the first SIGTERM or SIGINT into an orderly stop, and the second into an end."""

    def received() -> None:
        if stopping.is_set():
            os._exit(1)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group: with it things began to end."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
