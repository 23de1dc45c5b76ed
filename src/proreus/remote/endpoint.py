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
from proreus.remote.connection import Connection, NoAnswer, NotInStep
from proreus.remote.descriptor import Descriptor, read_descriptor, vacant
from proreus.remote.meters import Meters
from proreus.remote.outbox import Outbox
from proreus.remote.snapshot import Snapshot
from proreus.remote.wire import Answer, BadAnswer

log = logger(__name__)

HEALTH_SECONDS = 5.0
FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS = 0.2, 10.0
_WHOLE_SECONDS = 10.0
"""A whole snapshot may take that long, however short the plugin's own time-out is."""

_VACANT = "nobody has registered it"


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
        self._meters = Meters(metrics, descriptor.name)
        self._outbox = Outbox(descriptor.name)
        self._args: dict[str, Any] = {}
        self._told_args = False
        self._table: NodeTable | None = None
        silent_because = _VACANT if connection is None else None
        self._circuit = Circuit(descriptor.name, self._meters, silent_because)
        self._one_watch = asyncio.Lock()
        self._one_step = asyncio.Lock()

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
        self._told_args = False
        self._forget_snapshot()
        self._circuit.close()
        self._something_has_changed()
        if old is not None:
            await old.close()

    async def detach(self) -> None:
        """Empty the slot: pods go on without a plugin."""
        old, self._connection = self._connection, None
        self.descriptor = vacant(self.descriptor.name)
        self._outbox.clear()
        self._circuit.leave_alone(_VACANT)
        self._something_has_changed()
        if old is not None:
            await old.close()

    # ---- asking --------------------------------------------------------------------------------

    async def ask(
        self,
        path: str,
        question: Callable[[], dict[str, Any] | None],
        type_: type[wire.T],
        table: NodeTable,
    ) -> wire.T | None:
        """Bring the process in step with ``table`` and ask; None where there was nothing to ask.

        ``question`` is called once it is in step, and again should it turn out that it was not.
        For the scheduling cycle alone: row numbers mean something only to one question at a time.
        Raises ``Unavailable``, ``NoAnswer``, ``BadAnswer``.
        """
        self._table = table
        seconds = self.descriptor.timeout_seconds
        for last in (False, True):
            self._refuse_if_open(path)
            try:
                await self._keep_in_step(table)
                asked = question()
                if asked is None:
                    return None
                asked |= {"snapshot": self.snapshot.id, "version": self.snapshot.version}
                answer = await self._exchange(path, wire.encode(asked), type_, seconds)
            except NotInStep as error:
                if last:
                    raise self._never_in_step(path, error) from error
                await self._begin_anew()
                continue
            if last:
                self._something_has_changed()
            return answer
        raise AssertionError("unreachable: the second round returns or raises")

    async def ask_beside(
        self, path: str, question: dict[str, Any], type_: type[wire.T], seconds: float
    ) -> wire.T:
        """Ask something that has nothing to do with rows, at any time; raises as ``ask`` does."""
        for last in (False, True):
            self._refuse_if_open(path)
            try:
                async with self._one_step:
                    await self._tell_args()
                return await self._exchange(path, wire.encode(question), type_, seconds)
            except NotInStep as error:
                if last:
                    raise self._never_in_step(path, error) from error
                self._told_args = False
        raise AssertionError("unreachable: the second round returns or raises")

    def tell(self, path: str, message: dict[str, Any]) -> None:
        """Send something whose answer nobody waits for, after all that was told before."""
        self._outbox.put(path, wire.encode(message))

    async def everything_told(self) -> None:
        """Wait until what was told has arrived; raises ``Unavailable``, ``NoAnswer``."""
        self._refuse_if_open("/v1/reserve")
        await self._outbox.emptied(self.descriptor.timeout_seconds)

    def _refuse_if_open(self, path: str) -> None:
        why = self._circuit.silent_because
        if why is not None:
            self._meters.count(path, "left_out")
            raise Unavailable(f"{self.address} is left alone until it answers ({why})")

    async def _exchange(
        self, path: str, body: bytes, type_: type[wire.T], seconds: float
    ) -> wire.T:
        """Post a body and return the answer, whatever the circuit says; silence opens it."""
        meters, started, there = self._meters, perf_counter(), self._there
        try:
            answer = wire.decode(await there.post(path, body, seconds), type_)
        except NoAnswer as error:
            meters.count(path, "silent")
            self._open(str(error), there)
            raise NoAnswer(f"{self.address}{error}") from error
        except BadAnswer as error:
            meters.count(path, "bad")
            raise BadAnswer(f"{self.address}{error}") from error
        meters.count(path, "answered")
        meters.observe(path, perf_counter() - started)
        if isinstance(answer, Answer):
            self._note_epoch(answer)
        return answer

    def _never_in_step(self, path: str, error: NotInStep) -> BadAnswer:
        self._meters.count(path, "bad")
        return BadAnswer(f"{self.address}{error}; it was told everything and says so again")

    def _note_epoch(self, answer: Answer) -> None:
        if answer.epoch is not None and answer.epoch != self.epoch:
            before, self.epoch = self.epoch, answer.epoch
            if before:
                self._something_has_changed()

    def _something_has_changed(self) -> None:
        """Let pods be tried again that the plugin rejected: it may say otherwise, or nothing."""
        for call in tuple(self.on_change):
            call()

    @property
    def _there(self) -> Connection:
        """The way to the process; raises ``Unavailable`` while the slot is empty."""
        if self._connection is None:
            raise Unavailable(_VACANT)
        return self._connection

    # ---- keeping it in step --------------------------------------------------------------------

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments by profile."""
        return self._args

    def use(self, profile: str, args: Any) -> None:
        """Note the arguments of a profile that uses the plugin; they are sent when next needed."""
        known = self._args.get(profile, self)
        if known is not args and known != args:
            self._args[profile] = args
            self._told_args = False

    async def check_args(self, args: Mapping[str, Any]) -> None:
        """Ask whether arguments, by profile, will do; raises ``ConfigError``.

        Those that are in force stay so: a process that took over the others is told again.
        """
        try:
            await check_args(self._there, self.descriptor, args)
        finally:
            self._told_args = False

    async def _keep_in_step(self, table: NodeTable) -> None:
        async with self._one_step:
            await self._tell_args()
            if {"filter", "score"}.isdisjoint(self.descriptor.points):
                return
            news = self.snapshot.news(table)
            if news is not None:
                await self._tell_news(news)

    async def _tell_args(self) -> None:
        if not self._told_args:
            args, seconds = dict(self._args), self.descriptor.timeout_seconds
            await self._exchange("/v1/profiles", wire.encode({"profiles": args}), Answer, seconds)
            self._told_args = args == self._args

    async def _tell_news(self, news: dict[str, Any]) -> None:
        seconds = self.descriptor.timeout_seconds
        if news["base"] is None:
            self._meters.resyncs.inc()
            seconds = max(seconds, _WHOLE_SECONDS)
        try:
            await self._exchange("/v1/nodes", wire.encode(news), Answer, seconds)
        except BaseException:
            # Nobody knows what has arrived; the next one will be whole.
            self._forget_snapshot()
            raise

    async def _begin_anew(self) -> None:
        """Take the process for one that knows nothing, and perhaps is another version of itself."""
        self._told_args, there = False, self._there
        try:
            body = await there.get("/v1/descriptor", self.descriptor.timeout_seconds)
            descriptor = read_descriptor(body, self.address)
        except NoAnswer as error:
            self._open(str(error), there)
            raise
        except (ConfigError, NotInStep) as error:
            raise BadAnswer(str(error)) from error
        if there is not self._connection:
            raise Unavailable(f"{there.address} has left its slot")
        known = self.descriptor
        same_points = self.is_slot or set(descriptor.points) == set(known.points)
        if descriptor.name != known.name or not same_points:
            self._open("it has another name or other points than at the start", there)
            raise BadAnswer(
                f"{self.address} was {known.name} ({', '.join(known.points)}) and is now "
                f"{descriptor.name} ({', '.join(descriptor.points)}): that needs a restart"
            )
        if descriptor.events != known.events and not self.is_slot:
            told = "Plugin wants to hear of other events; it will from the next reload on"
            log.warning(told, plugin=known.name, endpoint=there.address)
        self.descriptor = descriptor
        self._forget_snapshot()

    def _forget_snapshot(self) -> None:
        self.snapshot = Snapshot(self.descriptor.node_columns, self.descriptor.arrays)

    # ---- the circuit ---------------------------------------------------------------------------

    def _open(self, reason: str, there: Connection | None) -> None:
        """Leave the process alone, unless it is not there any more: it may have left its slot."""
        if there is not self._connection:
            return
        is_news = not self.is_open
        self._circuit.open(reason, self.address)
        if is_news and self.descriptor.ignorable:
            self._something_has_changed()

    async def watch(self) -> None:
        """Look after the process until cancelled: its health, and what it is to be told.

        Profiles may share an endpoint: one of them watches, the others stand by.
        """
        async with self._one_watch:
            telling = asyncio.create_task(self._outbox.run(self._post_message))
            try:
                await self._watch()
            finally:
                telling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await telling

    async def _post_message(self, path: str, body: bytes) -> None:
        self._refuse_if_open(path)
        await self._exchange(path, body, Answer, self.descriptor.timeout_seconds)

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
            there = self._connection
            if not self.is_open and (problem := await self.illness()):
                self._open(problem, there)

    async def illness(self) -> str | None:
        """Ask for the process's health; return what is wrong with it, or None."""
        try:
            body = await self._there.get("/v1/health", self.descriptor.timeout_seconds)
            self._note_epoch(wire.decode(body, Answer))
        except (NoAnswer, NotInStep, BadAnswer, Unavailable) as error:
            return str(error)
        return None

    async def _probe(self) -> None:
        """See whether the process is back, and bring it in step before any pod asks it."""
        there = self._connection
        problem = await self.illness()
        try:
            if problem is None:
                await self._begin_anew()
                if self._table is not None:
                    await self._keep_in_step(self._table)
        except ProreusError as error:
            problem = str(error)
        if problem is not None:
            self._open(problem, there)
            return
        if there is not self._connection:
            return
        self._circuit.close()
        self._something_has_changed()
        log.info("Plugin answers again", plugin=self.descriptor.name, endpoint=self.address)


async def check_args(
    connection: Connection, descriptor: Descriptor, args: Mapping[str, Any]
) -> None:
    """Ask a process whether arguments, by profile, will do; raises ``ConfigError``."""
    try:
        body = wire.encode({"profiles": args, "check": True})
        await connection.post("/v1/profiles", body, descriptor.timeout_seconds)
    except (NoAnswer, NotInStep, BadAnswer) as error:
        text = f'initializing plugin "{descriptor.name}": {connection.address}{error}'
        raise ConfigError(f"initializing profiles: {text}") from error
