"""One controller process from its options to its exit code.

    server ─► Lease ─► pods ─► custom resources ─► statuses, colocation, rebalancing

and the same in reverse.

No part depends on an orderly end: a process that is killed loses nothing but time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from proreus import __version__
from proreus.base import logs
from proreus.base.errors import ApiError, LeaseLost, ProreusError, explained
from proreus.base.metrics import expose
from proreus.client.credentials.authentication_health import AuthenticationHealth
from proreus.client.credentials.credential_loading import NoKubeconfig
from proreus.client.credentials.credential_loading import load as load_credentials
from proreus.client.http.request_headers import user_agent
from proreus.client.http.session import ApiClient
from proreus.client.http.write_fence import WriteFence
from proreus.client.leading.leader_election import LeaderElector, new_identity
from proreus.client.leading.leader_election_config import (
    LeaderCallbacks,
    LeaseOptions,
)
from proreus.client.watching.informer import Informer
from proreus.controller.colocation.colocation_controller import ColocationController
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.evictions.eviction_record import EvictionRecord
from proreus.controller.evictions.pod_evictor import PodEvictor
from proreus.controller.operator import OperatorThread
from proreus.controller.options import ControllerOptions
from proreus.controller.pod_group_status import PodGroupStatuses, VolcanoPodGroupStatuses
from proreus.controller.queue_status import kai_queues, volcano_queues
from proreus.controller.quota_status import ElasticQuotaStatuses
from proreus.controller.rebalancing.rebalancer import Rebalancer, settings_of
from proreus.controller.reservation_status import ReservationStatuses
from proreus.controller.status_reconciler import StatusReconciler
from proreus.controller.status_writer import StatusWriter
from proreus.objects.kinds import PODS
from proreus.objects.meta import Resource
from proreus.process.clients import Delegation, request_hooks
from proreus.process.emulation import version_to_emulate
from proreus.process.stopping import first_error, until_set
from proreus.server.health import HealthCheck
from proreus.server.options import AuthenticationOptions, AuthorizationOptions, ServingOptions
from proreus.server.responses import json_body
from proreus.server.server import EndpointSources, Server
from proreus.workbench.simulation.simulated_cluster import Settings

log = logs.logger(__name__)

STATUSES: dict[str, Callable[[], StatusReconciler[Any]]] = {
    "podgroups": PodGroupStatuses,
    "elasticquotas": ElasticQuotaStatuses,
    "reservations": ReservationStatuses,
    "volcano-podgroups": VolcanoPodGroupStatuses,
    "volcano-queues": volcano_queues,
    "kai-queues": kai_queues,
}
"""The reconciler of each kind of ``options.StatusKind``."""


async def run(options: ControllerOptions) -> int:
    """Run one controller; return 0 after SIGTERM or SIGINT, 1 after a lost Lease or an error."""
    logs.configure(options.v, options.logging_format)
    # The log of a simulated scheduler is about events that have not happened.
    logging.getLogger("proreus.engine").setLevel(logging.ERROR)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_, stopping.set)
    failure: tuple[str, BaseException] | None = None
    try:
        async with contextlib.AsyncExitStack() as stack:
            controller = await _Controller.make(options, stack)
            async with until_set(stopping):
                await controller.lead()
    except* LeaseLost as group:
        failure = "Leaderelection lost", first_error(group)
    except* ProreusError as group:
        failure = "The controller failed", first_error(group)
    if failure is not None:
        message, error = failure
        log.error(message, err=explained(error))
        return 1
    log.info("Requested to terminate, exiting")
    return 0


class _Controller:
    """The parts of a process, connected."""

    def __init__(
        self,
        options: ControllerOptions,
        metrics: ControllerMetrics,
        client: ApiClient,
        rebalancing: Settings | None,
    ) -> None:
        self._options = options
        self._metrics = metrics
        self._client = client
        self._kinds: list[StatusReconciler[Any]] = [STATUSES[name]() for name in options.statuses]
        self._writer = StatusWriter(client, self._kinds, metrics)
        # All pods, since groups count finished ones too.
        self._pods = Informer(client, PODS, on_error=_watch_failed)
        self._pods.add_handler(self._writer)
        record = EvictionRecord(client, options.leader_elect_resource_namespace)
        # For as long as budgets and cooldown need to know of an eviction.
        periods = options.cooldown, options.rebalance_period, options.colocation_period
        evictor = PodEvictor(client, record, metrics, max(periods))
        self._rebalancer: Rebalancer | None = None
        if rebalancing is not None:
            self._rebalancer = Rebalancer(client, rebalancing, options, evictor, metrics)
        self._colocation: ColocationController | None = None
        if options.colocation_period:
            self._colocation = ColocationController(
                client, options, self._pods.store.values, evictor, metrics
            )
        self._leading = asyncio.Event()
        self._elector: LeaderElector | None = None

    @classmethod
    async def make(
        cls, options: ControllerOptions, stack: contextlib.AsyncExitStack
    ) -> _Controller:
        """Return a controller with a listening server; ``stack`` closes its parts."""
        metrics, fence = ControllerMetrics(), WriteFence()
        hooks = request_hooks(metrics.process)
        connect = partial(load_credentials, options.kubeconfig, options.master)
        try:
            credentials, health = await connect(), AuthenticationHealth()
        except NoKubeconfig as error:
            error.remedy = "name a kubeconfig by --kubeconfig"
            raise

        async def client(purpose: str, of_fence: WriteFence | None = None) -> ApiClient:
            agent = user_agent(purpose)
            made = ApiClient(credentials, agent=agent, hooks=hooks, fence=of_fence, health=health)
            return await stack.enter_async_context(made)

        own = await client("controller", fence)
        rebalancing = None
        if options.rebalance_period:
            # Advice has to hold for the scheduler of this cluster, which is not newer.
            version = await version_to_emulate(own)
            rebalancing = settings_of(options.rebalance_config, version, options.plugin_dir)
        controller = cls(options, metrics, own, rebalancing)
        lease_client, reviews = await client("leader-election"), Delegation(await client("reviews"))
        lease = LeaseOptions(
            options.leader_elect_resource_namespace,
            options.leader_elect_resource_name,
            options.leader_elect_lease_duration,
            options.leader_elect_renew_deadline,
            options.leader_elect_retry_period,
        )
        callbacks = LeaderCallbacks(on_started_leading=controller._leading.set)
        controller._elector = LeaderElector(
            lease_client, new_identity(), lease, callbacks, fence=fence
        )
        authenticated = HealthCheck(
            "authentication", partial(health.problem, lease.lease_duration_seconds)
        )
        server = Server(
            ServingOptions(
                bind_address=options.bind_address,
                secure_port=options.secure_port,
                cert_dir=options.cert_dir,
                tls_cert_file=options.tls_cert_file,
                tls_private_key_file=options.tls_private_key_file,
                authentication=AuthenticationOptions(kubeconfig=options.kubeconfig),
                authorization=AuthorizationOptions(kubeconfig=options.kubeconfig),
            ),
            EndpointSources(
                metrics=metrics.process,
                livez=(authenticated,),
                readyz=(authenticated, HealthCheck("pods-synced", controller._why_not_ready)),
                component="proreus-controller",
                binary_version=__version__,
                profiling=False,
            ),
            authentication_api=reviews,
            authorization_api=reviews,
        )
        server.add_page("/metrics", partial(_metrics_page, metrics))
        rebalancer = controller._rebalancer
        if rebalancer is not None:
            server.add_page("/rebalancing", lambda _: json_body(rebalancer.describe()))
        await stack.enter_async_context(server)
        return controller

    @property
    def _reads_pods(self) -> bool:
        return bool(self._kinds) or self._colocation is not None

    def _why_not_ready(self) -> str | None:
        # One that stands by is ready: it has nothing to synchronize yet.
        if self._leading.is_set() and self._reads_pods and not self._pods.synced.is_set():
            return "pods are not synchronized"
        return None

    async def lead(self) -> None:
        """Acquire the Lease, then work until cancelled or the Lease is lost."""
        assert self._elector is not None
        election = asyncio.create_task(self._elector.run())
        work = asyncio.create_task(self._work())
        try:
            done, _ = await asyncio.wait([election, work], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            # The Lease last: until it is released nobody else begins.
            for task in (work, election):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _work(self) -> None:
        await self._leading.wait()
        connect = partial(load_credentials, self._options.kubeconfig, self._options.master)
        async with asyncio.TaskGroup() as tasks:
            if self._reads_pods:
                tasks.create_task(self._pods.run(), name="pods")
                await self._pods.synced.wait()
                log.info("Pods are synchronized", pods=len(self._pods.store))
            if self._kinds:
                operator = OperatorThread(self._kinds, self._writer, connect)
                tasks.create_task(operator.run(), name="kopf")
                tasks.create_task(self._writer.run(), name="statuses")
            if self._colocation is not None:
                tasks.create_task(self._colocation.run(), name="colocation")
            if self._rebalancer is not None:
                tasks.create_task(self._rebalancer.run(), name="rebalancing")


def _watch_failed(resource: Resource[Any], error: ApiError) -> bool:
    log.error("A resource cannot be watched", resource=resource.plural, err=error)
    return True


def _metrics_page(metrics: ControllerMetrics, request: web.BaseRequest) -> web.Response:
    body, content_type = expose(metrics, request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})
