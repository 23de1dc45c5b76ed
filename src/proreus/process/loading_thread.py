"""Runs code of plugins that is called before they are in use: their modules, and their arguments.

In a thread, since scheduling goes on meanwhile, and since such code may never return: a module that
asks a service at its import, or a validator with an endless loop. A reload that waits for it longer
than its limit is refused, so that the next one, a rollback perhaps, is not kept waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.base.source_location import thread_location

log = logs.logger(__name__)

T = TypeVar("T")

LOADING = "loading the plugins"
READING = "reading the configuration with the plugins' arguments"

_SLOW_SECONDS = 10.0
"""After that it is logged where the thread is."""


async def run_in_loading_thread(
    work: Callable[[], T], what: str, folders: Collection[str], limit_seconds: float = 0.0
) -> T:
    """Return the result of ``work``; raise ``ConfigError`` after ``limit_seconds`` (0: no limit).

    ``what`` says in words what it does. ``folders``: those of plugins, to name the line that it is
    at. A thread that does not end goes on, but does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=context.run, args=(_run, work, loop, result), name=what, daemon=True
    )
    thread.start()
    slow = loop.call_later(_SLOW_SECONDS, _report, thread, what, folders)
    try:
        done, _ = await asyncio.wait((result,), timeout=limit_seconds or None)
        if done:
            return result.result()
    finally:
        slow.cancel()
        result.cancel()  # what comes late is for nobody
    place = _place(thread, folders)
    limit = f"{limit_seconds:g}s (--plugin-await-timeout)"
    raise ConfigError(f"{place}: {what} has not ended after {limit}")


def _run(work: Callable[[], T], loop: asyncio.AbstractEventLoop, result: asyncio.Future[T]) -> None:
    try:
        settle: tuple[Callable[[Any], None], Any] = (result.set_result, work())
    except BaseException as error:
        settle = (result.set_exception, error)
    with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
        loop.call_soon_threadsafe(_settle, result, *settle)


def _settle(result: asyncio.Future[Any], settle: Callable[[Any], None], value: Any) -> None:
    if not result.done():
        settle(value)


def _report(thread: threading.Thread, what: str, folders: Collection[str]) -> None:
    log.warning("Plugins take long", doing=what, place=_place(thread, folders))


def _place(thread: threading.Thread, folders: Collection[str]) -> str:
    owned = {os.path.abspath(folder) for folder in folders}
    return thread_location(
        thread.ident or 0,
        lambda frame: os.path.abspath(os.path.dirname(frame.f_code.co_filename)) in owned,
    )
