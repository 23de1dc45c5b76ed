"""The parts of a running scheduler, and the order in which they start and end.

    start   watchdog, Events, reloading
            informers synced ─► Lease ─► ticks, scheduling; server
            (with delayCacheUntilActive: Lease ─► informers)
    end     /readyz fails ─► no more pops ─► bindings end ─► Events written ─► fence closed ─►
            Lease released ─► server, and everything else at once

The socket is opened first: a replica that cannot serve must not lead. The server starts with the
scheduling, or after a second if that has to wait: to import it earlier would make the first binding
come half as late again. The Lease is released after the last write:
until then no other process may lead. Bindings under way get 20 s to finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from proreus.base import logs
from proreus.base.clock import Clock, RealClock
from proreus.base.metrics import SchedulerMetrics
from proreus.client.watching.informer_factory import InformerFactory
from proreus.client.watching.store_comparer import StoreComparer
from proreus.client.writing.dispatcher import Dispatcher, DispatcherOptions
from proreus.client.writing.event_bodies import ObjectReference
from proreus.client.writing.event_recorder import EventRecorder
from proreus.client.writing.rate_limiter import RateLimiter
from proreus.client.writing.request_window import RequestWindow
from proreus.config.types import ClientConnection, SchedulerConfiguration
from proreus.engine.assembly import Assembly
from proreus.engine.debugger.debugger import CacheDebugger
from proreus.engine.environment import Environment
from proreus.engine.extenders.extender import whole_types
from proreus.engine.runtime.plugin_health import HealthContext
from proreus.engine.runtime.registry import Registry
from proreus.engine.scheduler import Scheduler
from proreus.framework.attempt_budget import CpuTime
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.objects.kinds import LEASES
from proreus.process import gc_tuning
from proreus.process.active_configuration import ActiveConfiguration
from proreus.process.clients import Clients, show_request_window
from proreus.process.election_thread import ElectionThread, make_election
from proreus.process.informer_sync import InformerSync
from proreus.process.loop_watchdog import LoopWatchdog, StuckCycle
from proreus.process.options import RunOptions
from proreus.process.process_state import ProcessState
from proreus.process.process_tasks import ProcessTasks
from proreus.process.remote_plugins import RemotePlugins
from proreus.process.stopping import until_set
from proreus.server.listener import open_listener

if TYPE_CHECKING:
    from proreus.server.server import Server

log = logs.logger(__name__)

_BINDINGS_SECONDS = 20.0
_CANCEL_SECONDS = 2.0
_PODS_NAMED = 20
_EVENTS_SECONDS = 3.0
_RELEASE_SECONDS = 5.0
_RETURN_MEMORY_SECONDS = 60
_SERVER_WAITS_SECONDS = 1.0
"""Time limit for the server to wait until scheduling begins; nobody probes a container earlier."""


Tasks = Callable[[], set[asyncio.Task[None]]]


@dataclass(frozen=True)
class Foundation:
    """The foundation of a process: options, configuration, plugins, and clients."""

    options: RunOptions
    config: SchedulerConfiguration
    registry: Registry
    metrics: SchedulerMetrics
    clients: Clients
    remote_plugins: RemotePlugins
    watchdog: LoopWatchdog


class Process:
    """One scheduler with everything around it."""

    def __init__(self, on: Foundation) -> None:
        self._foundation = on
        self._options, self._metrics, self._clients = on.options, on.metrics, on.clients
        self._watchdog = on.watchdog
        on.watchdog.release = self._give_up
        self.blocked_plugins = on.watchdog.blocked_plugins
        self.state = ProcessState(on.config)
        self.synced = asyncio.Event()
        self._scheduling_began = asyncio.Event()
        self._clock = RealClock()
        self._tasks = ProcessTasks()
        self._election: ElectionThread | None = None
        dispatcher, self._events = make_writers(on, self._clock)
        sent_whole = whole_types(on.config.extenders)
        self._informer_sync = InformerSync(
            partial(
                InformerFactory,
                on.clients.main,
                types=sent_whole,
                metrics=on.metrics,
                kubernetes_version=on.options.feature_gates.emulation_version,
            )
        )
        self.stores = self._informer_sync.stores
        """The informers, each with its objects."""
        self._assembly = Assembly(
            on.config,
            on.registry,
            self._environment(dispatcher),
            unschedulable_timeout_seconds=on.options.max_unschedulable_seconds,
            assumed_ttl_seconds=on.options.assumed_pod_expiration_seconds,
        )
        self._scheduler = scheduler = self._assembly.scheduler
        self.configuration = ActiveConfiguration(
            self.state, self._assembly, self._informer_sync, sent_whole
        )
        self._stuck_cycle = StuckCycle(
            scheduler, on.watchdog, on.options.cycle_stuck_threshold_seconds
        )
        self.debugger = make_debugger(self._assembly, self.stores, on.metrics)
        self._recorder: DecisionRecorder | None = None
        if on.options.decision_record_bytes:
            self._recorder = DecisionRecorder.of(
                scheduler, self._clock, on.options.decision_record_bytes
            )
        on.metrics.scheduling_cycle_age_seconds.set_function(lambda: {(): scheduler.cycle_seconds})
        on.metrics.event_loop_tasks.set_function(lambda: {(): len(asyncio.all_tasks())})

    def _environment(self, dispatcher: Dispatcher) -> Environment:
        options, metrics, state = self._options, self._metrics, self.state
        return Environment(
            api=dispatcher,
            event_recorder=self._events,
            stores=self.stores,
            clock=self._clock,
            rng=random.Random(),
            metrics=metrics,
            feature_gates=options.feature_gates,
            spawn=self._tasks.spawn,
            informers=self.stores.group,
            health_context=HealthContext(
                self._clock,
                metrics,
                options.plugin_rules,
                self.record_process_event,
                current_call=self._watchdog.current_call,
            ),
            avoidance_rules=options.avoidance_rules,
            shares_nodes=True,
            delete_overcommitting_pods=options.delete_overcommitting_pods,
            leads=lambda: state.leads,
            cpu_time=CpuTime(),
        )

    # ---- start and end -------------------------------------------------------------------------

    async def run(
        self, stopping: asyncio.Event, reloading: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Start everything, wait for ``stopping``, and end everything in reverse.

        ``reloading`` runs alongside and uses ``configuration``. A part that fails ends all others.
        """
        listener = open_listener(self._options.serving)
        async with self._tasks:
            self._tasks.start("loop watchdog", self._watchdog.run(self._metrics))
            self._tasks.start("events", self._events.run())
            self._tasks.start("reloading", reloading())
            self._tasks.start("scheduling", self._lead_and_schedule())
            server: Server | None = None
            try:
                async with until_set(stopping):  # it asks the apiserver for the client CA
                    server = await self._new_server()
                    await server.start(listener)
                await stopping.wait()
                await self._shut_down(server.stop if server is not None else _nothing_to_stop)
            finally:
                if server is not None:
                    await server.stop()
                if listener is not None:
                    listener.close()
            self._tasks.cancel()

    async def _new_server(self) -> Server:
        # Not ``wait_for``: in Python 3.11 it loses a cancellation at the moment of the event, where
        # the very first attempt has ended the scheduling.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SERVER_WAITS_SECONDS):
                await self._scheduling_began.wait()
        # In a thread, so that pods are scheduled meanwhile.
        make_server = await asyncio.to_thread(_import_server)
        return make_server(
            self._foundation,
            self.state,
            self.stores,
            self._assembly,
            self._recorder,
            self._stuck_cycle,
        )

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
                await self._informer_sync.catch_up()
        if not warm:
            await self._fill_stores()
        self.state.leads = True
        self._scheduling_began.set()
        await self._scheduler.run()

    async def _fill_stores(self) -> None:
        """Start the informers and wait until each has synced."""
        self._tasks.start("informers", self.stores.group.run())
        await self._informer_sync.wait_for_first_lists()
        self.state.synced = True
        interval = self._options.cache_compare_interval_seconds
        self._tasks.start("cache debugger", self.debugger.run(interval, lambda: self.state.leads))
        self.synced.set()
        gc_tuning.freeze_startup_heap()
        self._tasks.start("ticks", self._tick())
        # Not before: the first lists block the loop for long, and nothing waits for it yet.
        self._watchdog.report()
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
        self.state.leader = self._election.leader
        self._tasks.start("leader election", self._election.run())
        await leading.wait()

    async def _shut_down(self, stop_server: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End scheduling, let Events be written, and release the Lease, in this order."""
        self.state.stopping = self._tasks.ending = True
        await end_scheduling(self._scheduler, self._scheduling_tasks)
        # Probes are answered until here. Requests in progress end while the rest does.
        serving = asyncio.ensure_future(stop_server())
        await self._events.flush(_EVENTS_SECONDS)
        # A binding that ignored its cancellation may still write, after the next leader has begun.
        self._clients.fence.close()
        await self._tasks.end("leader election")
        await serving

    def _scheduling_tasks(self) -> set[asyncio.Task[None]]:
        # Before it leads, the scheduling task waits for the Lease and has nothing to finish.
        parts = ("scheduling",) if self.state.leads else ()
        return self._tasks.unfinished(*parts)

    async def _tick(self) -> None:
        """Call ``Housekeeping`` at every whole second of the clock of its back-offs.

        Once a minute, memory that is free goes back to the operating system.
        """
        for seconds in itertools.count(1):
            await asyncio.sleep(1.0 - self._clock.monotonic() % 1.0)
            if self.state.leads:
                self._assembly.housekeeping.tick()
            else:
                # A standby parses and caches what tenants create for as long as it lives.
                self._assembly.housekeeping.age_caches()
            if seconds % _RETURN_MEMORY_SECONDS == 0:
                gc_tuning.return_free_memory()

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


def make_writers(on: Foundation, clock: Clock) -> tuple[Dispatcher, EventRecorder]:
    """Return the writers to the apiserver: of bindings and statuses, and of Events."""
    # Shared, since both clients write to the same apiserver.
    window, connection = RequestWindow(), on.config.client_connection
    show_request_window(window, on.metrics)
    gates = on.options.feature_gates
    dispatcher = Dispatcher(
        on.clients.main,
        rate_limiter=_rate(connection),
        window=window,
        options=DispatcherOptions.of(gates),
    )
    events = EventRecorder(
        on.clients.events,
        clock=clock,
        wait_until_idle=window.wait_until_idle,
        rate_limiter=_rate(connection),
        window=window,
        kubernetes_version=gates.emulation_version,
    )
    return dispatcher, events


def make_debugger(
    assembly: Assembly, stores: InformerFactory, metrics: SchedulerMetrics
) -> CacheDebugger:
    """Return the debugger, which compares cache and informers with the apiserver."""
    # Kept: a comparison learns from the one before how large its pages may be.
    comparer_of = cache(StoreComparer)
    scheduler = assembly.scheduler
    return CacheDebugger(
        comparer=assembly.comparer,
        stores=lambda: map(comparer_of, stores.group.by_kind.values()),
        cache=scheduler.cache,
        queue=scheduler.queue,
        between_cycles=scheduler.between_cycles,
        metrics=metrics,
        stopwatch=perf_counter,
        rng=random.Random(),
    )


async def end_scheduling(scheduler: Scheduler, tasks: Tasks) -> None:
    """Pop no more pods; wait up to 20 s for ``tasks``, then cancel the rest.

    ``tasks``: the scheduling loop and all tasks that it has spawned and that have not ended.
    """
    scheduler.stop()
    await _wait_for(tasks)
    if left := scheduler.pods_in_flight():
        log.warning(
            "Ending with pods in flight; the next scheduler will try them",
            count=len(left),
            pods=left[:_PODS_NAMED],
        )
    await _cancel(scheduler, tasks())


async def _wait_for(tasks: Tasks) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _BINDINGS_SECONDS
    # Called again each time: the current cycle may still start a binding.
    while working := tasks():
        left_seconds = deadline - loop.time()
        if left_seconds <= 0:
            return
        await asyncio.wait(working, timeout=left_seconds)


async def _cancel(scheduler: Scheduler, tasks: set[asyncio.Task[None]]) -> None:
    """Cancel everything that may still write, background work of plugins included."""
    for task in tasks:
        task.cancel()
    closing = asyncio.ensure_future(scheduler.close())
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
        if late:
            names = sorted(task.get_name() for task in late)
            log.error("Cancelled tasks are still running; they can no longer write", tasks=names)
    await closing


def _rate(connection: ClientConnection) -> RateLimiter:
    """Return the client-side rate that the configuration states; by default there is none."""
    assert connection.qps is not None  # filled in
    return RateLimiter(connection.qps, max(connection.burst, 1))


def _import_server() -> Callable[..., Server]:
    from proreus.process.endpoints import make_server

    return make_server


async def _nothing_to_stop() -> None:
    """Stand for the end of a server that was never started."""
