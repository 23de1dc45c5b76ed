"""Plugin methods that may wait, and their deadlines: PostFilter, ``fetch_…``, PreBind, Bind.

At the deadline the method is cancelled, as by ``asyncio.timeout``. It has one more second to clean
up; after that nobody waits for it any longer, whatever it does with the cancellation.

Example (30 s): a PostFilter awaits a service that does not respond. After 30 s it receives
``CancelledError``; when it has ended, and after 31 s at the latest, its caller gets
``DeadlineExceeded``. A PostFilter that returns without waiting never notices the deadline.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from proreus.base.errors import DeadlineExceeded
from proreus.base.logs import logger
from proreus.engine.runtime.plugin_errors import is_cancellation
from proreus.engine.runtime.plugin_health import CurrentCall, PluginCall

log = logger(__name__)

T = TypeVar("T")

CLEAN_UP_SECONDS = 1.0
"""How long a cancelled method may still run."""


def with_deadline(
    method: Callable[..., Awaitable[T]],
    call: PluginCall,
    current_call: CurrentCall,
    seconds: float = 0.0,
) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return the method with a deadline that begins at its first wait; 0 s: without one.

    Calls raise ``DeadlineExceeded``, also if the method returned a result after its cancellation.
    Between two waits, ``call`` is the current one.
    """

    @functools.wraps(method)
    async def limited(*args: Any) -> T:
        # A coroutine of our own around it: the method may return any awaitable.
        async def work() -> T:
            return await method(*args)

        return await _Limited(work(), call, current_call, seconds)

    return limited


class _Limited(Awaitable[T]):
    """Drives a coroutine step by step, and stops doing so some time after its deadline."""

    # Not a task of its own: the steps would then not count for the attempt's budget, which runs
    # only while the cycle itself computes, and a method that does not wait would let the event loop
    # turn in the middle of the cycle. ``asyncio.timeout`` alone would wait for a method that
    # ignores its cancellation.

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        call: PluginCall,
        current_call: CurrentCall,
        seconds: float,
    ) -> None:
        self._work = work
        self._call = call
        self._current_call = current_call
        self._seconds = seconds
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: _Waiting | None = None
        self._expired = False
        self._abandoned = False

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            result = yield from self._drive()
        except BaseException as error:
            if not self._end() or is_cancellation(error):
                raise
            raise self._exceeded() from error
        if not self._end():
            return result
        # Completed, perhaps because it took the cancellation for the end of its wait: a PreBind
        # that had done its work would have returned before.
        raise self._exceeded()

    def _exceeded(self) -> DeadlineExceeded:
        return DeadlineExceeded(self._call.plugin, self._call.point, self._seconds)

    def _drive(self) -> Generator[Any, Any, T]:
        work, current_call = self._work, self._current_call
        error: BaseException | None = None
        while True:
            outer = current_call.call
            current_call.call = self._call
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                current_call.call = outer
            if self._timer is None and self._seconds:
                self._task = asyncio.current_task()
                self._timer = self._call_later(self._seconds, self._expire)
            try:
                yield self._wait_for(awaited)
                error = None
            except BaseException as raised:
                error = raised
            if self._abandoned:
                self._close()
                raise asyncio.CancelledError

    def _wait_for(self, awaited: Any) -> Any:
        """Return what the task waits for in the place of ``awaited``."""
        if not self._seconds or not getattr(awaited, "_asyncio_future_blocking", False):
            return awaited  # nothing ends the wait; or a bare yield, as of ``asyncio.sleep(0)``
        # What a task does with a future that it is given: by this flag it tells one that is awaited
        # from one that a coroutine yields by mistake.
        awaited._asyncio_future_blocking = False
        self._waiting = _Waiting(awaited)
        self._waiting._asyncio_future_blocking = True
        return self._waiting

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._timer = self._call_later(CLEAN_UP_SECONDS, self._abandon)
        self._task.cancel()

    def _abandon(self) -> None:
        self._abandoned = True
        if self._waiting is not None:
            self._waiting.end()

    def _close(self) -> None:
        """Close the coroutine, which has ignored its cancellation."""
        plugin, point = self._call.plugin, self._call.point
        log.error(
            "A plugin ignores its cancellation; nobody waits for it", plugin=plugin, point=point
        )
        try:
            self._work.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            log.error("A plugin raised when it was closed", err=error, plugin=plugin, point=point)

    def _end(self) -> bool:
        """Stop the timer; return whether the deadline has passed.

        Raises ``CancelledError`` if the task was cancelled by somebody else as well.
        """
        if self._timer is not None:
            self._timer.cancel()
        if not self._expired:
            return False
        assert self._task is not None
        if self._task.uncancel():
            raise asyncio.CancelledError
        return True


class _Waiting(asyncio.Future[None]):
    """Done once another future is done, whose result its own reader takes, or once ended."""

    def __init__(self, awaited: asyncio.Future[Any]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._awaited = awaited
        awaited.add_done_callback(self._on_done)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the awaited future, as a task does with what it awaits."""
        return self._awaited.cancel(msg=msg)

    def end(self) -> None:
        """Wake the waiting task."""
        if not self.done():
            self.set_result(None)

    def _on_done(self, _: object) -> None:
        self.end()
