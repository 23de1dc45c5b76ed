"""Tries a candidate configuration in the shadow, and takes it over or drops it.

    candidate's files ─► load, configuration, build ─► ShadowTrial in parallel with the one in force
    enough pods, or time ─► report ─► Reloader.adopt, or nothing

A trial begins when the process starts, when the candidate's files change, and when the
configuration in force does, since it is compared with that. Whatever is wrong with a candidate is
reported, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from proreus.base import logs
from proreus.base.errors import ProreusError
from proreus.base.metrics import SchedulerMetrics
from proreus.config.types import SchedulerConfiguration
from proreus.insight.shadow.trial import ShadowLimits, ShadowTrial
from proreus.process.configuration import configuration
from proreus.process.loading.load import PluginSources, load
from proreus.process.loading.loaded_plugins import LoadedPlugins
from proreus.process.loading_thread import LOADING, READING, run_in_loading_thread
from proreus.process.options import RunOptions
from proreus.process.process import Process
from proreus.process.reload import Reloader
from proreus.process.remote_plugins import RemotePlugins
from proreus.process.watched_files import WatchedFiles

log = logs.logger(__name__)

T = TypeVar("T")

_LOAD_SECONDS = 5.0
"""Time for which the end of a trial waits for plugins that are being imported."""


class TrialState(Struct):
    """A trial as /shadowz shows it. ``result``: running, adopted, passed, dropped or refused."""

    files: list[Any] = field(default_factory=list)
    result: str = "running"
    reason: str = ""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    trial: ShadowTrial | None = None

    def describe(self) -> dict[str, Any]:
        """Return the state and the findings so far as JSON-compatible data."""
        findings = {} if self.trial is None else self.trial.report.describe()
        return {
            "result": self.result,
            "reason": self.reason,
            "began": self.began.isoformat(),
            "files": self.files,
            **findings,
        }


class ShadowTrials:
    """Tries candidates, one after the other."""

    def __init__(
        self,
        options: RunOptions,
        process: Process,
        remote_plugins: RemotePlugins,
        metrics: SchedulerMetrics,
        reloader: Reloader,
    ) -> None:
        assert options.shadow is not None
        self._shadow = options.shadow
        self._options = replace(
            options,
            config=self._shadow.config or options.config,
            plugins=PluginSources(
                options.plugins.modules, self._shadow.plugin_folders or options.plugins.folders
            ),
        )
        self._process = process
        self._remote_plugins = remote_plugins
        self._metrics = metrics
        self._reloader = reloader
        self._files = WatchedFiles(self._options.config, self._options.plugins)
        self._due = asyncio.Event()
        self.state: TrialState | None = None
        reloader.on_reloaded(self._due.set)

    async def run(self) -> None:
        """Try the candidate now, and again whenever there is something new to compare."""
        async with asyncio.TaskGroup() as tasks:
            if self._options.follow_files:
                tasks.create_task(self._follow(), name="shadow files")
            while True:
                self._due.clear()
                await self._try_until_due()
                await self._due.wait()

    async def _follow(self) -> None:
        async for _ in self._files.changes():
            if self._files.has_changed():
                self._due.set()

    def describe(self) -> dict[str, Any]:
        """Return the body of /shadowz, which is the running trial, or else the last one."""
        state = self.state
        return {
            "configuration": self._options.config,
            "pluginFolders": list(self._options.plugins.folders),
            "onSuccess": "adopt" if self._shadow.adopt else "report",
            "trial": None if state is None else state.describe(),
        }

    # ---- one trial -----------------------------------------------------------------------------

    async def _try_until_due(self) -> None:
        """Try the candidate once; give up when another trial is due."""
        self.state = TrialState()
        trying = asyncio.ensure_future(self._try(self.state))
        due = asyncio.ensure_future(self._due.wait())
        try:
            await asyncio.wait((trying, due), return_when=asyncio.FIRST_COMPLETED)
        finally:
            due.cancel()
            if not trying.done():
                trying.cancel()
                with suppress(asyncio.CancelledError):
                    await trying

    async def _try(self, state: TrialState) -> None:
        try:
            # Before they are synced, a kind that cannot be watched would keep the process from
            # starting, and the candidate alone may need it.
            await self._process.synced.wait()
            loaded_plugins = await self._load()
            self._files.set_loaded(loaded_plugins)
            self._process.blocked_plugins.apply(loaded_plugins)
            try:
                await self._try_loaded(state, loaded_plugins)
            finally:
                loaded_plugins.release()
        except ProreusError as error:
            self._end(state, "refused", str(error))
        except Exception as error:
            # A bug in a plugin or in here must not end a process that schedules well.
            log.error("Trial of the shadow configuration failed", err=error, trace=True)
            self._end(state, "refused", logs.named_error_text(error))

    async def _load(self) -> LoadedPlugins:
        # Two threads that import at the same time would take each other's modules away.
        async with self._reloader.one_at_a_time:
            plugins, classes = self._options.plugins, self._remote_plugins.classes
            loading = asyncio.ensure_future(
                self._in_thread(partial(load, plugins, classes), LOADING)
            )
            try:
                return await asyncio.shield(loading)
            except asyncio.CancelledError:
                # A thread goes on when its task is cancelled, and the next load would meet it.
                await asyncio.wait((loading,), timeout=_LOAD_SECONDS)
                raise

    async def _in_thread(self, work: Callable[[], T], what: str) -> T:
        limit_seconds = self._options.plugin_rules.await_seconds
        return await run_in_loading_thread(work, what, self._options.plugins.folders, limit_seconds)

    async def _try_loaded(self, state: TrialState, loaded_plugins: LoadedPlugins) -> None:
        state.files = list(loaded_plugins.files())
        reading = partial(configuration, self._options, loaded_plugins, self._files)
        config = await self._in_thread(reading, READING)
        limits = ShadowLimits(self._shadow.pods, self._shadow.sample)
        trial = await self._process.configuration.begin_shadow(
            config, loaded_plugins.registry, limits
        )
        state.trial = trial
        log.info("Trial of the shadow configuration begins", file=self._options.config)
        self._metrics.shadow_running.set(1)
        try:
            await self._until_finished(trial)
        finally:
            self._metrics.shadow_running.set(0)
            self._process.configuration.end_shadow(trial)
        await self._conclude(state, trial, config, loaded_plugins)

    async def _until_finished(self, trial: ShadowTrial) -> None:
        # From the first pod on: a standby, or an idle cluster, has nothing to compare.
        await trial.started.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._shadow.duration_seconds or None):
                await trial.finished.wait()

    async def _conclude(
        self,
        state: TrialState,
        trial: ShadowTrial,
        config: SchedulerConfiguration,
        loaded_plugins: LoadedPlugins,
    ) -> None:
        why_not = trial.report.objection(self._shadow.max_differences)
        if why_not:
            self._end(state, "dropped", why_not)
        elif not self._shadow.adopt:
            self._end(state, "passed", "")
        elif why_not := await self._reloader.adopt(config, loaded_plugins):
            self._end(state, "refused", why_not)
        else:
            self._end(state, "adopted", "")

    def _end(self, state: TrialState, result: str, why: str) -> None:
        state.result, state.reason = result, why
        self._metrics.shadow_trials_total.labels(result).inc()
        pairs: dict[str, Any] = {"file": self._options.config, "result": result}
        if state.trial is not None:
            report = state.trial.report
            pairs |= {"compared": report.compared, **report.counts(), **report.times.describe()}
            pairs["notCompared"] = report.not_compared()
            pairs["preemptionNotCompared"] = report.preemption_not_compared
        if result in ("adopted", "passed"):
            log.info("Shadow configuration passed its trial", **pairs)
        else:
            log.error("Shadow configuration did not pass its trial", err=why, **pairs)
        event_type = "Normal" if result in ("adopted", "passed") else "Warning"
        note = f"the shadow configuration was {result}" + (why and f": {why}")
        self._process.record_process_event(event_type, f"Shadow{result.capitalize()}", note)
