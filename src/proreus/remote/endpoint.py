"""One process with a plugin in it: kept in step, asked while it answers, and watched.

Whoever finds that it does not answer opens the circuit: from then on every question fails at once,
and ``watch`` finds out in the background when the process is back. So a dead one costs one
time-out, and nobody's pod is a probe.
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
from proreus.remote.remote_metrics import RemoteMetrics
from proreus.remote.snapshot import Snapshot
from proreus.remote.wire import BadResponse, Response

log = logger(__name__)

HEALTH_SECONDS = 5.0
FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS = 0.2, 10.0
_WHOLE_SECONDS = 10.0
"""A whole snapshot may take that long, however short the plugin's own time-out is."""

_EMPTY_SLOT = "nobody has registered it"


class Unavailable(ProreusError):
    """The process has not answered lately, and is not asked until it does."""


class Endpoint:
    """A process and the one plugin in it, shared by the profiles that use it.

    ``epoch``: the last one that it told. ``on_change`` are called when what the plugin said holds
    no more: the epoch moves, or the process comes, goes or was started anew. Made without a
    connection it is a slot, which processes take and leave (``attach``, ``detach``), each with
    points of its own.
    """

    def __init__(
        self,
        connection: Connection | None,
        descriptor: Descriptor,
        metrics: SchedulerMetrics,
    ) -> None:
        self.descriptor = descriptor
        self.is_slot = connection is None
        self.snapshot = Snapshot(descriptor.node_columns, descriptor.arrays)
        self.epoch = ""
        self.on_change: set[Callable[[], None]] = set()
        self._connection = connection
        self._metrics = RemoteMetrics(metrics, descriptor.name)
        self._outbox = Outbox(descriptor.name)
        self._args: dict[str, Any] = {}
        self._args_sent = False
        self._table: NodeTable | None = None
        open_reason = _EMPTY_SLOT if connection is None else None
        self._circuit = Circuit(descriptor.name, self._metrics, open_reason)
        self._watch_lock = asyncio.Lock()
        self._sync_lock = asyncio.Lock()

    @property
    def address(self) -> str:
        """Where the process listens, "" in an empty slot."""
        return "" if self._connection is None else self._connection.address

    @property
    def is_open(self) -> bool:
        """Whether it is left alone for now."""
        return self._circuit.is_open

    async def close(self) -> None:
        """Close all connections."""
        if self._connection is not None:
            await self._connection.close()

    async def attach(self, connection: Connection, descriptor: Descriptor) -> None:
        """Let a process take the slot; whoever had it before is not asked any more."""
        old, self._connection = self._connection, connection
        self.descriptor = descriptor
        self._args_sent = False
        self._forget_snapshot()
        self._circuit.close()
        self._notify_changed()
        if old is not None:
            await old.close()

    async def detach(self) -> None:
        """Empty the slot: pods go on without a plugin."""
        old, self._connection = self._connection, None
        self.descriptor = empty_slot(self.descriptor.name)
        self._outbox.clear()
        self._circuit.open_quietly(_EMPTY_SLOT)
        self._notify_changed()
        if old is not None:
            await old.close()

    # ---- asking --------------------------------------------------------------------------------

    async def call(
        self,
        path: str,
        request_body: Callable[[], dict[str, Any] | None],
        type_: type[wire.T],
        table: NodeTable,
    ) -> wire.T | None:
        """Bring the process in step with ``table`` and ask; None where there was nothing to ask.

        ``request_body`` is called once it is in step, and again should it turn out that it was not.
        For the scheduling cycle alone: row numbers mean something only to one question at a time.
        Raises ``Unavailable``, ``NoResponse``, ``BadResponse``.
        """
        self._table = table
        seconds = self.descriptor.timeout_seconds
        for last in (False, True):
            self._refuse_if_open(path)
            try:
                await self._sync(table)
                asked = request_body()
                if asked is None:
                    return None
                asked |= {"snapshot": self.snapshot.id, "version": self.snapshot.version}
                answer = await self._exchange(path, wire.encode(asked), type_, seconds)
            except OutOfSync as error:
                if last:
                    raise self._still_out_of_sync(path, error) from error
                await self._resync()
                continue
            if last:
                self._notify_changed()
            return answer
        raise AssertionError("unreachable: the second round returns or raises")

    async def call_unsynced(
        self, path: str, request_body: dict[str, Any], type_: type[wire.T], seconds: float
    ) -> wire.T:
        """Ask something that has nothing to do with rows, at any time; raises as ``ask`` does."""
        for last in (False, True):
            self._refuse_if_open(path)
            try:
                async with self._sync_lock:
                    await self._send_args()
                return await self._exchange(path, wire.encode(request_body), type_, seconds)
            except OutOfSync as error:
                if last:
                    raise self._still_out_of_sync(path, error) from error
                self._args_sent = False
        raise AssertionError("unreachable: the second round returns or raises")

    def notify(self, path: str, message: dict[str, Any]) -> None:
        """Send something whose answer nobody waits for, after all that was told before."""
        self._outbox.put(path, wire.encode(message))

    async def flush(self) -> None:
        """Wait until what was told has arrived; raises ``Unavailable``, ``NoResponse``."""
        self._refuse_if_open("/v1/reserve")
        await self._outbox.flush(self.descriptor.timeout_seconds)

    def _refuse_if_open(self, path: str) -> None:
        why = self._circuit.open_reason
        if why is not None:
            self._metrics.count(path, "left_out")
            raise Unavailable(f"{self.address} is left alone until it answers ({why})")

    async def _exchange(
        self, path: str, body: bytes, type_: type[wire.T], seconds: float
    ) -> wire.T:
        """Post a body and return the answer, whatever the circuit says; silence opens it."""
        remote_metrics, started, connection = (
            self._metrics,
            perf_counter(),
            self._current_connection,
        )
        try:
            answer = wire.decode(await connection.post(path, body, seconds), type_)
        except NoResponse as error:
            remote_metrics.count(path, "silent")
            self._open(str(error), connection)
            raise NoResponse(f"{self.address}{error}") from error
        except BadResponse as error:
            remote_metrics.count(path, "bad")
            raise BadResponse(f"{self.address}{error}") from error
        remote_metrics.count(path, "answered")
        remote_metrics.observe(path, perf_counter() - started)
        if isinstance(answer, Response):
            self._note_epoch(answer)
        return answer

    def _still_out_of_sync(self, path: str, error: OutOfSync) -> BadResponse:
        self._metrics.count(path, "bad")
        return BadResponse(f"{self.address}{error}; it was told everything and says so again")

    def _note_epoch(self, answer: Response) -> None:
        if answer.epoch is not None and answer.epoch != self.epoch:
            before, self.epoch = self.epoch, answer.epoch
            if before:
                self._notify_changed()

    def _notify_changed(self) -> None:
        """Let pods be tried again that the plugin rejected: it may say otherwise, or nothing."""
        for call in tuple(self.on_change):
            call()

    @property
    def _current_connection(self) -> Connection:
        """The way to the process; raises ``Unavailable`` while the slot is empty."""
        if self._connection is None:
            raise Unavailable(_EMPTY_SLOT)
        return self._connection

    # ---- keeping it in step --------------------------------------------------------------------

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments by profile."""
        return self._args

    def set_args(self, profile: str, args: Any) -> None:
        """Note the arguments of a profile that uses the plugin; they are sent when next needed."""
        known = self._args.get(profile, self)
        if known is not args and known != args:
            self._args[profile] = args
            self._args_sent = False

    async def check_args(self, args: Mapping[str, Any]) -> None:
        """Ask whether arguments, by profile, will do; raises ``ConfigError``.

        Those that are in force stay so: a process that took over the others is told again.
        """
        try:
            await check_args(self._current_connection, self.descriptor, args)
        finally:
            self._args_sent = False

    async def _sync(self, table: NodeTable) -> None:
        async with self._sync_lock:
            await self._send_args()
            if {"filter", "score"}.isdisjoint(self.descriptor.points):
                return
            next_update = self.snapshot.next_update(table)
            if next_update is not None:
                await self._send_update(next_update)

    async def _send_args(self) -> None:
        if not self._args_sent:
            args, seconds = dict(self._args), self.descriptor.timeout_seconds
            await self._exchange("/v1/profiles", wire.encode({"profiles": args}), Response, seconds)
            self._args_sent = args == self._args

    async def _send_update(self, next_update: dict[str, Any]) -> None:
        seconds = self.descriptor.timeout_seconds
        if next_update["base"] is None:
            self._metrics.resyncs.inc()
            seconds = max(seconds, _WHOLE_SECONDS)
        try:
            await self._exchange("/v1/nodes", wire.encode(next_update), Response, seconds)
        except BaseException:
            # Nobody knows what has arrived; the next one will be whole.
            self._forget_snapshot()
            raise

    async def _resync(self) -> None:
        """Take the process for one that knows nothing, and perhaps is another version of itself."""
        self._args_sent, connection = False, self._current_connection
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
            told = "Plugin wants to hear of other events; it will from the next reload on"
            log.warning(told, plugin=known.name, endpoint=connection.address)
        self.descriptor = descriptor
        self._forget_snapshot()

    def _forget_snapshot(self) -> None:
        self.snapshot = Snapshot(self.descriptor.node_columns, self.descriptor.arrays)

    # ---- the circuit ---------------------------------------------------------------------------

    def _open(self, reason: str, connection: Connection | None) -> None:
        """Leave the process alone, unless it is not there any more: it may have left its slot."""
        if connection is not self._connection:
            return
        is_news = not self.is_open
        self._circuit.open(reason, self.address)
        if is_news and self.descriptor.ignorable:
            self._notify_changed()

    async def watch(self) -> None:
        """Look after the process until cancelled: its health, and what it is to be told.

        Profiles may share an endpoint: one of them watches, the others stand by.
        """
        async with self._watch_lock:
            telling = asyncio.create_task(self._outbox.run(self._post_message))
            try:
                await self._watch()
            finally:
                telling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await telling

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
        """Ask for the process's health; return what is wrong with it, or None."""
        try:
            body = await self._current_connection.get("/v1/health", self.descriptor.timeout_seconds)
            self._note_epoch(wire.decode(body, Response))
        except (NoResponse, OutOfSync, BadResponse, Unavailable) as error:
            return str(error)
        return None

    async def _probe(self) -> None:
        """See whether the process is back, and bring it in step before any pod asks it."""
        connection = self._connection
        problem = await self.health_error()
        try:
            if problem is None:
                await self._resync()
                if self._table is not None:
                    await self._sync(self._table)
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


async def check_args(
    connection: Connection, descriptor: Descriptor, args: Mapping[str, Any]
) -> None:
    """Ask a process whether arguments, by profile, will do; raises ``ConfigError``."""
    try:
        body = wire.encode({"profiles": args, "check": True})
        await connection.post("/v1/profiles", body, descriptor.timeout_seconds)
    except (NoResponse, OutOfSync, BadResponse) as error:
        text = f'initializing plugin "{descriptor.name}": {connection.address}{error}'
        raise ConfigError(f"initializing profiles: {text}") from error
