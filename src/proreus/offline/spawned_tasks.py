"""Tracks the tasks of an offline scheduler: binding cycles, and tasks of plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

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
