"""Plugin methods that cancel the task in which they run.

``asyncio.current_task().cancel()``, at once or by a timer, is how a time-out of one's own was
written before ``asyncio.timeout``. The task is the scheduling loop or a binding cycle: its
cancellation would be that of the scheduler, or leave a pod behind that nobody tries again.

Example: a PreBind sets a timer that cancels its task, catches ``CancelledError`` and returns a
rejection. The task remembers the cancellation, and the next ``asyncio.timeout`` in it would take
that for its own. Here it is taken back.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class OwnCancellation(Exception):
    """Raised where a plugin has cancelled the task that runs it."""

    def __init__(self) -> None:
        super().__init__("it cancelled the task in which it runs")


def without_own_cancellations(
    method: Callable[..., Awaitable[T]], ending: Callable[[], bool]
) -> Callable[..., Awaitable[T]]:
    """Return the method, after which its task is cancelled no more often than before.

    Raises ``OwnCancellation`` in the place of a ``CancelledError`` that came of that. ``ending``:
    whether somebody else may cancel the task; then nothing is taken back.
    """

    @functools.wraps(method)
    async def call(*args: Any) -> T:
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            result = await method(*args)
        except BaseException as error:
            if not await _take_back(task, before, ending):
                raise
            if isinstance(error, asyncio.CancelledError):
                raise OwnCancellation from error
            raise
        await _take_back(task, before, ending)
        return result

    return call


async def _take_back(task: asyncio.Task[Any], before: int, ending: Callable[[], bool]) -> bool:
    """Take back the cancellations since ``before``; return whether there were any."""
    if task.cancelling() <= before or ending():
        return False
    while task.cancelling() > before:
        task.uncancel()
    # One that has not been raised yet is raised at the next wait, whoever waits.
    with suppress(asyncio.CancelledError):
        await _Turn()
    return True


class _Turn:
    """Waits for one turn of the event loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield
