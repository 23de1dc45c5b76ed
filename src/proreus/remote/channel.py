"""Requests to one process, and the circuit that stops them while it does not respond."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from proreus.base.errors import ProreusError
from proreus.base.metrics import SchedulerMetrics
from proreus.remote import wire
from proreus.remote.circuit import Circuit
from proreus.remote.connection import Connection, NoResponse, OutOfSync
from proreus.remote.descriptor import Descriptor
from proreus.remote.remote_metrics import RemoteMetrics
from proreus.remote.wire import BadResponse, Response

EMPTY_SLOT = "no process has registered for it"


class Unavailable(ProreusError):
    """The process does not get a request: the circuit is open, or this one is never answered."""


class Channel:
    """A replaceable connection with its circuit, and the validity of earlier results.

    ``connection``: None while a slot is empty. ``epoch``: the last one that the process reported.
    ``on_change``: called when results of the plugin are no longer valid, because the epoch changed
    or the process came, went or restarted.
    """

    def __init__(
        self, connection: Connection | None, descriptor: Descriptor, metrics: SchedulerMetrics
    ) -> None:
        self.connection = connection
        self.descriptor = descriptor
        self.epoch = ""
        self.on_change: set[Callable[[], None]] = set()
        self.metrics = RemoteMetrics(metrics, descriptor.name)
        open_reason = EMPTY_SLOT if connection is None else None
        self.circuit = Circuit(descriptor.name, self.metrics, open_reason)

    @property
    def address(self) -> str:
        """The address of the process, "" for an empty slot."""
        return "" if self.connection is None else self.connection.address

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: requests fail at once."""
        return self.circuit.is_open

    @property
    def current_connection(self) -> Connection:
        """The connection to the process; raises ``Unavailable`` while the slot is empty."""
        if self.connection is None:
            raise Unavailable(EMPTY_SLOT)
        return self.connection

    def refuse_if_open(self, path: str) -> None:
        """Raise ``Unavailable`` if the circuit is open."""
        reason = self.circuit.open_reason
        if reason is not None:
            self.metrics.count(path, "left_out")
            raise Unavailable(f"{self.address} gets no requests until it responds ({reason})")

    async def exchange(self, path: str, body: bytes, type_: type[wire.T], seconds: float) -> wire.T:
        """Post a body and return the response, whether or not the circuit is open.

        Raises ``NoResponse``, which opens the circuit, ``BadResponse`` and ``OutOfSync``.
        """
        started, connection = perf_counter(), self.current_connection
        try:
            content = await connection.post(path, body, seconds)
            response = _decoded(path, content, type_)
        except NoResponse as error:
            self.metrics.count(path, "silent")
            self.open(str(error), connection)
            raise NoResponse(f"{self.address}{error}") from error
        except BadResponse as error:
            self.metrics.count(path, "bad")
            raise BadResponse(f"{self.address}{error}") from error
        self.metrics.count(path, "answered")
        self.metrics.observe(path, perf_counter() - started)
        if isinstance(response, Response):
            self._set_epoch(response)
        return response

    async def health_error(self) -> str | None:
        """Check the health of the process; return the fault, or None."""
        try:
            body = await self.current_connection.get("/v1/health", self.descriptor.timeout_seconds)
            self._set_epoch(wire.decode(body, Response))
        except (NoResponse, OutOfSync, BadResponse, Unavailable) as error:
            return str(error)
        return None

    def open(self, reason: str, connection: Connection | None) -> None:
        """Open the circuit, unless ``connection`` has been replaced: its process left the slot."""
        if connection is not self.connection:
            return
        was_closed = not self.is_open
        self.circuit.open(reason, self.address, self.descriptor.timeout_seconds)
        if was_closed and self.descriptor.ignorable:
            self.notify_changed()

    def notify_changed(self) -> None:
        """Retry the pods that the plugin rejected, since its results may be different now."""
        for call in tuple(self.on_change):
            call()

    def _set_epoch(self, response: Response) -> None:
        if response.epoch is not None and response.epoch != self.epoch:
            before, self.epoch = self.epoch, response.epoch
            if before:
                self.notify_changed()


def _decoded(path: str, content: bytes, type_: type[wire.T]) -> wire.T:
    """Return a response; raise ``BadResponse``, beginning with the path as errors of HTTP do."""
    try:
        return wire.decode(content, type_)
    except BadResponse as error:
        raise BadResponse(f"{path}: {error}") from error
