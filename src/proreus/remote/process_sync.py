"""Keeps one process in sync: the arguments of its plugin by profile, and the nodes as columns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from proreus.base.errors import ConfigError
from proreus.framework.node_table import NodeTable
from proreus.remote import wire
from proreus.remote.connection import Connection, NoResponse, OutOfSync
from proreus.remote.descriptor import Descriptor
from proreus.remote.remote_metrics import RemoteMetrics
from proreus.remote.snapshot import Snapshot
from proreus.remote.wire import BadResponse, Response

_WHOLE_SNAPSHOT_SECONDS = 10.0
"""The least time-out of a whole snapshot, however short the plugin's own time-out is."""

Exchange = Callable[[str, bytes, type[Response], float], Awaitable[Response]]
"""Posts a body to a path; returns the response, or raises after so many seconds."""


class ProcessSync:
    """The state that a process has been sent, and the changes that it needs before the next
    request.

    ``table``: the nodes of the last request, None before the first. ``descriptor``: what the
    process wants to be sent.
    """

    def __init__(self, descriptor: Descriptor, exchange: Exchange, metrics: RemoteMetrics) -> None:
        self.snapshot = Snapshot(descriptor.node_columns, descriptor.arrays)
        self.table: NodeTable | None = None
        self.descriptor = descriptor
        self._exchange = exchange
        self._metrics = metrics
        self.args: dict[str, Any] = {}
        """The arguments by profile."""
        self._args_sent = False
        self._lock = asyncio.Lock()

    def set_args(self, profile: str, args: Any) -> None:
        """Set the arguments of a profile; they are sent with the next request."""
        known = self.args.get(profile, self)
        if known is not args and known != args:
            self.args[profile] = args
            self._args_sent = False

    def forget(self, descriptor: Descriptor) -> None:
        """Treat the process as one that has received nothing; it may have a new descriptor."""
        self.descriptor = descriptor
        self._args_sent = False
        self._forget_snapshot()

    def forget_args(self) -> None:
        """Send the arguments again before the next request."""
        self._args_sent = False

    async def send_args(self) -> None:
        """Send the arguments unless the process has them."""
        async with self._lock:
            await self._send_args()

    async def send(self, table: NodeTable) -> None:
        """Send the arguments and the rows of ``table`` that the process does not have yet."""
        async with self._lock:
            await self._send_args()
            if {"filter", "score"}.isdisjoint(self.descriptor.points):
                return
            update = self.snapshot.next_update(table)
            if update is not None:
                await self._send_update(update)

    async def _send_args(self) -> None:
        if not self._args_sent:
            args, seconds = dict(self.args), self.descriptor.timeout_seconds
            body = wire.encode({"profiles": args})
            await self._exchange("/v1/profiles", body, Response, seconds)
            self._args_sent = args == self.args

    async def _send_update(self, update: dict[str, Any]) -> None:
        seconds = self.descriptor.timeout_seconds
        if update["base"] is None:
            self._metrics.resyncs.inc()
            seconds = max(seconds, _WHOLE_SNAPSHOT_SECONDS)
        try:
            await self._exchange("/v1/nodes", wire.encode(update), Response, seconds)
        except BaseException:
            # It is unknown whether the update arrived: the next one must be a whole snapshot.
            self._forget_snapshot()
            raise

    def _forget_snapshot(self) -> None:
        self.snapshot = Snapshot(self.descriptor.node_columns, self.descriptor.arrays)


async def check_args(
    connection: Connection, descriptor: Descriptor, args: Mapping[str, Any]
) -> None:
    """Send arguments to the process to be checked, by profile; raise ``ConfigError``."""
    try:
        body = wire.encode({"profiles": args, "check": True})
        await connection.post("/v1/profiles", body, descriptor.timeout_seconds)
    except (NoResponse, OutOfSync, BadResponse) as error:
        text = f'initializing plugin "{descriptor.name}": {connection.address}{error}'
        raise ConfigError(f"initializing profiles: {text}") from error
