"""Answers dry runs, one at a time: they share one event loop, and one copy of the cluster.

Those that wait are limited, so that memory is; a dry run beyond the limit is refused at once. The
copy and its plugins are made for the first dry run, made anew after a change of the configuration,
and freed once nobody has asked for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from proreus.base import logs
from proreus.base.errors import ProreusError
from proreus.engine.assembly import Assembly
from proreus.insight.dry_run.api import DryRunSpec, DryRunStatus
from proreus.insight.dry_run.environment import DryRunEnvironment
from proreus.insight.dry_run.limits import check_spec
from proreus.insight.dry_run.objects import InvalidDryRun
from proreus.insight.dry_run.replica import ClusterChanged
from proreus.insight.dry_run.run import DryRunAttempts
from proreus.insight.dry_run.slices import Slices

log = logs.logger(__name__)

MAX_WAITING = 16
RETRY_AFTER_SECONDS = 1
IDLE_SECONDS = 60.0


class Busy(ProreusError):
    """Too many dry runs wait already."""


_RESULTS: dict[type[BaseException], str] = {
    InvalidDryRun: "invalid",
    ClusterChanged: "conflict",
    TimeoutError: "timeout",
    asyncio.CancelledError: "canceled",
}
"""The label of ``proreus_dry_runs_total`` for a dry run that raises this; others are errors."""


class DryRunService:
    """Answers dry runs about the cluster of a scheduler."""

    def __init__(
        self,
        assembly: Assembly,
        *,
        max_waiting: int = MAX_WAITING,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """``max_waiting``: dry runs besides the one that runs; ``idle_seconds``: see above."""
        self._assembly = assembly
        self._max_waiting = max_waiting
        self._idle_seconds = idle_seconds
        self._turn = asyncio.Lock()
        self._environment: DryRunEnvironment | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._undoing: set[asyncio.Task[None]] = set()
        self._metrics = assembly.scheduler.metrics
        self.under_way = 0
        """Dry runs that run or wait."""

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a dry run as under way, from before its request is read; raises ``Busy``."""
        if self.under_way > self._max_waiting:
            self._metrics.dry_runs_total.labels("refused").inc()
            raise Busy(f"{self.under_way} dry runs are under way")
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self.under_way += change
        self._metrics.dry_runs_under_way.set(self.under_way)

    async def answer(self, spec: DryRunSpec) -> DryRunStatus:
        """Answer a dry run that was admitted.

        Raises ``TimeoutError`` after its own time limit, ``InvalidDryRun``, ``ClusterChanged``, and
        ``ConfigError`` if the plugins cannot be made a second time.
        """
        started, result = perf_counter(), "error"
        try:
            check_spec(spec)
            async with asyncio.timeout(spec.timeout_seconds):
                await self._turn.acquire()
                status = await self._run(spec)
            result = "answered"
            return status
        except BaseException as error:
            result = next(
                (name for kind, name in _RESULTS.items() if isinstance(error, kind)), result
            )
            raise
        finally:
            self._metrics.dry_runs_total.labels(result).inc()
            self._metrics.dry_run_duration_seconds.observe(perf_counter() - started)

    async def _run(self, spec: DryRunSpec) -> DryRunStatus:
        """Answer it; the turn, which the caller has, ends when everything is undone."""
        attempts: DryRunAttempts | None = None
        try:
            queue = self._assembly.core.queue
            slices = Slices(lambda: queue.poppable)
            environment = self._current_environment()
            # Making the plugins has taken a slice by itself.
            await slices.pause_if_due()
            attempts = DryRunAttempts(environment, spec, slices)
            return await attempts.answer()
        finally:
            # Not in this task: it may have been cancelled, and the next dry run must not begin
            # before the copy is as it was.
            task = asyncio.get_running_loop().create_task(self._end(attempts))
            self._undoing.add(task)
            task.add_done_callback(self._undoing.discard)

    async def _end(self, attempts: DryRunAttempts | None) -> None:
        try:
            if attempts is not None:
                await attempts.undo()
        except Exception as error:
            log.error("A dry run could not be undone", err=error, trace=True)
            self.close()  # the next one makes a new copy
        finally:
            self._turn.release()
            self._free_later()

    def _current_environment(self) -> DryRunEnvironment:
        environment = self._environment
        if environment is not None:
            if environment.in_force is self._assembly.scheduler.profile_set:
                return environment
            self.close()
        environment = self._environment = DryRunEnvironment(self._assembly)
        return environment

    def _free_later(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self._idle_seconds, self._free_if_idle)

    def _free_if_idle(self) -> None:
        if not self.under_way and not self._turn.locked():
            self.close()

    def close(self) -> None:
        """Free the copy of the cluster; the next dry run makes another."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()
