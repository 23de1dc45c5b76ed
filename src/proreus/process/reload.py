"""Applies changed files without a restart.

    file event, SIGHUP ─► reload: load plugins ─► configuration
                                   ─► ActiveConfiguration.use, between two cycles

Any fault leaves the running configuration in force, and is reported in the log, by a metric, by an
Event and at /configz. docs/adr/0008-reload.md has the reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from time import time
from typing import Any

from proreus.base import logs
from proreus.base.errors import ProreusError
from proreus.base.metrics import SchedulerMetrics
from proreus.config.types import SchedulerConfiguration
from proreus.process.configuration import configuration, report
from proreus.process.loading.load import load
from proreus.process.loading.loaded_plugins import LoadedPlugins, PluginFile
from proreus.process.loading_thread import LOADING, READING, run_in_loading_thread
from proreus.process.options import RunOptions
from proreus.process.process import Process
from proreus.process.remote_plugins import RemotePlugins
from proreus.process.watched_files import WatchedFiles

log = logs.logger(__name__)


class Reloader:
    """Reloads when files change. ``files``: made before the files were first read."""

    def __init__(
        self,
        options: RunOptions,
        files: WatchedFiles,
        remote_plugins: RemotePlugins,
        metrics: SchedulerMetrics,
        process: Process,
    ) -> None:
        self._options = options
        self._remote_plugins = remote_plugins
        self._metrics = metrics
        self._process = process
        self._files = files
        self._due = asyncio.Event()
        self._count = 0
        self.one_at_a_time = asyncio.Lock()
        """Held while plugins are loaded or a configuration is put in force."""
        self._on_reloaded: Callable[[], None] = lambda: None

    def on_reloaded(self, call: Callable[[], None]) -> None:
        """Call ``call`` whenever changed files have come into force."""
        self._on_reloaded = call

    async def run(self) -> None:
        """Reload whenever files have changed, and at SIGHUP."""
        async with asyncio.TaskGroup() as tasks:
            if self._options.follow_files:
                tasks.create_task(self._follow(), name="files")
            with self._due_at_signal():
                while True:
                    await self._due.wait()
                    self._due.clear()
                    await self.reload()

    async def _follow(self) -> None:
        async for _ in self._files.changes():
            if self._files.has_changed():
                self._due.set()

    @contextlib.contextmanager
    def _due_at_signal(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._due.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def reload(self) -> bool:
        """Load everything anew; return whether it is in force now. Raises nothing."""
        async with self.one_at_a_time:
            reloaded = await self._reload()
        if reloaded:
            self._on_reloaded()
        return reloaded

    async def adopt(self, config: SchedulerConfiguration, loaded_plugins: LoadedPlugins) -> str:
        """Put a configuration in force that was tried in the shadow; return why not, or "".

        It stays until the files of the process change, or SIGHUP has them read again.
        """
        async with self.one_at_a_time:
            self._count += 1
            report(loaded_plugins)
            try:
                await self._put_in_force(config, loaded_plugins)
            except ProreusError as error:
                self._refused(str(error))
                return str(error)
            except Exception as error:
                return self._failed(error)
            self._succeeded(loaded_plugins, "Configuration adopted", adopted=True)
            return ""

    async def _put_in_force(
        self, config: SchedulerConfiguration, loaded_plugins: LoadedPlugins
    ) -> None:
        await self._remote_plugins.check_args(config)
        await self._process.configuration.use(config, loaded_plugins.registry)
        # Only now: a refused configuration must not change the arguments of running plugins.
        self._remote_plugins.keep_for_slots(config)

    async def _reload(self) -> bool:
        self._count += 1
        sources = self._options.plugins
        limit_seconds = self._options.plugin_rules.await_seconds
        loading = partial(load, sources, self._remote_plugins.classes)
        loaded_plugins: LoadedPlugins | None = None
        try:
            loaded_plugins = await run_in_loading_thread(
                loading, LOADING, sources.folders, limit_seconds
            )
            self._files.set_loaded(loaded_plugins)
            self._process.blocked_plugins.apply(loaded_plugins)
            report(loaded_plugins)
            reading = partial(configuration, self._options, loaded_plugins, self._files)
            config = await run_in_loading_thread(reading, READING, sources.folders, limit_seconds)
            await self._put_in_force(config, loaded_plugins)
        except ProreusError as error:
            message = str(error)
            refusals = loaded_plugins.refusals if loaded_plugins is not None else ()
            also = [str(one) for one in refusals if str(one) not in message]
            self._refused("; ".join([message, *also]))
            return False
        except Exception as error:
            self._failed(error)
            return False
        finally:
            if loaded_plugins is not None:
                loaded_plugins.release()
        self._succeeded(loaded_plugins, "Configuration reloaded")
        return True

    def _succeeded(
        self, loaded_plugins: LoadedPlugins, message: str, *, adopted: bool = False
    ) -> None:
        self._record("success", "", adopted)
        state = self._process.state
        before, state.plugin_files = state.plugin_files, loaded_plugins.files()
        shadow = self._options.shadow
        file = shadow.config if adopted and shadow and shadow.config else self._options.config
        log.info(message, file=file, changedPluginFiles=changed_files(before, state.plugin_files))
        self._process.record_process_event(
            "Normal", "ConfigReloaded", f"reload {self._count}: the configuration is in force"
        )

    def _failed(self, error: Exception) -> str:
        """Note an unforeseen error, and return it as text."""
        # A bug in a plugin or in here must not end a process that schedules well.
        log.error("Reloading failed", err=error, trace=True)
        why = logs.named_error_text(error)
        self._refused(why)
        return why

    def _refused(self, why: str) -> None:
        self._record("failure", why)
        log.error(
            "Configuration refused; the old one stays in force", err=why, file=self._options.config
        )
        note = f"reload {self._count}: the old configuration stays in force: {why}"
        self._process.record_process_event("Warning", "ConfigReloadFailed", note)

    def _record(self, result: str, why: str, adopted: bool = False) -> None:
        good = result == "success"
        self._metrics.config_reload_total.labels(result).inc()
        self._metrics.config_last_reload_successful.set(float(good))
        if good:
            self._metrics.config_last_reload_success_timestamp_seconds.set(time())
        message: dict[str, Any] = {"result": result, "time": datetime.now(UTC).isoformat()}
        if adopted:
            message["adopted"] = True  # from the shadow: it is not what the process's files say
        self._process.state.last_reload = message if good else {**message, "error": why}


def changed_files(before: Iterable[PluginFile], after: Iterable[PluginFile]) -> list[str]:
    """Return the plugin files that came, went or have other contents."""
    contents = {(one["file"], one["sha256"]) for one in before}
    differing = contents ^ {(one["file"], one["sha256"]) for one in after}
    return sorted({file for file, _ in differing})
