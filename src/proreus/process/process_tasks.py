"""The asyncio tasks of a process: its parts, each with a name, and the work that these spawn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from types import TracebackType
from typing import Any

from proreus.base.logs import error_text


class ProcessTasks:
    """A TaskGroup, to be entered, that knows its tasks.

    A task that fails ends all others: a process never runs without one of its parts. So does a
    part that somebody cancels before ``ending``.
    """

    def __init__(self) -> None:
        self.ending = False
        """Whether the process is ending; from then on cancellations are intended."""
        self._group: asyncio.TaskGroup | None = None
        self._parts: dict[str, asyncio.Task[None]] = {}
        self._spawned: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ProcessTasks:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._group is not None
        self.ending = self.ending or error is not None
        await self._group.__aexit__(kind, error, traceback)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a part of the process."""
        assert self._group is not None, "not entered"
        task = self._parts[name] = self._group.create_task(self._part(name, work), name=name)
        task.add_done_callback(lambda _: work.close())  # it may never have begun

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Start work that ends by itself, as a binding does; return an awaitable of its end."""
        assert self._group is not None, "not entered"
        try:
            task = self._group.create_task(work)
        except RuntimeError:
            # The process ends, and a binding that was cancelled wants its failure to be written.
            work.close()
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.set_result(None)
            return ended
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    def unfinished(self, *parts: str) -> set[asyncio.Task[None]]:
        """Return spawned tasks, and parts of these names, that have not ended."""
        tasks = {*self._spawned, *(self._parts[name] for name in parts)}
        return {task for task in tasks if not task.done()}

    async def end(self, name: str) -> None:
        """Cancel a part, if it was started, and wait until it has ended."""
        if part := self._parts.get(name):
            part.cancel()
            await asyncio.wait((part,))

    def cancel(self) -> None:
        """Cancel everything."""
        self.ending = True
        for task in (*self._parts.values(), *self._spawned):
            task.cancel()

    async def _part(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError as error:
            if self.ending:
                raise
            # A TaskGroup takes it for the task's wish, and the process would live on without it.
            self.ending = True
            raise RuntimeError(f"{name} was cancelled while the process was running") from error
        except (SystemExit, KeyboardInterrupt) as error:
            # It would end the loop at once, and the process without a word.
            self.ending = True
            raise RuntimeError(f"{name} raised {error_text(error)}") from error
        except Exception:
            self.ending = True
            raise
