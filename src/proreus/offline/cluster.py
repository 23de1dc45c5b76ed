"""An offline cluster: the real scheduler with an API in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from math import floor
from time import perf_counter
from typing import Any

from proreus.base.clock import FakeClock
from proreus.base.feature_gates import FeatureGates
from proreus.base.metrics import SchedulerMetrics
from proreus.client.http.http_get import http_get
from proreus.config.types import SchedulerConfiguration
from proreus.engine.assembly import Assembly
from proreus.engine.environment import Environment
from proreus.engine.extenders.extender import TransportFactory, new_transport
from proreus.engine.guards.avoided_nodes import NEVER_AVOID, AvoidanceRules
from proreus.engine.runtime.plugin_health import (
    DEFAULT_RULES,
    CurrentCall,
    EventSink,
    FailureRules,
    HealthContext,
    discard_event,
)
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.select_host import SelectHost
from proreus.framework.attempt_budget import Stopwatch
from proreus.framework.handle import HttpGet
from proreus.framework.queued_pod_group import QueuedEntityInfo
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.offline.api import FakeRecorder, InMemoryApi
from proreus.offline.virtual_time import VirtualTimeLoop

_START = 1_700_000_000.0
_EPSILON = 1e-6


@dataclass(frozen=True)
class OfflineOptions:
    """Options of an offline cluster.

    ``seed``: of all random choices. ``hide_finished``: finished pods are deleted, as the field
    selector of the live watch makes them appear. ``select_host``: the choice among the nodes with
    the highest score, random by default. ``use_extenders``: call the configured HTTP extenders.
    ``extender_transport``: makes the connections to one. ``polls_only``: see ``Environment``.
    ``rules`` and ``record_event``: limits for out-of-tree plugins, and the receiver of the Events
    about exceeding them. ``stopwatch``: measures the computing time of an attempt, in seconds.
    ``avoidance_rules``: when pods avoid nodes whose kubelets reject them; never by default.
    ``start_seconds``: the clock at the start, in seconds since the epoch. ``http_get``: answers
    plugins that read from other servers.
    ``shares_nodes``, ``delete_overcommitting_pods``: see ``Environment``.
    ``decision_record_bytes``: what the record of decisions may take; 0 = none is kept.
    ``current_call``: learns which out-of-tree plugin is called.
    """

    seed: int = 0
    hide_finished: bool = True
    select_host: SelectHost | None = None
    use_extenders: bool = False
    extender_transport: TransportFactory = new_transport
    polls_only: bool = False
    rules: FailureRules = DEFAULT_RULES
    record_event: EventSink = discard_event
    stopwatch: Stopwatch = perf_counter
    avoidance_rules: AvoidanceRules = NEVER_AVOID
    shares_nodes: bool = False
    start_seconds: float = _START
    http_get: HttpGet = http_get
    delete_overcommitting_pods: bool = False
    decision_record_bytes: int = 0
    current_call: CurrentCall = field(default_factory=CurrentCall)


class OfflineCluster:
    """Objects in memory and a scheduler that watches them.

    Needs a running event loop: binding cycles are tasks, which ``settle`` runs. Virtual time
    passes only in ``advance``.
    """

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        registry: Registry,
        feature_gates: FeatureGates,
        options: OfflineOptions = OfflineOptions(),
        api: InMemoryApi | None = None,
    ) -> None:
        self._start = options.start_seconds
        self.clock = FakeClock(self._start)
        self._milliseconds = 0
        self.api = InMemoryApi(options.hide_finished) if api is None else api
        self.events = FakeRecorder()
        self.metrics = SchedulerMetrics(version=feature_gates.emulation_version)
        self.tasks = SpawnedTasks()
        health_context = HealthContext(
            self.clock,
            self.metrics,
            options.rules,
            options.record_event,
            current_call=options.current_call,
        )
        self.tracebacks = health_context.tracebacks
        """The log of what plugins raise."""
        self.assembly = Assembly(
            configuration,
            registry,
            Environment(
                api=self.api,
                event_recorder=self.events,
                stores=self.api,
                clock=self.clock,
                rng=random.Random(options.seed),
                metrics=self.metrics,
                feature_gates=feature_gates,
                spawn=self.tasks.spawn,
                use_extenders=options.use_extenders,
                extender_transport=options.extender_transport,
                polls_only=options.polls_only,
                health_context=health_context,
                stopwatch=options.stopwatch,
                avoidance_rules=options.avoidance_rules,
                shares_nodes=options.shares_nodes,
                http_get=options.http_get,
                delete_overcommitting_pods=options.delete_overcommitting_pods,
            ),
            select_host=options.select_host,
        )
        self.scheduler = self.assembly.scheduler
        self.recorder: DecisionRecorder | None = None
        if options.decision_record_bytes:
            self.recorder = DecisionRecorder.of(
                self.scheduler, self.clock, options.decision_record_bytes
            )
        self.feature_gates = feature_gates

    def advance(self, seconds: float) -> None:
        """Move the clock on; the scheduler ticks at every whole second on the way."""
        # In whole milliseconds, because rounding errors of a sum of floats would skip a tick.
        self._milliseconds += round(seconds * 1000)
        end = self._start + self._milliseconds / 1000
        while floor(self.clock.monotonic()) + 1 <= end:
            self.clock.advance_to(floor(self.clock.monotonic()) + 1)
            self.assembly.housekeeping.tick()
        self.clock.advance_to(end)

    async def pass_time(self, seconds: float) -> None:
        """Advance the clock, and run due work on the way, every second and at each timer.

        For a cluster in a ``VirtualTimeLoop`` that uses its clock.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self._milliseconds += round(seconds * 1000)
        end = self._start + self._milliseconds / 1000
        while True:
            second = floor(self.clock.now()) + 1
            timer = loop.next_timer()
            stop = second if timer is None else min(second, timer)
            if stop > end:
                break
            # A little later: a timer must not wait for the last digits of a sum of floats.
            self.clock.advance_to(max(stop, self.clock.now()) + _EPSILON)
            await self.settle()
            if stop == second:
                self.assembly.housekeeping.tick()
                await self.settle()
        self.clock.advance_to(max(end, self.clock.now()))

    async def schedule_next(self) -> tuple[str, str] | None:
        """Schedule the next pod and settle; return its key and node name (empty: no node), or None.

        A pod whose binding failed has no node. Of a group: the key of its first pod. None means
        that the active queue is empty.
        """
        queued = self.scheduler.queue.pop()
        return None if queued is None else await self.schedule_popped(queued)

    async def schedule_popped(self, queued: QueuedEntityInfo) -> tuple[str, str]:
        """Schedule a popped pod or group; see ``schedule_next``."""
        # kube-scheduler updates the node order in every cycle; ours is updated when it is read,
        # which a cycle does not do if every result is cached.
        self.scheduler.cache.node_order()
        node_name = await self.scheduler.schedule_one(queued)
        await self.settle()
        if node_name and self.scheduler.cache.get_pod(queued.uid) is None:
            return queued.key, ""
        return queued.key, node_name

    async def settle(self) -> None:
        """Run background tasks until all are done or wait for an event.

        Raises the first exception of a task, which would end the process of a live scheduler.
        """
        await self.tasks.settle()
        if self.tasks.failures:
            raise self.tasks.failures.pop(0)


_MAX_ROUNDS = 50


class SpawnedTasks:
    """Tasks until they have ended. ``failures`` has the exceptions that ended tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run a coroutine (``Environment.spawn``)."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def settle(self) -> None:
        """Let tasks run until all are done or wait for an event."""
        for _ in range(_MAX_ROUNDS):
            if not self._tasks:
                break
            await asyncio.sleep(0)

    async def ended(self) -> None:
        """Wait until all tasks have ended, including tasks that they spawned."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)
