"""All plugins that this process knows, by name: in-tree and out-of-tree ones, and add-ons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from proreus.base.errors import ConfigError
from proreus.config.fields import PluginArgs
from proreus.engine.runtime.out_of_tree import is_out_of_tree
from proreus.framework.extension_points import points_of
from proreus.framework.plugin import Plugin


class Registry:
    """Plugin classes by name. Implements ``config.types.PluginCatalog``.

    ``add_ons``: what imports an add-on, by its name; called once somebody asks for that plugin. A
    plugin of ``plugins`` takes precedence over an add-on of its name.
    """

    def __init__(
        self,
        plugins: Iterable[type[Plugin]] = (),
        add_ons: Mapping[str, Callable[[], type[Plugin]]] = MappingProxyType({}),
    ) -> None:
        self._plugins: dict[str, type[Plugin]] = {}
        self._add_ons = dict(add_ons)
        for plugin in plugins:
            self.register(plugin)

    def register(self, plugin: type[Plugin]) -> None:
        """Add a plugin class; raises ``ConfigError`` if another class has its name."""
        # kube-scheduler, too, refuses to replace a registered plugin: which of two classes of the
        # same name decides about pods must not depend on the order of imports.
        known = self._plugins.get(plugin.name)
        if known is not None and known is not plugin:
            raise ConfigError(
                f"plugin {plugin.name!r} is defined twice: in {known.__module__} and "
                f"in {plugin.__module__}; give one of them another name"
            )
        self._plugins[plugin.name] = plugin

    def __getitem__(self, name: str) -> type[Plugin]:
        found = self._plugins.get(name)
        if found is not None:
            return found
        return self._add_ons[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._plugins or name in self._add_ons

    def names(self) -> frozenset[str]:
        """Return the names of all plugins."""
        return frozenset((*self._plugins, *self._add_ons))

    def is_in_tree(self, name: str) -> bool:
        """Return whether a plugin is one of kube-scheduler's own; False for an unknown name."""
        return name in self._plugins and not is_out_of_tree(self._plugins[name])

    def args_model(self, name: str) -> type[PluginArgs] | None:
        """Return the model of a plugin's arguments; None where it takes none."""
        return self[name].Args if name in self else None

    def points(self, name: str) -> frozenset[str]:
        """Return the extension points of a plugin, in configuration spelling."""
        return points_of(self[name]) if name in self else frozenset()
