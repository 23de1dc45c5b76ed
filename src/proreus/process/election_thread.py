"""Renews the Lease in a thread of its own, with its own event loop and connections.

The scheduler's loop does not turn while a cycle computes, which may take longer than the Lease
lasts; Python switches between the two threads every few milliseconds. (C code that holds the
interpreter lock stops both. Then the Lease runs out, and the fence closes by the clock.)
docs/adr/0002-leader-election.md has the reasons.

The thread reads the scheduler's state only through ``LeaderCallbacks.health_problem`` and acts on
its loop only through ``call_soon_threadsafe``. The fence is the exception: it must close at once,
whatever that loop does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

from proreus.base import logs
from proreus.base.clock import Clock
from proreus.base.errors import LeaseLost
from proreus.base.metrics import SchedulerMetrics
from proreus.client.http.session import ApiClient
from proreus.client.http.write_fence import WriteFence
from proreus.client.leading.leader_election import LeaderElector, new_identity
from proreus.client.leading.leader_election_config import (
    LeaderCallbacks,
    LeaseOptions,
)
from proreus.client.writing.event_bodies import ObjectReference
from proreus.client.writing.event_recorder import EventRecorder
from proreus.config.types import LeaderElection
from proreus.process.clients import Clients, call_on
from proreus.process.loop_errors import handle_loop_error
from proreus.process.stopping import end_process, end_within_time

log = logs.logger(__name__)

METRICS_NAME = "kube-scheduler"
"""The label ``name`` of the election's metrics: kube-scheduler's, whatever the Lease is called."""

_LOOK_SECONDS = 1.0
_LAST_WORD_SECONDS = 3.0
_RELEASE_SECONDS = 3.5
_END_SECONDS = 15.0


class ElectionThread:
    """Runs a ``LeaderElector`` in a thread; ``run`` is its ``run``, awaited on another loop.

    ``connect`` opens the elector's client, in the thread. Once ``run`` has ended, the process must
    end too: unless ``process_ended`` is called within 15 s, ``end_process`` is. A scheduler whose
    loop is blocked, or that has a task which ignores its cancellation, cannot end by itself.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[ApiClient]],
        make: Callable[[ApiClient], LeaderElector],
        fence: WriteFence,
        *,
        end_process: Callable[[], None] = end_process,
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
        self._thread_ended = threading.Event()

    def reference(self) -> ObjectReference | None:
        """Return the Lease as Events refer to it; None before the elector has read it."""
        return None if self._elector is None else self._elector.reference()

    def leader(self) -> str:
        """Return the holder of the Lease as last seen, "" for none; from any thread."""
        return "" if self._elector is None else self._elector.leader

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
            # The Lease is released by the thread; a name server that hangs must not stop the end.
            await asyncio.wait((ended,), timeout=_RELEASE_SECONDS)
            if ended.done():
                ended.exception()  # marks it as retrieved: nobody is left to handle it
            raise

    def process_ended(self) -> None:
        """Report that the process ends by itself: it need not be killed."""
        self._process_ended.set()

    def give_up(self, seconds: float) -> None:
        """Release the Lease, if it is held, and wait for that; from any thread, within some time.

        For a process whose loop is blocked, and that is about to be ended by force.
        """
        if self._loop is not None:
            self._cancel()
            self._thread_ended.wait(seconds)

    # ---- on the scheduler's loop ---------------------------------------------------------------

    async def _outcome(self, ended: asyncio.Future[None]) -> None:
        """Wait until the thread has ended, or until the Lease has run out without a word from it.

        The thread may hang where nothing can be cancelled: in name resolution or a file system.
        """
        while not ended.done():
            await asyncio.wait((ended,), timeout=_LOOK_SECONDS)
            if not ended.done() and not self._fence.open:
                # The fence closes by the clock, shortly before the thread reports the loss itself.
                await asyncio.wait((ended,), timeout=_LAST_WORD_SECONDS)
                if not ended.done():
                    self._fence.close()
                    self._watch_the_end()
                    raise LeaseLost(
                        "the Lease has expired, and the thread that renews it does not respond"
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
        self._loop.set_exception_handler(handle_loop_error)
        self._task = asyncio.current_task()
        error: BaseException | None = None
        try:
            if not self._cancelled:  # between the start of the thread and now
                async with self._connect() as client:
                    self._elector = self._make(client)
                    await self._elector.run()
        except BaseException as raised:
            error = raised
        self._thread_ended.set()
        self._watch_the_end()
        # Before this loop closes its resolver threads, which may wait for a name server.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, ended, error)

    # ---- the end of the process -----------------------------------------------------------------

    def _watch_the_end(self) -> None:
        why = "the Lease is lost, but the event loop or a task is still running"
        end_within_time(self._end_seconds, self._end_process, self._process_ended, why)


def _settle(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None or isinstance(error, asyncio.CancelledError):
        ended.set_result(None)
    else:
        ended.set_exception(error)


# ---- what a process runs -------------------------------------------------------------------------


def make_election(
    clients: Clients,
    election: LeaderElection,
    metrics: SchedulerMetrics,
    lead: Callable[[], None],
    *,
    health_problem: Callable[[], str | None],
    recorder: EventRecorder,
    component: str,
    clock: Clock,
) -> ElectionThread:
    """Return an election that calls ``lead`` on the running loop once the Lease is ours.

    ``health_problem`` is called in the election's thread, see ``LeaderCallbacks``; metrics, Events
    and ``lead`` belong to the running loop, so the other callbacks are handed over to it.
    """
    loop = asyncio.get_running_loop()
    status = metrics.leader_election_master_status.labels(METRICS_NAME)
    slow_path = metrics.leader_election_slowpath_total.labels(METRICS_NAME)

    def started() -> None:
        status.set(1)
        lead()

    def record(lease: ObjectReference, note: str) -> None:
        recorder.event_about(lease, "Normal", "LeaderElection", "", note, component, core=True)

    def make(client: ApiClient) -> LeaderElector:
        return LeaderElector(
            client,
            new_identity(),
            LeaseOptions(
                namespace=election.resource_namespace,
                name=election.resource_name,
                lease_duration_seconds=election.lease_duration_seconds,
                renew_deadline_seconds=election.renew_deadline_seconds,
                retry_period_seconds=election.retry_period_seconds,
            ),
            LeaderCallbacks(
                on_started_leading=lambda: call_on(loop, started),
                on_stopped_leading=lambda: call_on(loop, status.set, 0),
                on_renew=lambda slow: call_on(loop, slow_path.inc, 1.0 if slow else 0.0),
                on_event=lambda lease, note: call_on(loop, record, lease, note),
                health_problem=health_problem,
            ),
            fence=clients.fence,
            clock=clock,
        )

    return ElectionThread(clients.connect_for_lease, make, clients.fence)
