"""Where to look for plugins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PluginSources:
    """What was asked for.

    ``modules``: ``module:Class``, by ``--plugin``. ``folders``: by ``--plugin-dir``. ``packages``:
    whether the entry points of installed packages count.
    """

    modules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    packages: bool = True
