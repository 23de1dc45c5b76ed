"""The Lease is renewed in a thread of its own, with an event loop and connections of its own.

The scheduler's loop stands still for as long as a cycle computes, which may be longer than the
Lease lasts; Python lets the two threads take turns every few milliseconds. (C code that keeps the
interpreter to itself stops both. Then the Lease runs out, and the fence closes by the clock.)
docs/adr/0002-leader-election.md has the reasons.

What the thread knows of the scheduler's loop is what ``LeaderCallbacks.health_problem`` returns,
and what it does to it goes through ``call_soon_threadsafe``. The fence is the exception: it is to
close at once, whatever that loop does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

from proreus import logs
from proreus.client.event_bodies import ObjectReference
from proreus.client.leader_election import LeaderElector
from proreus.client.session import ApiClient
from proreus.client.write_fence import WriteFence
from proreus.errors import LeaseLost

log = logs.logger(__name__)

_LOOK_SECONDS = 1.0
_LAST_WORD_SECONDS = 3.0
_RELEASE_SECONDS = 6.0
_END_SECONDS = 15.0


def _end_process() -> None:
    os._exit(1)


class ElectionThread:
    """Runs a ``LeaderElector``; ``run`` behaves as its ``run`` does, seen from another loop.

    ``connect`` opens the elector's client, in the thread. After ``run`` has ended, so must the
    process: unless ``process_ended`` is called within 15 s, ``end_process`` is. A scheduler whose
    loop stands still, or one of whose tasks will not be cancelled, can do neither by itself.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[ApiClient]],
        make: Callable[[ApiClient], LeaderElector],
        fence: WriteFence,
        *,
        end_process: Callable[[], None] = _end_process,
        end_seconds: float = _END_SECONDS,
    ) -> None:
        self._connect = connect
        self._make = make
        self._fence = fence
        self._end_process = end_process
        self._end_seconds = end_seconds
        self._elector: LeaderElector | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._process_ended = threading.Event()

    def reference(self) -> ObjectReference | None:
        """Return the Lease as Events refer to it; None before it was looked at."""
        return None if self._elector is None else self._elector.reference()

    async def run(self) -> None:
        """Acquire the Lease, keep it, and raise ``LeaseLost`` when that fails.

        Cancel it to end: a Lease that is held is released first.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        threading.Thread(
            target=self._work, args=(loop, ended), name="leader election", daemon=True
        ).start()
        try:
            await self._outcome(ended)
        except asyncio.CancelledError:
            self._cancel()
            await asyncio.wait((ended,), timeout=_RELEASE_SECONDS)
            if ended.done():
                ended.exception()  # nobody is left to be told
            raise

    def process_ended(self) -> None:
        """Say that there is nothing left to be ended by force."""
        self._process_ended.set()

    # ---- on the scheduler's loop ---------------------------------------------------------------

    async def _outcome(self, ended: asyncio.Future[None]) -> None:
        """Wait for the end of the thread's work; or for that of a Lease it no longer looks after.

        The thread may hang where nothing can be cancelled: in a name server, in a file system.
        """
        while not ended.done():
            await asyncio.wait((ended,), timeout=_LOOK_SECONDS)
            if not ended.done() and not self._fence.open:
                await asyncio.wait((ended,), timeout=_LAST_WORD_SECONDS)
                if not ended.done():
                    self._fence.close()
                    self._be_ended()
                    raise LeaseLost(
                        "the Lease's time is over, and the thread that renews it does not answer"
                    )
        ended.result()

    def _cancel(self) -> None:
        self._cancelled = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # its loop is closed by now
                self._loop.call_soon_threadsafe(self._task.cancel)

    # ---- in the thread -------------------------------------------------------------------------

    def _work(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        asyncio.run(self._elect(loop, ended))

    async def _elect(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        error: BaseException | None = None
        try:
            if not self._cancelled:  # between the start of the thread and now
                async with self._connect() as client:
                    self._elector = self._make(client)
                    await self._elector.run()
        except BaseException as raised:
            error = raised
        self._be_ended()
        # before this loop is wound up, which may have to wait for a name server's answer
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, ended, error)

    # ---- the end --------------------------------------------------------------------------------

    def _be_ended(self) -> None:
        threading.Thread(target=self._see_the_end, name="end of the process", daemon=True).start()

    def _see_the_end(self) -> None:
        if not self._process_ended.wait(self._end_seconds):
            log.error(
                "The process does not end and is killed",
                err="the Lease is not ours any more, and the event loop or a task goes on",
            )
            self._end_process()


def _settle(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None or isinstance(error, asyncio.CancelledError):
        ended.set_result(None)
    else:
        ended.set_exception(error)
