"""``proreus plugins`` lists the plugins that can be enabled, their origin, and refused ones.

In-tree plugins come first, then add-ons, then out-of-tree ones.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from proreus.base.kubernetes_version import DEFAULT_VERSION, parse_emulated_version
from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.plugin_options import load_plugins, plugin_options

if TYPE_CHECKING:
    from proreus.base.feature_gates import FeatureGates
    from proreus.process.loading.loaded_plugins import LoadedPlugin, LoadedPlugins


@click.command("plugins", short_help="List all plugins, and check your own.")
@plugin_options
@documented_options
def command(
    *,
    plugin: tuple[str, ...],
    plugin_dir: tuple[str, ...],
    plugin_endpoint: tuple[str, ...] = (),
    config: Annotated[str | None, click.Path()] = None,
    feature_gates: tuple[str, ...] = (),
    emulated_version: str = str(DEFAULT_VERSION),
    output: Literal["text", "json"] = "text",
) -> int:
    """List all plugins with their extension points, arguments and origin.

    Plugins that cannot be used are reported on standard error, and the exit code is 1: use it to
    check plugins before they are shipped. With --config, so is whatever keeps the scheduler from
    starting with that configuration: unknown plugins, invalid arguments, a plugin that raises when
    it is made.

    --plugin-endpoint ADDRESS
        Plugin in a process of its own; may be repeated.
    --config
        KubeSchedulerConfiguration to try out: all its plugins are made, without a cluster.
    --feature-gates NAME=BOOL,…
        Feature gates to try the configuration with.
    --emulated-version VERSION
        Version of Kubernetes whose extension points and feature gates count. [default]
    -o, --output
        Output format. [default]
    """
    from proreus.base.feature_gates import FeatureGates

    version = parse_emulated_version(emulated_version.removeprefix("kube="), "--emulated-version")
    gates = FeatureGates.from_list(",".join(feature_gates).split(","), version)
    loaded_plugins = load_plugins(plugin, plugin_dir, plugin_endpoint)
    if config is not None:
        _try_out(config, gates, loaded_plugins)
    if output == "json":
        click.echo(json.dumps(_as_data(loaded_plugins, gates), indent=2, ensure_ascii=False))
    else:
        for name, found in _all(loaded_plugins).items():
            _print(name, found, gates, loaded_plugins.replaces_add_on(name))
        if config is not None and not loaded_plugins.refusals:
            click.echo(f"{config} is valid: a scheduler starts with it.")
    return 1 if loaded_plugins.refusals else 0


def _try_out(path: str, gates: FeatureGates, loaded_plugins: LoadedPlugins) -> None:
    """Make every plugin of a configuration, as at the start; raises ``ConfigError``."""
    import asyncio

    from proreus.base import logs
    from proreus.base.errors import ConfigError
    from proreus.config.load import load_file, naming_file
    from proreus.offline.cluster import OfflineCluster

    # As the process logs them: without, warnings would lack the plugins' names and the remedy.
    logs.configure()
    with loaded_plugins.attributing_errors_to_plugins():
        configuration = load_file(path, loaded_plugins.registry, gates)
    if problems := loaded_plugins.problems(configuration):
        raise ConfigError(*problems)

    async def build() -> None:
        # An empty cluster in memory; plugins may need a running loop when they are made.
        OfflineCluster(configuration, loaded_plugins.registry, gates)

    with naming_file(path):
        asyncio.run(build())


def _all(loaded_plugins: LoadedPlugins) -> dict[str, LoadedPlugin]:
    """Return in-tree plugins, add-ons and out-of-tree plugins, in this order."""
    found, out_of_tree = loaded_plugins.found, loaded_plugins.out_of_tree
    in_tree = {name: one for name, one in found.items() if name not in out_of_tree}
    return in_tree | loaded_plugins.add_ons() | out_of_tree


def _print(name: str, found: LoadedPlugin, gates: FeatureGates, replaces_add_on: bool) -> None:
    replaces = ", instead of the add-on" if replaces_add_on else ""
    click.echo(f"{name} ({found.origin}{replaces})")
    click.echo(f"    {', '.join(_points(found, gates))}")
    for argument in _arguments(found):
        click.echo(f"    {argument}")


def _as_data(loaded_plugins: LoadedPlugins, gates: FeatureGates) -> dict[str, Any]:
    plugins = []
    for name, found in _all(loaded_plugins).items():
        origin = found.origin
        file, line = found.location
        plugins.append(
            {
                "name": name,
                "description": (inspect.getdoc(found.plugin) or "").partition("\n")[0],
                "points": _points(found, gates),
                "args": [field._asdict() for field in _arguments(found)],
                "origin": {
                    "kind": origin.way,
                    "package": origin.package,
                    "version": origin.version,
                    "file": file,
                    "line": line,
                },
            }
        )
    refused = [
        {"source": one.source, "place": one.place, "why": one.why}
        for one in loaded_plugins.refusals
    ]
    return {"plugins": plugins, "refused": refused}


def _points(found: LoadedPlugin, gates: FeatureGates) -> list[str]:
    """Return the extension points in the order in which they are called for a pod."""
    from proreus.config.default_plugins import points_in_version
    from proreus.framework.extension_points import POINTS, points_of

    points = points_in_version(found.plugin.name, points_of(found.plugin), gates)
    return [point for point in POINTS if point in points]


def _arguments(found: LoadedPlugin) -> Any:
    from proreus.config.arg_fields import fields_of

    return fields_of(found.plugin.Args) if found.plugin.Args is not None else ()
