"""The parts of a running scheduler, and the order in which they start and end.

    start   watchdog, Events, reloading, server
            informers synced ─► Lease ─► ticks, scheduling
            (with delayCacheUntilActive: Lease ─► informers)
    end     /readyz fails ─► no more pops ─► bindings end ─► Events written ─► fence closed ─►
            Lease released ─► server, and everything else at once

The server starts while the informers fill, so that /healthz responds meanwhile. The Lease is
released after the last write: until then no other process may lead (``winding_down``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any

from proreus import gc_tuning, logs
from proreus.app.call_watchdog import CallWatchdog
from proreus.app.clients import Clients, show_request_window
from proreus.app.election_thread import ElectionThread, make_election
from proreus.app.loop_watchdog import LoopWatchdog, StuckCycle
from proreus.app.options import RunOptions
from proreus.app.process_state import ProcessState
from proreus.app.refused_watches import RefusedWatches
from proreus.app.remote_plugins import RemotePlugins
from proreus.app.stopping import until_set
from proreus.app.winding_down import end_scheduling
from proreus.client.dispatcher import Dispatcher
from proreus.client.event_bodies import ObjectReference
from proreus.client.event_recorder import EventRecorder
from proreus.client.informer_factory import InformerFactory
from proreus.client.rate_limiter import RateLimiter
from proreus.client.request_window import RequestWindow
from proreus.client.store_comparer import StoreComparer
from proreus.clock import RealClock
from proreus.config.types import ClientConnection, SchedulerConfiguration
from proreus.errors import ApiError, ConfigError
from proreus.metrics import SchedulerMetrics
from proreus.objects.kinds import LEASES
from proreus.objects.meta import Resource
from proreus.runtime.plugin_health import HealthContext
from proreus.runtime.registry import Registry
from proreus.scheduler.assembly import Assembly
from proreus.scheduler.debugger.debugger import CacheDebugger
from proreus.scheduler.debugger.dumper import CacheDumper
from proreus.scheduler.environment import Environment
from proreus.scheduler.extender import whole_types
from proreus.scheduler.profile_set import ProfileSet
from proreus.scheduler.shadow import ShadowLimits, ShadowTrial

if TYPE_CHECKING:
    from proreus.server.server import Server

log = logs.logger(__name__)

_EVENTS_SECONDS = 3.0
_SYNC_TIMEOUT_SECONDS = 30.0
_RELEASE_SECONDS = 5.0
_CATCH_UP_SECONDS = 30.0
"""How long a new leader waits for a watch that cannot be opened."""

_FIXED_AT_START = (
    "parallelism",
    "leader_election",
    "client_connection",
    "enable_profiling",
    "enable_contention_profiling",
    "delay_cache_until_active",
)
"""Fields of the configuration that are about the process."""


class Process:
    """One scheduler with everything around it."""

    def __init__(
        self,
        options: RunOptions,
        config: SchedulerConfiguration,
        registry: Registry,
        metrics: SchedulerMetrics,
        clients: Clients,
        remote_plugins: RemotePlugins,
        call_watchdog: CallWatchdog,
    ) -> None:
        self._options = options
        self._remote_plugins = remote_plugins
        self.blocked_plugins = call_watchdog.blocked_plugins
        call_watchdog.release = self._give_up
        self.state = ProcessState(config)
        self.synced = asyncio.Event()
        self._metrics = metrics
        self._clients = clients
        self._clock = RealClock()
        connection = config.client_connection
        # Shared, since both clients write to the same apiserver.
        window = RequestWindow()
        show_request_window(window, metrics)
        self._dispatcher = Dispatcher(clients.main, rate_limiter=_rate(connection), window=window)
        self._events = EventRecorder(
            clients.events,
            clock=self._clock,
            wait_until_idle=self._dispatcher.wait_until_idle,
            rate_limiter=_rate(connection),
            window=window,
        )
        self._whole_types = whole_types(config.extenders)
        self._stores = InformerFactory(
            clients.main,
            self._on_informer_error,
            self._whole_types,
            metrics,
            options.feature_gates.emulation_version,
        )
        self._refused_watches = RefusedWatches(lambda: self._stores.group.unsynced)
        self._background: set[asyncio.Task[None]] = set()
        self._election: ElectionThread | None = None
        self._watchdog = LoopWatchdog(options.loop_blocked_threshold_seconds, metrics)
        self._assembly = Assembly(
            config,
            registry,
            Environment(
                api=self._dispatcher,
                event_recorder=self._events,
                stores=self._stores,
                clock=self._clock,
                rng=random.Random(),
                metrics=metrics,
                feature_gates=options.feature_gates,
                spawn=self._spawn,
                informers=self._stores.group,
                health_context=HealthContext(
                    self._clock,
                    metrics,
                    options.plugin_rules,
                    self.record_process_event,
                    running_call=call_watchdog.running_call,
                ),
                avoidance_rules=options.avoidance_rules,
                shares_nodes=True,
                delete_overcommitting_pods=options.delete_overcommitting_pods,
                leads=lambda: self.state.leads,
            ),
            unschedulable_timeout_seconds=options.max_unschedulable_seconds,
            assumed_ttl_seconds=options.assumed_pod_expiration_seconds,
        )
        self._scheduler = self._assembly.scheduler
        self._stuck_cycle = StuckCycle(
            self._scheduler, self._watchdog, options.cycle_stuck_threshold_seconds
        )
        self.debugger = CacheDebugger(
            comparer=self._assembly.comparer,
            stores=lambda: map(StoreComparer, self._stores.group.by_kind.values()),
            dumper=CacheDumper(self._scheduler.cache, self._scheduler.queue),
            cycles=self._scheduler,
            metrics=metrics,
            stopwatch=perf_counter,
            rng=random.Random(),
        )
        metrics.scheduling_cycle_age.set_function(lambda: {(): self._scheduler.cycle_seconds})
        metrics.event_loop_tasks.set_function(lambda: {(): len(asyncio.all_tasks())})

    # ---- start and end -------------------------------------------------------------------------

    async def run(
        self, stopping: asyncio.Event, reloading: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Start everything, wait for ``stopping``, and end everything in reverse.

        ``reloading`` runs alongside and calls ``use``. Any part that fails ends all others: a
        process never runs without one of its parts.
        """
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._running: dict[str, asyncio.Task[None]] = {}
            self._start("loop watchdog", self._watchdog.run())
            self._start("events", self._events.run())
            self._start("reloading", reloading())
            self._start("scheduling", self._lead_and_schedule())
            server: Server | None = None
            try:
                async with until_set(stopping):  # it asks the apiserver for the client CA
                    server = await self._new_server()
                    await server.start()
                await stopping.wait()
                await self._shut_down(server.stop if server is not None else _nothing_to_stop)
            finally:
                if server is not None:
                    await server.stop()
            for task in (*self._running.values(), *self._background):
                task.cancel()

    async def _new_server(self) -> Server:
        # The HTTP server and its X.509 library take 60 ms to import. In a thread, so that the first
        # lists are requested meanwhile, and wait for the apiserver anyway.
        endpoints = await asyncio.to_thread(import_module, "proreus.app.endpoints")
        server: Server = endpoints.make_server(
            self._options,
            self.state,
            self._scheduler,
            self._stores,
            self._clients,
            self._remote_plugins,
            self._stuck_cycle,
            self.blocked_plugins,
        )
        return server

    async def wait_for_sync(self) -> None:
        """Return once every informer has handled its first list."""
        await self._stores.group.wait_for_sync()

    async def close(self) -> None:
        """Close connections that outlive ``run``; to be called also where ``run`` failed."""
        await self._scheduler.close()
        if self._election is not None:
            self._election.process_ended()

    def _give_up(self) -> None:
        """Write nothing more, and release the Lease; from any thread, within seconds."""
        self._clients.fence.close()
        if self._election is not None:
            self._election.give_up(_RELEASE_SECONDS)

    # ---- another configuration -----------------------------------------------------------------

    async def use(self, config: SchedulerConfiguration, registry: Registry) -> None:
        """Schedule by another configuration; raises ``ConfigError``, and then nothing has changed.

        Fields that concern the process rather than scheduling wait for the next start.
        """
        config = self._with_fixed_fields(config)
        if whole_types(config.extenders) != self._whole_types:
            raise ConfigError("extenders: the objects sent to these need a restart of proreus")
        profile_set = self._assembly.prepare(config, registry)
        try:
            await self._wait_for_sync(profile_set)
        except BaseException:
            profile_set.close()
            raise
        # A cycle in progress keeps its plugins: half an attempt by each configuration would mix
        # the CycleState of one set of plugins with the methods of another.
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scheduler.between_cycles(partial(self._take, config, profile_set, taken))
        await taken

    async def begin_shadow(
        self, config: SchedulerConfiguration, registry: Registry, limits: ShadowLimits
    ) -> ShadowTrial:
        """Try another configuration in parallel with the one in force; raises ``ConfigError``."""
        trial = self._assembly.prepare_shadow(config, registry, limits)
        try:
            await self._wait_for_sync(trial.profile_set)
        except BaseException:
            trial.close()
            raise
        trial.start_background_work()
        self._scheduler.shadow = trial
        return trial

    def end_shadow(self, trial: ShadowTrial) -> None:
        """Have it decide no more."""
        self._scheduler.shadow = None
        trial.close()

    def _with_fixed_fields(self, config: SchedulerConfiguration) -> SchedulerConfiguration:
        fixed = {name: getattr(self.state.config, name) for name in _FIXED_AT_START}
        changed = [n for n, value in fixed.items() if getattr(config, n) != value]
        if changed:
            names = [SchedulerConfiguration.model_fields[name].alias for name in changed]
            log.warning("These fields come into force at the next start", fields=names)
        return config.model_copy(update=fixed)

    async def _wait_for_sync(self, profile_set: ProfileSet) -> None:
        """Wait until the informers of all kinds that new plugins need are synced.

        An informer that cannot list now keeps trying: the next configuration may need it too. One
        that does not need it must not wait for it.
        """
        for resource in profile_set.kinds.values():
            self._stores.store(resource)
        group, needed = self._stores.group, profile_set.needed_kinds
        if not (self.state.synced and needed.intersection(group.unsynced)):
            return
        try:
            await asyncio.wait_for(group.wait_for_sync(needed), _SYNC_TIMEOUT_SECONDS)
        except TimeoutError:
            missing = ", ".join(kind for kind in group.unsynced if kind in needed)
            raise ConfigError(f"plugins need {missing}, which cannot be watched") from None

    def _take(
        self, config: SchedulerConfiguration, profile_set: ProfileSet, taken: asyncio.Future[None]
    ) -> None:
        if taken.cancelled():  # the process is about to end
            profile_set.close()
            return
        try:
            self._assembly.use(profile_set)
            self.state.config = config
        except Exception as error:
            taken.set_exception(error)
        else:
            taken.set_result(None)

    # ---- scheduling ----------------------------------------------------------------------------

    async def _lead_and_schedule(self) -> None:
        """Fill the informers, acquire the Lease, and schedule."""
        elect = self.state.config.leader_election.leader_elect
        # A standby with warm informers takes over within a second; with delayCacheUntilActive it
        # costs the apiserver no watches as long as it does not lead.
        warm = not (elect and self.state.config.delay_cache_until_active)
        if warm:
            await self._fill_stores()
        if elect:
            await self._take_the_lead()
            if warm:
                await self._catch_up()
        if not warm:
            await self._fill_stores()
        self.state.leads = True
        self._start("ticks", self._tick())
        await self._scheduler.run()

    async def _fill_stores(self) -> None:
        """Start the informers and wait until each has synced."""
        self._start("informers", self._stores.group.run())
        synced = asyncio.ensure_future(self._stores.group.wait_for_sync())
        refused = asyncio.ensure_future(self._refused_watches.raise_when_final())
        try:
            await asyncio.wait((synced, refused), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                await refused
        finally:
            synced.cancel()
            refused.cancel()
        self.state.synced = True
        interval = self._options.cache_compare_interval_seconds
        self._start("cache debugger", self.debugger.run(interval, lambda: self.state.leads))
        self.synced.set()
        gc_tuning.freeze_startup_heap()
        # Not before: the first lists block the loop for long, and nothing waits for it yet.
        if self._options.loop_blocked_threshold_seconds:
            self._watchdog.watch()
        log.info("Caches are synced", nodes=self._scheduler.cache.node_count)

    async def _take_the_lead(self) -> None:
        leading = asyncio.Event()
        self._election = make_election(
            self._clients,
            self.state.config.leader_election,
            self._metrics,
            leading.set,
            health_problem=self._stuck_cycle.problem,
            recorder=self._events,
            component=next(iter(self._scheduler.profiles)),
            clock=self._clock,
        )
        self._start("leader election", self._election.run())
        await leading.wait()

    async def _catch_up(self) -> None:
        """Wait until all watches are open.

        What a predecessor gave away while we did not see it would be given away again.
        """
        group = self._stores.group
        try:
            await asyncio.wait_for(group.wait_until_connected(), _CATCH_UP_SECONDS)
        except TimeoutError:
            missing = ", ".join(group.disconnected)
            log.warning("Leading, although not everything can be watched", kinds=missing)

    async def _shut_down(self, stop_server: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End scheduling, let Events be written, and release the Lease, in this order."""
        self.state.stopping = True
        await end_scheduling(self._scheduler, self._scheduling_tasks)
        # Probes are answered until here. Requests in progress end while the rest does.
        serving = asyncio.ensure_future(stop_server())
        await self._events.flush(_EVENTS_SECONDS)
        # A binding that ignored its cancellation may still write, after the next leader has begun.
        self._clients.fence.close()
        if election := self._running.get("leader election"):
            election.cancel()
            await asyncio.wait((election,))
        await serving

    def _scheduling_tasks(self) -> set[asyncio.Task[None]]:
        tasks = set(self._background)
        # Before it leads, the scheduling task waits for the Lease and has nothing to finish.
        if self.state.leads:
            tasks.add(self._running["scheduling"])
        return {task for task in tasks if not task.done()}

    async def _tick(self) -> None:
        """Call the scheduler's ``tick`` at every whole second of the clock of its back-offs."""
        while True:
            await asyncio.sleep(1.0 - self._clock.monotonic() % 1.0)
            self._scheduler.tick()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._running[name] = self._tasks.create_task(work, name=name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        try:
            task = self._tasks.create_task(work)
        except RuntimeError:
            # The process ends, and a binding that was cancelled wants its failure to be written.
            work.close()
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.set_result(None)
            return ended
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _on_informer_error(self, resource: Resource[Any], error: ApiError) -> None:
        # Decisions without a part of the cluster would be wrong: the first lists are waited for,
        # and those that stay refused end the process. Later, the reflector logs and tries again.
        if not self.state.synced:
            self._refused_watches.record(resource, error)

    def record_process_event(self, event_type: str, reason: str, note: str) -> None:
        """Record an Event about this process, on its Lease: the one object whose name is known.

        Events with different notes are kept apart: two faults are not one that occurred twice.
        """
        lease = self.state.config.leader_election
        about = (self._election and self._election.reference()) or ObjectReference(
            "Lease", lease.resource_name, lease.resource_namespace, "", LEASES.api_version, ""
        )
        component = next(iter(self._scheduler.profiles))
        self._events.event_about(
            about, event_type, reason, "Scheduling", note, component, distinct_by_note=True
        )


def _rate(connection: ClientConnection) -> RateLimiter:
    """Return the client-side rate that the configuration states; by default there is none."""
    return RateLimiter(connection.qps, max(connection.burst, 1))


async def _nothing_to_stop() -> None:
    """Stand for the end of a server that was never started."""
