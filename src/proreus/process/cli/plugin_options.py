"""``--plugin`` and ``--plugin-dir`` for the commands other than ``run``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from proreus.base.errors import ConfigError

if TYPE_CHECKING:
    from proreus.framework.plugin import Plugin
    from proreus.process.loading.loaded_plugins import LoadedPlugins

F = TypeVar("F", bound=Callable[..., Any])


def plugin_options(command: F) -> F:
    """Add both options to a command; its arguments are ``plugin`` and ``plugin_dir``."""
    module = click.option(
        "--plugin", multiple=True, metavar="MODULE:CLASS", help="Plugin to load; may be repeated."
    )
    folder = click.option(
        "--plugin-dir",
        multiple=True,
        type=click.Path(),
        help="Folder with .py files of plugins to load; may be repeated.",
    )
    return module(folder(command))


def load_plugins(
    plugin: tuple[str, ...], plugin_dir: tuple[str, ...], endpoints: tuple[str, ...] = ()
) -> LoadedPlugins:
    """Load all plugins; report refused ones on standard error."""
    from proreus.process.loading.load import PluginSources, load

    loaded_plugins = load(PluginSources(plugin, plugin_dir), _classes_of_endpoints(endpoints))
    for refusal in loaded_plugins.refusals:
        click.echo(f"Refused: {refusal}", err=True)
    return loaded_plugins


def _classes_of_endpoints(endpoints: tuple[str, ...]) -> dict[str, type[Plugin]]:
    """Return the classes of out-of-process plugins, without waiting for processes to start."""
    if not endpoints:
        return {}
    import asyncio

    from proreus.base.metrics import SchedulerMetrics
    from proreus.process.remote_plugins import connect_plugins

    async def connect() -> dict[str, type[Plugin]]:
        async with connect_plugins(endpoints, (), SchedulerMetrics(), 0.0) as remote_plugins:
            return remote_plugins.classes

    try:
        return asyncio.run(connect())
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
