"""One process with a plugin in it: keeps it in sync, sends it requests and watches its health.

A request that gets no response opens the circuit: from then on every request fails at once, until
``watch`` finds in the background that the process responds again. Hence a dead process costs one
time-out, and no pod is delayed to find out whether it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from proreus.errors import ConfigError, ProreusError
from proreus.framework.node_table import NodeTable
from proreus.logs import logger
from proreus.metrics import SchedulerMetrics
from proreus.remote import wire
from proreus.remote.circuit import Circuit
from proreus.remote.connection import Connection, NoResponse, OutOfSync
from proreus.remote.descriptor import Descriptor, empty_slot, read_descriptor
from proreus.remote.outbox import Outbox
from proreus.remote.process_sync import ProcessSync, check_args
from proreus.remote.remote_metrics import RemoteMetrics
from proreus.remote.snapshot import Snapshot
from proreus.remote.wire import BadResponse, Response

log = logger(__name__)

HEALTH_SECONDS = 5.0
FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS = 0.2, 10.0

_EMPTY_SLOT = "no process has registered for it"


class Unavailable(ProreusError):
    """The circuit is open: the process gets no requests until it responds to a probe."""


class Endpoint:
    """A process and the one plugin in it, shared by the profiles that use it.

    ``epoch``: the last one that the process reported. ``on_change``: called when results of the
    plugin are no longer valid, because the epoch changed or the process came, went or restarted.
    Without a connection it is a slot, which processes take (``attach``) and leave (``detach``),
    each with its own extension points.
    """

    def __init__(
        self,
        connection: Connection | None,
        descriptor: Descriptor,
        metrics: SchedulerMetrics,
    ) -> None:
        self.descriptor = descriptor
        self.is_slot = connection is None
        self.epoch = ""
        self.on_change: set[Callable[[], None]] = set()
        self._connection = connection
        self._metrics = RemoteMetrics(metrics, descriptor.name)
        self._outbox = Outbox(descriptor.name)
        self._sync = ProcessSync(descriptor, self._exchange, self._metrics)
        open_reason = _EMPTY_SLOT if connection is None else None
        self._circuit = Circuit(descriptor.name, self._metrics, open_reason)
        self._watch_lock = asyncio.Lock()

    @property
    def address(self) -> str:
        """The address of the process, "" for an empty slot."""
        return "" if self._connection is None else self._connection.address

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: requests fail at once."""
        return self._circuit.is_open

    async def close(self) -> None:
        """Close all connections."""
        if self._connection is not None:
            await self._connection.close()

    async def attach(self, connection: Connection, descriptor: Descriptor) -> None:
        """Give the slot to a process; one that had it before gets no more requests."""
        old, self._connection = self._connection, connection
        self.descriptor = descriptor
        self._sync.forget(descriptor)
        self._circuit.close()
        self._notify_changed()
        if old is not None:
            await old.close()

    async def detach(self) -> None:
        """Empty the slot: pods are scheduled without the plugin."""
        old, self._connection = self._connection, None
        self.descriptor = self._sync.descriptor = empty_slot(self.descriptor.name)
        self._outbox.clear()
        self._circuit.open_quietly(_EMPTY_SLOT)
        self._notify_changed()
        if old is not None:
            await old.close()

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
        self._sync.table = table
        seconds = self.descriptor.timeout_seconds
        for last in (False, True):
            self._refuse_if_open(path)
            try:
                await self._sync.send(table)
                body = request_body()
                if body is None:
                    return None
                body |= {"snapshot": self.snapshot.id, "version": self.snapshot.version}
                response = await self._exchange(path, wire.encode(body), type_, seconds)
            except OutOfSync as error:
                if last:
                    raise self._still_out_of_sync(path, error) from error
                await self._resync()
                continue
            if last:
                self._notify_changed()
            return response
        raise AssertionError("unreachable: the second round returns or raises")

    async def call_unsynced(
        self, path: str, request_body: dict[str, Any], type_: type[wire.T], seconds: float
    ) -> wire.T:
        """Send a request without row numbers, at any time; raises as ``call`` does."""
        for last in (False, True):
            self._refuse_if_open(path)
            try:
                await self._sync.send_args()
                return await self._exchange(path, wire.encode(request_body), type_, seconds)
            except OutOfSync as error:
                if last:
                    raise self._still_out_of_sync(path, error) from error
                self._sync.forget_args()
        raise AssertionError("unreachable: the second round returns or raises")

    def notify(self, path: str, message: dict[str, Any]) -> None:
        """Queue a message, to be delivered after all earlier ones; its response is ignored."""
        self._outbox.put(path, wire.encode(message))

    async def flush(self) -> None:
        """Wait until all queued messages are delivered; raises ``Unavailable``, ``NoResponse``."""
        self._refuse_if_open("/v1/reserve")
        await self._outbox.flush(self.descriptor.timeout_seconds)

    def _refuse_if_open(self, path: str) -> None:
        reason = self._circuit.open_reason
        if reason is not None:
            self._metrics.count(path, "left_out")
            raise Unavailable(f"{self.address} gets no requests until it responds ({reason})")

    async def _exchange(
        self, path: str, body: bytes, type_: type[wire.T], seconds: float
    ) -> wire.T:
        """Post a body and return the response, whether or not the circuit is open."""
        started, connection = perf_counter(), self._current_connection
        try:
            content = await connection.post(path, body, seconds)
            response = _decoded(path, content, type_)
        except NoResponse as error:
            self._metrics.count(path, "silent")
            self._open(str(error), connection)
            raise NoResponse(f"{self.address}{error}") from error
        except BadResponse as error:
            self._metrics.count(path, "bad")
            raise BadResponse(f"{self.address}{error}") from error
        self._metrics.count(path, "answered")
        self._metrics.observe(path, perf_counter() - started)
        if isinstance(response, Response):
            self._set_epoch(response)
        return response

    def _still_out_of_sync(self, path: str, error: OutOfSync) -> BadResponse:
        self._metrics.count(path, "bad")
        return BadResponse(f"{self.address}{error}; it was sent everything and reports it again")

    def _set_epoch(self, response: Response) -> None:
        if response.epoch is not None and response.epoch != self.epoch:
            before, self.epoch = self.epoch, response.epoch
            if before:
                self._notify_changed()

    def _notify_changed(self) -> None:
        """Have the pods retried that the plugin rejected: its results may be different now."""
        for call in tuple(self.on_change):
            call()

    @property
    def _current_connection(self) -> Connection:
        """The connection to the process; raises ``Unavailable`` while the slot is empty."""
        if self._connection is None:
            raise Unavailable(_EMPTY_SLOT)
        return self._connection

    # ---- keeping it in sync --------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The nodes that the process has been sent."""
        return self._sync.snapshot

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments by profile."""
        return self._sync.args

    def set_args(self, profile: str, args: Any) -> None:
        """Set the arguments of a profile that uses the plugin; they are sent before they matter."""
        self._sync.set_args(profile, args)

    async def check_args(self, args: Mapping[str, Any]) -> None:
        """Have the process check arguments, by profile; raises ``ConfigError``.

        The arguments in force do not change. A process that adopted the checked ones anyway gets
        those in force again.
        """
        try:
            await check_args(self._current_connection, self.descriptor, args)
        finally:
            self._sync.forget_args()

    async def _resync(self) -> None:
        """Treat the process as restarted, perhaps in another version: read its descriptor again."""
        connection = self._current_connection
        self._sync.forget_args()
        try:
            body = await connection.get("/v1/descriptor", self.descriptor.timeout_seconds)
            descriptor = read_descriptor(body, self.address)
        except NoResponse as error:
            self._open(str(error), connection)
            raise
        except (ConfigError, OutOfSync) as error:
            raise BadResponse(str(error)) from error
        if connection is not self._connection:
            raise Unavailable(f"{connection.address} has left its slot")
        known = self.descriptor
        same_points = self.is_slot or set(descriptor.points) == set(known.points)
        if descriptor.name != known.name or not same_points:
            self._open("it has another name or other points than at the start", connection)
            raise BadResponse(
                f"{self.address} was {known.name} ({', '.join(known.points)}) and is now "
                f"{descriptor.name} ({', '.join(descriptor.points)}): that needs a restart"
            )
        if descriptor.events != known.events and not self.is_slot:
            log.warning(
                "Plugin wants to hear of other events; it will from the next reload on",
                plugin=known.name,
                endpoint=connection.address,
            )
        self.descriptor = descriptor
        self._sync.forget(descriptor)

    # ---- the circuit ---------------------------------------------------------------------------

    def _open(self, reason: str, connection: Connection | None) -> None:
        """Open the circuit, unless ``connection`` has been replaced: its process left the slot."""
        if connection is not self._connection:
            return
        was_closed = not self.is_open
        self._circuit.open(reason, self.address)
        if was_closed and self.descriptor.ignorable:
            self._notify_changed()

    async def watch(self) -> None:
        """Check the health of the process and deliver queued messages, until cancelled.

        Profiles may share an endpoint: one of them runs this, the others wait for the lock.
        """
        async with self._watch_lock:
            delivery = asyncio.create_task(self._outbox.run(self._post_message))
            try:
                await self._watch()
            finally:
                delivery.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await delivery

    async def _post_message(self, path: str, body: bytes) -> None:
        self._refuse_if_open(path)
        await self._exchange(path, body, Response, self.descriptor.timeout_seconds)

    async def _watch(self) -> None:
        pause = FIRST_PROBE_SECONDS
        while True:
            if self.is_open:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PROBE_SECONDS)
                await self._probe()
                continue
            pause = FIRST_PROBE_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_SECONDS):
                    await self._circuit.opened.wait()
            connection = self._connection
            if not self.is_open and (problem := await self.health_error()):
                self._open(problem, connection)

    async def health_error(self) -> str | None:
        """Check the health of the process; return what is wrong, or None."""
        try:
            body = await self._current_connection.get("/v1/health", self.descriptor.timeout_seconds)
            self._set_epoch(wire.decode(body, Response))
        except (NoResponse, OutOfSync, BadResponse, Unavailable) as error:
            return str(error)
        return None

    async def _probe(self) -> None:
        """Close the circuit if the process is healthy, after bringing it in sync."""
        connection = self._connection
        problem = await self.health_error()
        try:
            if problem is None:
                await self._resync()
                if self._sync.table is not None:
                    await self._sync.send(self._sync.table)
        except ProreusError as error:
            problem = str(error)
        if problem is not None:
            self._open(problem, connection)
            return
        if connection is not self._connection:
            return
        self._circuit.close()
        self._notify_changed()
        log.info("Plugin answers again", plugin=self.descriptor.name, endpoint=self.address)


def _decoded(path: str, content: bytes, type_: type[wire.T]) -> wire.T:
    """Return a response; raises ``BadResponse`` that begins with the path, as those of HTTP do."""
    try:
        return wire.decode(content, type_)
    except BadResponse as error:
        raise BadResponse(f"{path}: {error}") from error
