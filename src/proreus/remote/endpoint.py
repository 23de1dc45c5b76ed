"""One process with a plugin in it: keeps it in sync, sends it requests and watches its health.

A request that gets no response opens the circuit: from then on every request fails at once, until
``watch`` finds in the background that the process responds again (``recovery``). Hence a dead
process costs one time-out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from proreus.base.errors import ConfigError, ProreusError
from proreus.base.logs import logger
from proreus.base.metrics import SchedulerMetrics
from proreus.framework.node_table import NodeTable
from proreus.remote import wire
from proreus.remote.channel import EMPTY_SLOT, Channel, Unavailable
from proreus.remote.connection import Connection, NoResponse, OutOfSync
from proreus.remote.descriptor import Descriptor, empty_slot, read_descriptor
from proreus.remote.process_sync import ProcessSync, check_args
from proreus.remote.recovery import REFUSED_SECONDS, Recovery
from proreus.remote.trial_requests import TrialRequests
from proreus.remote.wire import BadResponse, Response

log = logger(__name__)


class Endpoint(Channel):
    """A process and the one plugin in it, shared by the profiles that use it.

    Without a connection it is a slot, which processes take (``attach``) and leave (``detach``),
    each with its own extension points.
    """

    def __init__(
        self,
        connection: Connection | None,
        descriptor: Descriptor,
        metrics: SchedulerMetrics,
    ) -> None:
        super().__init__(connection, descriptor, metrics)
        self.is_slot = connection is None
        self.sync = ProcessSync(descriptor, self.exchange, self.metrics)
        self.trial_requests = TrialRequests()
        self._outbox = Outbox(descriptor.name)
        self._recovery = Recovery(self, self.sync, self.trial_requests, self._resync)
        self._watch_lock = asyncio.Lock()

    async def close(self) -> None:
        """Close all connections."""
        if self.connection is not None:
            await self.connection.close()

    async def attach(self, connection: Connection, descriptor: Descriptor) -> None:
        """Give the slot to a process; one that had it before gets no more requests."""
        old = self._replace(connection, descriptor)
        self.circuit.close(reset_pauses=True)
        self.notify_changed()
        if old is not None:
            await old.close()

    async def detach(self) -> None:
        """Empty the slot: pods are scheduled without the plugin."""
        old = self._replace(None, empty_slot(self.descriptor.name))
        self._outbox.clear()
        self.circuit.open_quietly(EMPTY_SLOT)
        self.notify_changed()
        if old is not None:
            await old.close()

    def _replace(self, connection: Connection | None, descriptor: Descriptor) -> Connection | None:
        """Set another process, or none; return the connection to the last one."""
        old, self.connection = self.connection, connection
        self.descriptor = descriptor
        self.sync.forget(descriptor)
        self.trial_requests.forget()
        return old

    # ---- requests ------------------------------------------------------------------------------

    async def call(
        self,
        path: str,
        request_body: Callable[[], dict[str, Any] | None],
        type_: type[wire.T],
        table: NodeTable,
    ) -> wire.T | None:
        """Bring the process in sync with ``table``, send a request and return the response.

        ``request_body`` is called once the process is in sync, and again if it reports that it was
        not; if it returns None, no request is made and None is returned. Only for the scheduling
        cycle, since row numbers hold for one request at a time. Raises ``Unavailable``,
        ``NoResponse``, ``BadResponse``.
        """
        self.sync.table = table
        for last in (False, True):
            self.refuse_if_open(path)
            try:
                await self.sync.send(table)
                body = request_body()
                if body is None:
                    return None
                response = await self._exchange_about_pod(path, body, type_)
            except OutOfSync as error:
                if last:
                    raise self._still_out_of_sync(path, error) from error
                await self._resync()
                continue
            if last:
                self.notify_changed()
            return response
        raise AssertionError("unreachable: the second round returns or raises")

    async def call_unsynced(
        self, path: str, request_body: dict[str, Any], type_: type[wire.T], seconds: float
    ) -> wire.T:
        """Send a request without row numbers, at any time; raises as ``call`` does."""
        for last in (False, True):
            self.refuse_if_open(path)
            try:
                await self.sync.send_args()
                return await self.exchange(path, wire.encode(request_body), type_, seconds)
            except OutOfSync as error:
                if last:
                    raise self._still_out_of_sync(path, error) from error
                self.sync.forget_args()
        raise AssertionError("unreachable: the second round returns or raises")

    def notify(self, path: str, message: dict[str, Any]) -> None:
        """Queue a message, to be delivered after all earlier ones; its response is ignored."""
        self._outbox.put(path, wire.encode(message))

    async def flush(self) -> None:
        """Wait until all queued messages are delivered; raises ``Unavailable``, ``NoResponse``."""
        self.refuse_if_open("/v1/reserve")
        await self._outbox.flush(self.descriptor.timeout_seconds)

    async def _exchange_about_pod(
        self, path: str, body: dict[str, Any], type_: type[wire.T]
    ) -> wire.T:
        """Send a request for the present snapshot, unless it is one that is never answered."""
        if self.trial_requests.is_refused(path, body, self.epoch):
            self.metrics.count(path, "left_out")
            raise Unavailable(
                f"{self.address}{path}: no response about this pod, but one about "
                f"another; not asked again for {REFUSED_SECONDS:g} s"
            )
        body |= {"snapshot": self.sync.snapshot.id, "version": self.sync.snapshot.version}
        seconds = self.descriptor.timeout_seconds
        try:
            response = await self.exchange(path, wire.encode(body), type_, seconds)
        except NoResponse:
            self.trial_requests.add_unanswered(path, body)
            raise
        self.trial_requests.add_answered(path, body)
        return response

    def _still_out_of_sync(self, path: str, error: OutOfSync) -> BadResponse:
        self.metrics.count(path, "bad")
        return BadResponse(f"{self.address}{error}; it got all nodes and reports it again")

    # ---- keeping it in sync --------------------------------------------------------------------

    async def check_args(self, args: Mapping[str, Any]) -> None:
        """Send arguments to the process to be checked, by profile; raise ``ConfigError``.

        The arguments in force do not change. A process that adopted the checked ones anyway gets
        those in force again.
        """
        try:
            await check_args(self.current_connection, self.descriptor, args)
        finally:
            self.sync.forget_args()

    async def _resync(self) -> None:
        """Treat the process as restarted, perhaps in another version: read its descriptor again."""
        connection = self.current_connection
        self.sync.forget_args()
        try:
            body = await connection.get("/v1/descriptor", self.descriptor.timeout_seconds)
            descriptor = read_descriptor(body, self.address)
        except NoResponse as error:
            self.open(str(error), connection)
            raise
        except (ConfigError, OutOfSync) as error:
            raise BadResponse(str(error)) from error
        if connection is not self.connection:
            raise Unavailable(f"{connection.address} has left its slot")
        known = self.descriptor
        same_points = self.is_slot or set(descriptor.points) == set(known.points)
        if descriptor.name != known.name or not same_points:
            self.open("it has another name or other points than at the start", connection)
            raise BadResponse(
                f"{self.address} was {known.name} ({', '.join(known.points)}) and is now "
                f"{descriptor.name} ({', '.join(descriptor.points)}): that needs a restart"
            )
        if descriptor.events != known.events and not self.is_slot:
            log.warning(
                "Plugin registers other events, which take effect at the next reload",
                plugin=known.name,
                endpoint=connection.address,
            )
        self.descriptor = descriptor
        self.sync.forget(descriptor)

    # ---- watching it ---------------------------------------------------------------------------

    async def watch(self) -> None:
        """Check the health of the process and deliver queued messages, until cancelled.

        Profiles may share an endpoint: one of them runs this, the others wait for the lock.
        """
        async with self._watch_lock:
            delivery = asyncio.create_task(self._outbox.run(self._post_message))
            try:
                await self._recovery.run()
            finally:
                delivery.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await delivery

    async def _post_message(self, path: str, body: bytes) -> None:
        self.refuse_if_open(path)
        await self.exchange(path, body, Response, self.descriptor.timeout_seconds)


_MOST_MESSAGES = 10_000
_PAUSE_SECONDS = 0.2

Post = Callable[[str, bytes], Awaitable[None]]


class Outbox:
    """A queue of messages (path, body), whose responses are ignored; ``run`` delivers them.

    They are kept while the process does not respond, so that an Unreserve during that time is not
    lost.
    """

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._messages: deque[tuple[str, bytes]] = deque()
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, path: str, body: bytes) -> None:
        """Append a message; if the queue is full, the oldest one is lost and logged."""
        if len(self._messages) >= _MOST_MESSAGES:
            lost, _ = self._messages.popleft()
            log.error("Message to a plugin is lost: too many wait", plugin=self._plugin, path=lost)
        self._messages.append((path, body))
        self._empty.clear()
        self._filled.set()

    def clear(self) -> None:
        """Drop all messages, since their process is gone."""
        self._messages.clear()
        self._empty.set()

    async def flush(self, seconds: float) -> None:
        """Wait until all messages are delivered; raises ``NoResponse`` after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            raise NoResponse(f"{len(self._messages)} earlier messages have not arrived") from None

    async def run(self, post: Post) -> None:
        """Deliver messages until cancelled. ``post`` raises the errors of ``Connection.post``."""
        while True:
            while not self._messages:
                self._empty.set()
                self._filled.clear()
                await self._filled.wait()
            path, body = message = self._messages[0]
            try:
                await post(path, body)
            except (BadResponse, OutOfSync) as error:
                log.error("Plugin refused a message", err=error, plugin=self._plugin)
            except ProreusError:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._messages and self._messages[0] is message:
                self._messages.popleft()
