"""How plugins take part where no configuration file says so: what ``--plugin`` means alone."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.config.catalog import PluginCatalog
from proreus.config.types import ALL_PLUGINS, PluginRef, Plugins, PluginSet


def enabled_with_defaults(names: Iterable[str], catalog: PluginCatalog) -> Plugins:
    """Return the plugin sets of a profile that has these plugins beside the default ones.

    They come last at their points, but for two where that would be of no use: the last one that
    sorts the queue replaces PrioritySort, and they bind before DefaultBinder does.
    """
    refs = tuple(PluginRef(name=name) for name in names)
    sorting = tuple(ref for ref in refs if "queueSort" in catalog.points(ref.name))
    binding = tuple(ref for ref in refs if "bind" in catalog.points(ref.name))
    queue_sort = PluginSet()
    if sorting:
        queue_sort = PluginSet(enabled=sorting[-1:], disabled=(PluginRef(name=ALL_PLUGINS),))
    return Plugins(
        multi_point=PluginSet(enabled=refs),
        queue_sort=queue_sort,
        bind=PluginSet(enabled=binding),
    )
