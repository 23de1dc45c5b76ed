"""Plugins in processes of their own, connected before the configuration is read, which names them.

A slot is a plugin name whose process may register later, while the configuration names it already.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from proreus.base.errors import ConfigError, UnknownPluginSlot
from proreus.base.logs import logger
from proreus.base.metrics import SchedulerMetrics
from proreus.config.types import SchedulerConfiguration
from proreus.framework.plugin import Plugin

if TYPE_CHECKING:
    from proreus.remote.endpoint import Endpoint

log = logger(__name__)

_SLOT = "--plugin-slot"


class RemotePlugins:
    """The connected plugin processes, and the slots by name.

    ``classes``: their plugins, by address, and by the flag that keeps a slot.

    ``proreus.remote`` is imported only where there is a process or a slot, since most schedulers
    have none.
    """

    def __init__(self, endpoints: Sequence[Endpoint], slots: Sequence[Endpoint]) -> None:
        self._endpoints = (*endpoints, *slots)
        self._slots = {slot.descriptor.name: slot for slot in slots}
        self.classes = _classes(self._endpoints)

    async def register(self, address: str, posted: bytes = b"") -> Mapping[str, Any]:
        """Let the process at an address take the slot of its plugin's name; raises ``ConfigError``.

        ``posted``: its descriptor in JSON, if it sent one; it must equal the one that it serves.
        Processes should register periodically: it changes nothing while they have their slot, and
        gives it back to them after a restart of proreus.
        """
        from proreus.remote.connection import Connection
        from proreus.remote.descriptor import changed_fields, read_descriptor
        from proreus.remote.handshake import fetch_descriptor
        from proreus.remote.process_sync import check_args

        expected = read_descriptor(posted, "the request") if posted else None
        connection = Connection(address)
        try:
            served = await fetch_descriptor(connection)
            if expected is not None and expected != served:
                fields = ", ".join(changed_fields(expected, served))
                raise ConfigError(f"{address} serves another descriptor than was posted: {fields}")
            slot = self._slot(served.name)
            if slot.address == address and slot.descriptor == served and not slot.is_open:
                await connection.close()
                return _state_of(slot)
            # Before it gets the slot: a process that refuses its arguments must not replace one
            # that works.
            await check_args(connection, served, slot.sync.args)
        except BaseException:
            await connection.close()
            raise
        await slot.attach(connection, served)
        log.info("Plugin registered", plugin=served.name, endpoint=address)
        return _state_of(slot)

    async def withdraw(self, name: str) -> Mapping[str, Any]:
        """Detach the process from a slot."""
        slot = self._slot(name)
        await slot.detach()
        log.info("Plugin withdrawn", plugin=name)
        return _state_of(slot)

    def slots(self) -> Sequence[Mapping[str, Any]]:
        """Return the state of every slot."""
        return [_state_of(slot) for slot in self._slots.values()]

    def _slot(self, name: str) -> Endpoint:
        slot = self._slots.get(name)
        if slot is None:
            kept = ", ".join(sorted(self._slots)) or "none"
            raise UnknownPluginSlot(
                f'there is no slot for a plugin "{name}" ({_SLOT}); kept: {kept}'
            )
        return slot

    async def check_args(self, config: SchedulerConfiguration) -> None:
        """Let each process validate its arguments; raises ``ConfigError``."""
        for endpoint in self._endpoints:
            args = _args_of(endpoint, config)
            # Pods do without an ignorable plugin while it is away; so can a configuration.
            passed_by = endpoint.is_open and endpoint.descriptor.ignorable
            if args and not (endpoint.is_slot or passed_by):
                await endpoint.check_args(args)

    def keep_for_slots(self, config: SchedulerConfiguration) -> None:
        """Keep the arguments for processes that register later."""
        for slot in self._slots.values():
            for profile_name, plain in _args_of(slot, config).items():
                slot.sync.set_args(profile_name, plain)


def _classes(endpoints: Sequence[Endpoint]) -> dict[str, type[Plugin]]:
    if not endpoints:
        return {}
    # Here, since few processes have such plugins.
    from proreus.remote.classes import plugin_class

    return {
        endpoint.address or f"{_SLOT} {endpoint.descriptor.name}": plugin_class(endpoint)
        for endpoint in endpoints
    }


def _args_of(endpoint: Endpoint, config: SchedulerConfiguration) -> dict[str, dict[str, Any]]:
    """Return the arguments of a plugin in the profiles that enable it, by profile."""
    from proreus.remote.plugin import RemoteArgs

    name = endpoint.descriptor.name
    return {
        profile.name: given.plain() if isinstance(given, RemoteArgs) else {}
        for profile in config.profiles
        if name in profile.plugins.enabled_names()
        for given in (profile.args().get(name),)
    }


def _state_of(slot: Endpoint) -> Mapping[str, Any]:
    descriptor = slot.descriptor
    return {
        "name": descriptor.name,
        "endpoint": slot.address,
        "points": descriptor.points,
        "answers": not slot.is_open,
    }


@contextlib.asynccontextmanager
async def connect_plugins(
    addresses: Sequence[str],
    slots: Sequence[str],
    metrics: SchedulerMetrics,
    connect_timeout_seconds: float | None = None,
) -> AsyncIterator[RemotePlugins]:
    """Connect to all addresses concurrently; raises ``ConfigError`` with every problem.

    ``connect_timeout_seconds``: how long a process may take to come up; None: 30 seconds.
    """
    if not (addresses or slots):
        yield RemotePlugins((), ())
        return
    from proreus.remote.descriptor import empty_slot, name_problem
    from proreus.remote.endpoint import Endpoint
    from proreus.remote.handshake import CONNECT_TIMEOUT_SECONDS, connect

    seconds = (
        CONNECT_TIMEOUT_SECONDS if connect_timeout_seconds is None else connect_timeout_seconds
    )
    async with contextlib.AsyncExitStack() as stack:
        connected = await asyncio.gather(
            *(connect(address, metrics, seconds) for address in dict.fromkeys(addresses)),
            return_exceptions=True,
        )
        problems = [f"{_SLOT}: {problem}" for name in slots if (problem := name_problem(name))]
        endpoints: list[Endpoint] = []
        for outcome in connected:
            if isinstance(outcome, Endpoint):
                stack.push_async_callback(outcome.close)
                endpoints.append(outcome)
            elif isinstance(outcome, ConfigError):
                problems += outcome.problems
            else:
                raise outcome
        if problems:
            raise ConfigError(*problems)
        places = [Endpoint(None, empty_slot(name), metrics) for name in dict.fromkeys(slots)]
        for place in places:
            stack.push_async_callback(place.close)
        yield RemotePlugins(endpoints, places)
