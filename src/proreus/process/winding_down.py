"""The end of scheduling: bindings under way get 20 s to finish, the rest is cancelled.

Only then may the Lease be released: the next leader must not compete with writes of this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proreus.base import logs
from proreus.engine.scheduler import Scheduler

log = logs.logger(__name__)

_BINDINGS_SECONDS = 20.0
_CANCEL_SECONDS = 2.0
_PODS_NAMED = 20

Tasks = Callable[[], set[asyncio.Task[None]]]


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
