"""Plugins that are brought along: found, imported, checked, and named in one catalogue.

Three ways in: entry points of installed packages, ``--plugin module:Class``, ``--plugin-dir DIR``.
``load`` is called at the start and again whenever plugin files change. It raises nothing: what
cannot be used is refused, with its place and what was expected, and who needs it decides what that
means. What must not be here: how plugins are ordered or called (``runtime``), and anything that
watches files.
"""

from proreus.loading.load import ENTRY_POINTS, load
from proreus.loading.loaded_plugins import LoadedPlugin, LoadedPlugins, Origin, RejectedPlugin
from proreus.loading.sources import PluginSources

__all__ = [
    "ENTRY_POINTS",
    "LoadedPlugin",
    "LoadedPlugins",
    "Origin",
    "PluginSources",
    "RejectedPlugin",
    "load",
]
