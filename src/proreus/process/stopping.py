"""Keeps the end of the process within its time: 30 seconds from the signal, even if a part
hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable

from proreus.base import logs

log = logs.logger(__name__)

_END_SECONDS = 29.0
"""Less than 30 s, a Pod's usual terminationGracePeriodSeconds, and more than all that is waited for
at the end: bindings 20 s, cancellations 2 s, Events 3 s, the Lease 3 s."""


def end_process() -> None:
    """End this process at once."""
    os._exit(1)


def end_within_time(
    seconds: float = _END_SECONDS,
    end_process: Callable[[], None] = end_process,
    ended: threading.Event | None = None,
    why: str = "",
) -> None:
    """End this process by force if it still runs after some seconds, and ``ended`` is not set.

    By a thread, since the event loop may be blocked; and beyond the end of the loop, since the
    interpreter waits for threads at its exit: one that resolves a name may take minutes.
    """

    def wait() -> None:
        if not (ended or threading.Event()).wait(seconds):
            err = why or f"{seconds:g}s have passed"
            log.error("The process does not end and is killed", err=err)
            end_process()

    threading.Thread(target=wait, name="end within time", daemon=True).start()


@contextlib.asynccontextmanager
async def until_set(stopping: asyncio.Event) -> AsyncIterator[None]:
    """Leave the block when ``stopping`` is set, and cancel the awaited work."""
    task = asyncio.current_task()
    assert task is not None

    async def cancel() -> None:
        await stopping.wait()
        task.cancel()

    watch = asyncio.create_task(cancel())
    try:
        yield
    except asyncio.CancelledError:
        # Another cancellation may have come in addition, and must go on.
        if not stopping.is_set() or not watch.done() or task.uncancel():
            raise
    finally:
        watch.cancel()


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, since the others follow from it."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
