"""Plugins of kube-scheduler that proreus does not have yet. To be removed when it has them all.

Whoever names one gets a refusal rather than a scheduler that silently ignores a rule; the default
profile, which nobody wrote, goes on without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proreus.config.catalog import PluginCatalog
from proreus.config.default_plugins import IN_TREE
from proreus.config.types import SchedulerConfiguration


def missing(names: Iterable[str], catalog: PluginCatalog) -> frozenset[str]:
    """Return those of the names that kube-scheduler has and the catalog has not."""
    return IN_TREE.intersection(names) - catalog.names()


def refusals(written: SchedulerConfiguration, catalog: PluginCatalog) -> Iterator[str]:
    """Yield a sentence for each missing plugin that the configuration, as written, names."""
    named: set[str] = set()
    for profile in written.profiles:
        named |= profile.plugins.enabled_names()
        named.update(config.name for config in profile.plugin_config)
    for name in sorted(missing(named, catalog)):
        yield f"plugin {name} of kube-scheduler is not implemented in proreus yet"
