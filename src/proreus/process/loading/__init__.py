"""Finds, imports and checks out-of-tree plugins.

They come from entry points of installed packages, ``--plugin module:Class`` and ``--plugin-dir``.
``load`` is called at start-up and whenever plugin files change. It raises nothing: a plugin that
cannot be used is rejected with its place and the reason, and is an error only if a configuration
names it. Ordering and calling plugins is the task of ``runtime``.
"""

from proreus.process.loading.import_anew import content_hash
from proreus.process.loading.load import ENTRY_POINTS, PluginSources, add_ons, load
from proreus.process.loading.loaded_plugins import (
    LoadedPlugin,
    LoadedPlugins,
    Origin,
    PluginFile,
    RejectedPlugin,
)

__all__ = [
    "ENTRY_POINTS",
    "LoadedPlugin",
    "LoadedPlugins",
    "Origin",
    "PluginFile",
    "PluginSources",
    "RejectedPlugin",
    "add_ons",
    "content_hash",
    "load",
]
