"""The end of scheduling: what was begun may be finished within reason, the rest is cancelled.

Only after that may the Lease be given back. Whoever leads next must meet nothing of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proreus import logs
from proreus.scheduler.scheduler import Scheduler

log = logs.logger(__name__)

_BINDINGS_SECONDS = 20.0
_CANCEL_SECONDS = 2.0
_PODS_NAMED = 20

Tasks = Callable[[], set[asyncio.Task[None]]]


async def end_scheduling(scheduler: Scheduler, tasks: Tasks) -> None:
    """Pop no more pods; let what is under way end within 20 s, and cancel what does not.

    ``tasks``: the scheduling loop and all that is done beside it, as far as it has not ended.
    """
    scheduler.stop()
    await _wait_for(tasks)
    if left := scheduler.pods_in_flight():
        log.warning(
            "Ending with pods in flight; who schedules next tries them",
            count=len(left),
            pods=left[:_PODS_NAMED],
        )
    await _cancel(scheduler, tasks())


async def _wait_for(tasks: Tasks) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _BINDINGS_SECONDS
    while working := tasks():  # the cycle that is going on may begin a binding yet
        left_seconds = deadline - loop.time()
        if left_seconds <= 0:
            return
        await asyncio.wait(working, timeout=left_seconds)


async def _cancel(scheduler: Scheduler, tasks: set[asyncio.Task[None]]) -> None:
    """Cancel all that may still write, work of plugins included; wait a little for its end."""
    for task in tasks:
        task.cancel()
    closing = asyncio.ensure_future(scheduler.close())
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
        if late:
            names = sorted(task.get_name() for task in late)
            log.error("Work goes on though it was cancelled; it can write no more", tasks=names)
    await closing
