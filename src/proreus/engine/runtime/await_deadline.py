"""Plugin methods that may wait, and their deadlines: PostFilter, ``fetch_…``, PreBind, Bind.

At the deadline the method is cancelled, and when it has ended, its caller gets
``DeadlineExceeded``. A method that goes on for all that holds up its caller; where that is the
scheduling cycle, the watchdog of the event loop reports it.

Example (30 s): a PostFilter awaits a service that does not respond. After 30 s it receives
``CancelledError``. A PostFilter that returns without waiting never notices the deadline.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from proreus.base.errors import DeadlineExceeded
from proreus.engine.runtime.plugin_errors import is_cancellation
from proreus.engine.runtime.plugin_health import CurrentCall, PluginCall
from proreus.framework.attempt_budget import Steps

T = TypeVar("T")


def with_deadline(
    method: Callable[..., Awaitable[T]],
    call: PluginCall,
    current_call: CurrentCall,
    seconds: float = 0.0,
) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return the method with a deadline; 0 s means none.

    Calls raise ``DeadlineExceeded``, also if the method returned a result after its cancellation.
    Between two waits, ``call`` is the current one.
    """

    @functools.wraps(method)
    async def limited(*args: Any) -> T:
        # A coroutine of our own around it: the method may return any awaitable.
        async def work() -> T:
            return await method(*args)

        outer: PluginCall | None = None

        def begin() -> None:
            nonlocal outer
            outer, current_call.call = current_call.call, call

        def end() -> None:
            current_call.call = outer

        steps = Steps(work(), begin, end)
        deadline = asyncio.timeout(seconds or None)
        try:
            async with deadline:
                result = await steps
        except BaseException as error:
            if is_cancellation(error) or not deadline.expired():
                raise
            raise DeadlineExceeded(call.plugin, call.point, seconds) from error
        if deadline.expired():
            # Completed, perhaps because it took the cancellation for the end of its wait: a PreBind
            # that had done its work would have returned before.
            raise DeadlineExceeded(call.plugin, call.point, seconds)
        return result

    return limited
