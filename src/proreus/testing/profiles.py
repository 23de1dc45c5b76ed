"""The configuration with which a harness runs the plugins under test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load, load_file
from proreus.config.types import SchedulerConfiguration
from proreus.engine.runtime.expansion import expand_all
from proreus.engine.runtime.out_of_tree import is_out_of_tree
from proreus.engine.runtime.registry import Registry
from proreus.framework.extension_points import points_of
from proreus.framework.plugin import Plugin
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.loading.contract import contract_violations
from proreus.testing.mutation_check import checked_class

Configuration = Mapping[str, Any] | str | Path

_REQUIRED_PLUGINS = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
_SINGLE_PLUGIN_POINTS = ("queueSort", "placementGenerate")


def registry_with(plugins: Sequence[type[Plugin]]) -> Registry:
    """Return a registry of the in-tree plugins and these, which fail where they change arguments.

    Raises ``TypeError`` for a class that is not a valid plugin.
    """
    if isinstance(plugins, type) or not isinstance(plugins, Iterable):
        given = plugins.__name__ if isinstance(plugins, type) else repr(plugins)
        raise TypeError(f"plugins are given as a list of classes: [{given}]")
    owners = {plugin.name: plugin for plugin in IN_TREE_PLUGINS}
    for plugin in plugins:
        _check(plugin)
        owner = owners.setdefault(plugin.name, plugin)
        if owner is not plugin:
            raise TypeError(
                f"the name {plugin.name!r} of class {plugin.__qualname__} is that of another "
                f"plugin, {owner.__module__}.{owner.__qualname__}; set name to a unique one"
            )
    checked = (checked_class(one) if is_out_of_tree(one) else one for one in plugins)
    return Registry((*IN_TREE_PLUGINS, *checked))


def load_with(
    config: Configuration, plugins: Sequence[type[Plugin]], registry: Registry, gates: FeatureGates
) -> SchedulerConfiguration:
    """Load a configuration (data, YAML or a file).

    Raises ``ConfigError`` if it is invalid, or does not enable one of the plugins: a test of a
    plugin that is not run proves nothing.
    """
    if isinstance(config, Path):
        loaded = load_file(str(config), registry, gates)
    else:
        loaded = load(config, registry, gates)
    profiles = expand_all(loaded, registry, gates).values()
    enabled = {name for profile in profiles for name in profile.plugins}
    idle = [plugin.name for plugin in plugins if plugin.name not in enabled]
    if idle:
        raise ConfigError(
            f"no profile of this configuration enables {', '.join(idle)}: add "
            f"plugins.multiPoint.enabled: [{{name: {idle[0]}}}] to a profile"
        )
    return loaded


def profile_with(
    plugins: Iterable[type[Plugin]],
    args: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, int],
    alone: bool,
) -> dict[str, Any]:
    """Return a configuration with one profile: the default one, with these plugins after its own.

    ``alone``: only these plugins, and PrioritySort and DefaultBinder unless these replace them.
    Raises ``ConfigError`` if ``args`` or ``weights`` name an unknown plugin.
    """
    plugins = list(plugins)
    names = [plugin.name for plugin in plugins]
    for what in (args, weights):
        for name in what:
            if name not in names and not _in_tree(name):
                known = ", ".join(names) or "none"
                raise ConfigError(f"{name!r} is not among the plugins given here: {known}")
    enabled = [{"name": name, "weight": weights.get(name, 0)} for name in (*names, *weights)]
    multi_point: dict[str, Any] = {"enabled": list({e["name"]: e for e in enabled}.values())}
    sets: dict[str, Any] = {"multiPoint": multi_point}
    taken = {point: [p.name for p in plugins if point in points_of(p)] for point in _POINTS}
    if alone:
        multi_point["disabled"] = [{"name": "*"}]
        needed = [name for point, name in _REQUIRED_PLUGINS.items() if not taken[point]]
        multi_point["enabled"] += [{"name": name} for name in needed if name not in names]
    for point in _POINTS:
        if not taken[point]:
            continue
        sets[point] = {"enabled": [{"name": name} for name in taken[point]]}
        if point in _SINGLE_PLUGIN_POINTS:
            sets[point]["disabled"] = [{"name": "*"}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": sets,
                "pluginConfig": [
                    {"name": name, "args": dict(values)} for name, values in args.items()
                ],
            }
        ],
    }


_POINTS = ("queueSort", "placementGenerate", "bind")
"""Extension points at which an additional plugin would be rejected (queueSort), or never run."""


def _in_tree(name: str) -> bool:
    return any(plugin.name == name for plugin in IN_TREE_PLUGINS)


def _check(plugin: object) -> None:
    """Raise ``TypeError`` for a class that the scheduler would not load, with the same reasons."""
    if isinstance(plugin, Plugin):
        raise TypeError(
            f"plugins are given as classes: {type(plugin).__name__}, without parentheses; "
            "their arguments go into args={name: {...}}"
        )
    faults = [f"{place}: {text}" if place else text for place, text in contract_violations(plugin)]
    if faults:
        raise TypeError("\n".join(faults))
