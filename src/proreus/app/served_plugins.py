"""Plugins in processes of their own: met before the configuration is read, since it names them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from proreus.config.types import SchedulerConfiguration
from proreus.errors import ConfigError
from proreus.framework.plugin import Plugin
from proreus.metrics import SchedulerMetrics
from proreus.remote.classes import plugin_class
from proreus.remote.endpoint import Endpoint
from proreus.remote.meeting import PATIENCE_SECONDS, meet
from proreus.remote.plugin import RemoteArgs


class ServedPlugins:
    """The processes that were met. ``classes``: their plugins, by address."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self.classes: dict[str, type[Plugin]] = {
            endpoint.address: plugin_class(endpoint) for endpoint in endpoints
        }

    async def check_args(self, config: SchedulerConfiguration) -> None:
        """Let each process look at the arguments it is going to get; raises ``ConfigError``."""
        for endpoint in self._endpoints:
            name = endpoint.descriptor.name
            args = {
                profile.name: given.plain() if isinstance(given, RemoteArgs) else {}
                for profile in config.profiles
                if name in profile.plugins.enabled_names()
                for given in (profile.args().get(name),)
            }
            if args:
                await endpoint.check_args(args)


@contextlib.asynccontextmanager
async def meet_plugins(
    addresses: Sequence[str],
    metrics: SchedulerMetrics,
    patience_seconds: float = PATIENCE_SECONDS,
) -> AsyncIterator[ServedPlugins]:
    """Meet the processes at some addresses, together; raises ``ConfigError`` with every problem."""
    async with contextlib.AsyncExitStack() as stack:
        unique = dict.fromkeys(addresses)
        met = await asyncio.gather(
            *(meet(address, metrics, patience_seconds) for address in unique),
            return_exceptions=True,
        )
        problems: list[str] = []
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
        yield ServedPlugins(endpoints)
