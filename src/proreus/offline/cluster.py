"""An offline cluster: the real scheduler over an API in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine, Iterable
from math import floor
from time import perf_counter
from typing import Any

from proreus.clock import FakeClock
from proreus.config.types import SchedulerConfiguration
from proreus.feature_gates import FeatureGates
from proreus.framework.attempt_budget import Stopwatch
from proreus.metrics import SchedulerMetrics
from proreus.offline.api import FakeRecorder, InMemoryApi, JsonObject
from proreus.runtime.plugin_health import (
    DEFAULT_RULES,
    EventSink,
    FailureRules,
    HealthContext,
    discard_event,
)
from proreus.runtime.registry import Registry
from proreus.runtime.select_host import SelectHost
from proreus.scheduler.assembly import Assembly
from proreus.scheduler.environment import Environment

_START = 1_700_000_000.0
_ROUNDS_TO_REST = 50


class OfflineCluster:
    """Objects in memory and a scheduler that watches them.

    Time stands still but for ``advance``. To be used inside a running event loop: binding cycles
    are tasks, ``settle`` lets them come to rest.
    """

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        registry: Registry,
        feature_gates: FeatureGates,
        objects: Iterable[JsonObject] = (),
        *,
        seed: int = 0,
        hide_finished: bool = True,
        select_host: SelectHost | None = None,
        use_extenders: bool = False,
        rules: FailureRules = DEFAULT_RULES,
        record_event: EventSink = discard_event,
        stopwatch: Stopwatch = perf_counter,
    ) -> None:
        """``use_extenders``: over the network, as a live scheduler does; else none take part.

        ``rules``: for plugins that were brought along; ``record_event``: hears of those that break
        them. ``stopwatch``: measures what an attempt computes, where the rules limit that.
        """
        self.clock = FakeClock(_START)
        self._milliseconds = 0
        self.api = InMemoryApi(hide_finished)
        self.events = FakeRecorder()
        self.metrics = SchedulerMetrics()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.assembly = Assembly(
            configuration,
            registry,
            Environment(
                api=self.api,
                event_recorder=self.events,
                stores=self.api,
                clock=self.clock,
                rng=random.Random(seed),
                metrics=self.metrics,
                feature_gates=feature_gates,
                spawn=self._spawn,
                use_extenders=use_extenders,
                health_context=HealthContext(self.clock, self.metrics, rules, record_event),
                stopwatch=stopwatch,
            ),
            select_host=select_host,
        )
        self.scheduler = self.assembly.scheduler
        self.feature_gates = feature_gates
        for obj in objects:
            self.api.add(obj)

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every whole second on the way for what is due then."""
        # Whole milliseconds: sums of floats would miss the whole seconds by a hair.
        self._milliseconds += round(seconds * 1000)
        end = _START + self._milliseconds / 1000
        while floor(self.clock.now()) + 1 <= end:
            self.clock.advance_to(floor(self.clock.now()) + 1)
            self.scheduler.tick()
        self.clock.advance_to(end)

    async def schedule_next(self) -> tuple[str, str] | None:
        """Pop a pod, decide, bind, come to rest; return (pod key, node name or ""), or None."""
        queued = self.scheduler.queue.pop()
        if queued is None:
            return None
        self.scheduler.cache.node_order()  # which is that of now, even if nobody asks for it
        node_name = await self.scheduler.schedule_one(queued)
        await self.settle()
        return queued.key, node_name

    async def settle(self) -> None:
        """Let background work go on until all of it is done, or waits for something to happen.

        Raises what any of it raised, which would be the end of a process.
        """
        for _ in range(_ROUNDS_TO_REST):
            if not self._tasks:
                break
            await asyncio.sleep(0)
        if self._failures:
            raise self._failures.pop(0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)
