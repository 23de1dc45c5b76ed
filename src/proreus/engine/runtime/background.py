"""Background work of plugins: one task each, started and cancelled with the profile.

Whatever such work raises is logged, and the work starts again after a pause: a plugin that cannot
reach some service must not end the scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from proreus.base.logs import logger
from proreus.engine.runtime.plugin_errors import is_cancellation
from proreus.framework.plugin import BackgroundPlugin, Plugin

log = logger(__name__)

_INITIAL_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 60.0
_END_SECONDS = 2.0


class BackgroundWork:
    """The background work of all plugins that are in use: a task each."""

    def __init__(self) -> None:
        self._tasks: dict[Plugin, asyncio.Task[None]] = {}

    def sync(self, plugins: Iterable[Plugin]) -> None:
        """Start the work of plugins that are new, cancel that of plugins that are gone."""
        wanted = {plugin for plugin in plugins if isinstance(plugin, BackgroundPlugin)}
        for plugin in self._tasks.keys() - wanted:
            self._tasks.pop(plugin).cancel()
        for plugin in wanted - self._tasks.keys():
            work = _run_until_done(plugin)
            self._tasks[plugin] = asyncio.get_running_loop().create_task(work, name=plugin.name)

    async def close(self) -> None:
        """Cancel everything and wait until it has ended, 2 seconds at most."""
        tasks = list(self._tasks.values())
        self.sync(())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_END_SECONDS)
            for task in late:
                log.error("Background work does not end", plugin=task.get_name())


async def _run_until_done(plugin: BackgroundPlugin) -> None:
    """Run a plugin's work until it returns; after an exception again, with growing pauses."""
    time, pause = asyncio.get_running_loop().time, _INITIAL_RETRY_SECONDS
    task = asyncio.current_task()
    while True:
        started = time()
        try:
            await plugin.run_in_background()
            return
        except BaseException as error:
            if is_cancellation(error):
                raise
            plugin.health.log("Background", error)
            # Raised while it cleaned up: the cancellation still counts.
            if task is not None and task.cancelling():
                return
        # Work that ran for a minute had recovered: its next failure is a new one, and retrying it
        # after a minute's pause would be needlessly late.
        if time() - started > _MAX_RETRY_SECONDS:
            pause = _INITIAL_RETRY_SECONDS
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MAX_RETRY_SECONDS)
