"""What configuration must know about plugins, without knowing plugins."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from proreus.config.plugin_args import IN_TREE_ARGS
from proreus.config.types import PluginArgs


class PluginCatalog(Protocol):
    """The plugins that are there. The runtime's registry is one."""

    def names(self) -> Set[str]:
        """Return the names of all plugins that can be made."""
        ...

    def args_model(self, name: str) -> type[PluginArgs] | None:
        """Return the model of a plugin's arguments; None where it takes none or is not there."""
        ...

    def points(self, name: str) -> Set[str]:
        """Return a plugin's extension points, spelled as in the file; none where it is not there.

        preEnqueue, queueSort, preFilter, filter, postFilter, preScore, score, reserve, permit,
        preBind, bind, postBind, placementGenerate, placementScore.
        """
        ...


def args_model(catalog: PluginCatalog, plugin: str) -> type[PluginArgs] | None:
    """Return the model of a plugin's arguments, of kube-scheduler's own also where not there."""
    return catalog.args_model(plugin) or IN_TREE_ARGS.get(plugin)
