"""Which call of an out-of-tree plugin the event loop is in, and how such a call is interrupted.

    wrapper      running.current = call ─► the plugin's method ─► running.current = what was before
    watchdog     (``app/call_watchdog``, a thread) sees an old call ─► a signal to the loop's thread
    handler      (in the loop's thread, on top of whatever it does) ─► ``RunningCall.interrupt``
                 ─► ``CallInterrupted`` out of the plugin's code ─► wrapper: ``CallBlocked``

The decision is made where the exception is raised: in the loop's own thread, between two of its
instructions, by looking at the call and at the stack. So nothing can be pending when a call ends,
and nothing is raised in a call that has just begun. A signal also ends ``time.sleep`` and other
waits in the kernel, which ``PyThreadState_SetAsyncExc`` does not.

Example: ``filter`` loops for ever in ``words.py``. The handler's stack is words.py, fit.py, then
``interruptible``: it raises. Had the plugin called ``handle.activate``, the innermost frame would
be the queue's, and the handler would leave it alone until it is asked again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, TypeVar

from proreus.errors import CallBlocked
from proreus.framework.plugin import Plugin

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_SHARED_STATE = frozenset({"proreus", "asyncio", "logging", "importlib", "_frozen_importlib"})
"""Packages that keep state of the whole process, or locks: interrupted, they might be left with a
cache half changed or a lock that nobody releases."""

_call_sites: set[CodeType] = set()


class CallInterrupted(BaseException):
    """Raised in a plugin's code that blocks the event loop; wrappers make ``CallBlocked`` of it."""

    # Not an Exception: ``except Exception`` around a step of a plugin's loop is common, and would
    # keep it going. What a bare ``except`` swallows is raised again.

    def __init__(self, call: PluginCall, seconds: float) -> None:
        self.error = CallBlocked(call.plugin, call.point, seconds)
        super().__init__(str(self.error))


class PluginCall:
    """A place where a plugin is called. ``owner``: its class, None if that is not known.

    ``started``: when the latest call, or the latest step of a coroutine, began (``perf_counter``).
    """

    __slots__ = ("owner", "plugin", "point", "started")

    def __init__(self, plugin: str, point: str, owner: type[Plugin] | None = None) -> None:
        self.plugin = plugin
        self.point = point
        self.owner = owner
        self.started = 0.0


class RunningCall:
    """The call that the event loop is in; ``current`` is None outside of out-of-tree plugins.

    Only the loop's thread writes ``current``; other threads may read it.
    """

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: PluginCall | None = None

    def interrupt(self, limit_seconds: float, innermost: FrameType | None) -> None:
        """Raise ``CallInterrupted`` if the call is older than the limit, and in code of its own.

        To be called on the loop's thread, with the frame that it was in.
        """
        call = self.current
        if call is None:
            return
        seconds = perf_counter() - call.started
        if seconds > limit_seconds and _may_be_interrupted(innermost):
            raise CallInterrupted(call, seconds)


def _may_be_interrupted(frame: FrameType | None) -> bool:
    """Return whether there is only code of the plugin between the innermost frame and its call."""
    depth = 0
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _SHARED_STATE:
            # The call site itself is our code too: innermost, it has not called the plugin yet, or
            # has its result already.
            return depth > 0 and frame.f_code in _call_sites
        frame = frame.f_back
        depth += 1
    return False


def call_site(function: F) -> F:
    """Declare a function as one that calls plugins: code that it calls may be interrupted."""
    _call_sites.add(function.__code__)
    return function


def raise_if_blocked(error: BaseException) -> None:
    """Raise the ``CallBlocked`` of a call that was interrupted; return for any other exception.

    To be called in the call that raised: the texts of the exception are made here, so that one that
    never ends is interrupted. Later, in the log, nobody would know whose it is.
    """
    if isinstance(error, CallInterrupted):
        raise error.error from error
    try:
        _make_texts(error)
    except CallInterrupted as interrupted:
        # The exception must not be in the traceback: that would make the text again.
        interrupted.__context__ = None
        raise interrupted.error from interrupted


_MOST_CHAINED = 100


@call_site
def _make_texts(error: BaseException) -> None:
    """Make the texts of an exception, and of those that a traceback shows with it."""
    found: list[Any] = [error]
    # The list grows meanwhile. A chain may be a circle.
    for number, one in enumerate(found):
        if number == _MOST_CHAINED:
            break
        try:
            str(one)
        except CallInterrupted:
            raise
        except BaseException:  # whose text raises: that is found out again, and said
            pass
        if isinstance(one, BaseException):
            found += filter(None, (one.__cause__, one.__context__))
            found += getattr(one, "__notes__", ())
        if isinstance(one, BaseExceptionGroup):
            found += one.exceptions


def interruptible_repr(call: PluginCall, running: RunningCall, value: object) -> None:
    """Make the ``repr`` of what a call returned, which may be interrupted: ``CallBlocked``."""

    @call_site
    def make() -> None:
        try:
            repr(value)
        except CallInterrupted:
            raise
        except BaseException:
            pass

    interruptible(call, running, make)()


def interruptible(
    call: PluginCall, running: RunningCall, method: Callable[..., T]
) -> Callable[..., T]:
    """Return a method that may be interrupted; it raises ``CallBlocked`` then."""

    @call_site
    def run(*args: Any) -> T:
        outer = running.current
        call.started = perf_counter()
        running.current = call
        try:
            return method(*args)
        except BaseException as error:
            raise_if_blocked(error)
            raise
        finally:
            running.current = outer

    return run


def interruptible_steps(
    call: PluginCall, running: RunningCall, method: Callable[..., Awaitable[T]]
) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return a method that waits, and may be interrupted while it does not wait."""

    async def run(*args: Any) -> T:
        # A coroutine of our own around it: the method may return any awaitable.
        @call_site
        async def work() -> T:
            return await method(*args)

        return await _Steps(call, running, work())

    return run


class _Steps(Awaitable[T]):
    """Drives a coroutine step by step: what it does between two waits is one interruptible call."""

    def __init__(
        self, call: PluginCall, running: RunningCall, work: Coroutine[Any, Any, T]
    ) -> None:
        self._call = call
        self._running = running
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        call, running, work = self._call, self._running, self._work
        error: BaseException | None = None
        while True:
            outer = running.current
            call.started = perf_counter()
            running.current = call
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            except BaseException as raised:
                raise_if_blocked(raised)
                raise
            finally:
                running.current = outer
            try:
                yield awaited
                error = None
            except BaseException as raised:
                # What the wait ended with, a cancellation for instance, belongs to the coroutine.
                error = raised
