"""Plugins in processes of their own: met before the configuration is read, since it names them.

Slots are places for processes that register later: the configuration knows their names already.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from proreus.config.types import SchedulerConfiguration
from proreus.errors import ConfigError, UnknownPluginSlot
from proreus.framework.plugin import Plugin
from proreus.logs import logger
from proreus.metrics import SchedulerMetrics
from proreus.remote.classes import plugin_class
from proreus.remote.connection import Connection
from proreus.remote.descriptor import changed_fields, empty_slot, name_problem, read_descriptor
from proreus.remote.endpoint import Endpoint, check_args
from proreus.remote.handshake import CONNECT_TIMEOUT_SECONDS, connect, fetch_descriptor
from proreus.remote.plugin import RemoteArgs

log = logger(__name__)

_SLOT = "--plugin-slot"


class RemotePlugins:
    """The processes that were met, and slots by name.

    ``classes``: their plugins, by address, and by the flag that keeps a slot.

    Implements ``server.plugin_registration.Registrar``.
    """

    def __init__(self, endpoints: Sequence[Endpoint], slots: Sequence[Endpoint]) -> None:
        self._endpoints = (*endpoints, *slots)
        self._slots = {slot.descriptor.name: slot for slot in slots}
        self.classes: dict[str, type[Plugin]] = {
            endpoint.address or f"{_SLOT} {endpoint.descriptor.name}": plugin_class(endpoint)
            for endpoint in self._endpoints
        }

    async def register(self, address: str, posted: bytes = b"") -> Mapping[str, Any]:
        """Let the process at an address take the slot of its plugin's name.

        ``posted``: the descriptor in JSON, where it was sent along. It has to be the one that the
        process serves: whoever comes back after a restart is known by that.

        One that has it already may register again and again, as it should: nothing changes, but
        after a restart of proreus it has its slot again.
        """
        expected = read_descriptor(posted, "what was posted") if posted else None
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
            await check_args(connection, served, slot.args)
        except BaseException:
            await connection.close()
            raise
        await slot.attach(connection, served)
        log.info("Plugin registered", plugin=served.name, endpoint=address)
        return _state_of(slot)

    async def withdraw(self, name: str) -> Mapping[str, Any]:
        """Empty a slot."""
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
        """Let each process look at the arguments it is going to get; raises ``ConfigError``.

        One that pods go on without while it is away is in nobody's way here either.
        """
        for endpoint in self._endpoints:
            args = _args_of(endpoint, config)
            passed_by = endpoint.is_open and endpoint.descriptor.ignorable
            if args and not (endpoint.is_slot or passed_by):
                await endpoint.check_args(args)

    def keep_for_slots(self, config: SchedulerConfiguration) -> None:
        """Keep the arguments for whoever comes to a slot, once a configuration is in force."""
        for slot in self._slots.values():
            for profile_name, plain in _args_of(slot, config).items():
                slot.set_args(profile_name, plain)


def _args_of(endpoint: Endpoint, config: SchedulerConfiguration) -> dict[str, dict[str, Any]]:
    """Return the arguments of a plugin in the profiles that enable it, by profile."""
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
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> AsyncIterator[RemotePlugins]:
    """Meet the processes at some addresses, together; raises ``ConfigError`` with every problem."""
    async with contextlib.AsyncExitStack() as stack:
        unique = dict.fromkeys(addresses)
        met = await asyncio.gather(
            *(connect(address, metrics, connect_timeout_seconds) for address in unique),
            return_exceptions=True,
        )
        problems = [f"{_SLOT}: {problem}" for name in slots if (problem := name_problem(name))]
        endpoints: list[Endpoint] = []
        for outcome in met:
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
