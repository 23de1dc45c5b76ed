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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proreus import logs
from proreus.app.clients import make_clients
from proreus.app.options import RunOptions
from proreus.app.process import Process
from proreus.client.session import ApiClient
from proreus.config.load import default_configuration, load_file
from proreus.config.types import ClientConnection, SchedulerConfiguration
from proreus.config.write import to_yaml
from proreus.errors import ConfigError, Forbidden, LeaseLost, ProreusError
from proreus.feature_gates import GATES
from proreus.metrics import SchedulerMetrics
from proreus.plugins import IN_TREE
from proreus.runtime.expansion import in_use
from proreus.runtime.registry import Registry

log = logs.logger(__name__)

DEFAULT_QPS = 5000.0
DEFAULT_BURST = 10000
"""Where no rate is stated. kube-scheduler's 50 would be its bottleneck, and what protects the
apiserver since is its own priority and fairness."""

EMULATED_VERSION = "1.36"
MIN_COMPATIBILITY_VERSION = "1.35"


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
    """Start, schedule until ``stopping`` is set, and stop in good order."""
    registry = Registry(IN_TREE)
    config = _configuration(options, registry)
    metrics = _metrics(options)
    async with contextlib.AsyncExitStack() as stack:
        clients = await make_clients(options, config, metrics, stack)
        process = Process(options, config, registry, metrics, clients)
        stack.push_async_callback(process.close)
        if options.write_config_to:
            await _write_configuration(options.write_config_to, config)
            return
        await _reach(clients.main)
        await process.run(stopping)


def _configuration(options: RunOptions, registry: Registry) -> SchedulerConfiguration:
    """Return the completed configuration: the file or the defaults, with flags over it."""

    def override(config: SchedulerConfiguration) -> SchedulerConfiguration:
        election = config.leader_election.model_copy(update=dict(options.leader_election))
        return config.model_copy(update={"leader_election": election})

    gates = options.feature_gates
    if options.config:
        config = load_file(options.config, registry, gates, override)
    else:
        config = override(default_configuration(registry, gates))
        config = config.model_copy(update={"client_connection": _connection(options, config)})
    return in_use(_with_rate(config), registry)


def _with_rate(config: SchedulerConfiguration) -> SchedulerConfiguration:
    """Be generous where neither file nor flag states a rate, and say so wherever it is shown."""
    connection = config.client_connection
    generous = {"qps": DEFAULT_QPS, "burst": DEFAULT_BURST}
    update = {
        name: rate for name, rate in generous.items() if name not in connection.model_fields_set
    }
    return config.model_copy(update={"client_connection": connection.model_copy(update=update)})


def _connection(options: RunOptions, config: SchedulerConfiguration) -> ClientConnection:
    """Apply the flags that count only where there is no configuration file."""
    update: dict[str, Any] = {"kubeconfig": options.kubeconfig}
    if options.kube_api_qps is not None:
        update["qps"] = options.kube_api_qps
    if options.kube_api_burst is not None:
        update["burst"] = options.kube_api_burst
    return config.client_connection.model_copy(update=update)


def _metrics(options: RunOptions) -> SchedulerMetrics:
    metrics = SchedulerMetrics(options.disabled_metrics, options.allow_metric_labels)
    metrics.set_versions(options.version, EMULATED_VERSION, MIN_COMPATIBILITY_VERSION)
    gates = options.feature_gates
    metrics.set_features((name, gate.stage, gates.enabled(name)) for name, gate in GATES.items())
    return metrics


async def _reach(client: ApiClient) -> None:
    """Make sure that the apiserver is there and knows us, before anything else is begun."""
    with contextlib.suppress(Forbidden):
        await client.request("GET", "/version")


async def _write_configuration(path: str, config: SchedulerConfiguration) -> None:
    try:
        await asyncio.to_thread(Path(path).write_text, to_yaml(config))
    except OSError as error:
        raise ConfigError(f"--write-config-to {path}: {error.strerror or error}") from error
    log.info("Wrote configuration", file=path)


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
