"""The result of a load: plugins with their origins, and rejected ones with the reasons."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypedDict

from msgspec import Struct

from proreus.base.errors import ConfigError, ProreusError
from proreus.base.logs import named_error_text
from proreus.base.source_location import class_location, error_location
from proreus.config.types import (
    ALL_PLUGINS,
    PluginRef,
    Plugins,
    PluginSet,
    SchedulerConfiguration,
)
from proreus.engine.runtime.disabled_plugin import never_called
from proreus.engine.runtime.plugin_errors import is_cancellation
from proreus.engine.runtime.registry import Registry
from proreus.framework.plugin import Plugin


class Origin(Struct, frozen=True):
    """The origin of a plugin; ``package`` and ``version`` are set for installed packages.

    ``file`` of a remote plugin is its address, and empty for an in-tree one and an add-on (see
    ``LoadedPlugin.location``).
    """

    way: Literal["in-tree", "add-on", "package", "module", "folder", "endpoint"]
    file: str
    line: int
    package: str = ""
    version: str = ""

    def __str__(self) -> str:
        if self.way in ("in-tree", "add-on"):
            return self.way
        if self.way == "package":
            return f"{self.package} {self.version}".rstrip()
        if self.way == "endpoint":
            return self.file
        return f"{self.file}:{self.line}"


class LoadedPlugin(Struct, frozen=True):
    """A usable plugin and its origin."""

    plugin: type[Plugin]
    origin: Origin

    @property
    def location(self) -> tuple[str, int]:
        """The file and line of the class."""
        # To find the line, Python parses the file. For all in-tree plugins that takes as long as a
        # fifth of the start of the process, where nobody wants to know.
        if self.origin.way in ("in-tree", "add-on"):
            return class_location(self.plugin)
        return self.origin.file, self.origin.line


class PluginFile(TypedDict):
    """An out-of-tree file as loaded. ``package``: name and version if it is installed, else ""."""

    file: str
    sha256: str
    plugins: list[str]
    package: str


class RejectedPlugin(Struct, frozen=True):
    """A plugin, module or folder that cannot be used.

    ``source``: the flag or entry point that named it. ``place``: ``file:line``, "" without a file.
    ``why``: what is wrong and what is expected. ``names``: the plugins that are missing because of
    it, as far as known from a file that cannot be imported. ``conflicting_name``: a name that
    another plugin already has; in a configuration it is ambiguous.
    """

    source: str
    place: str
    why: str
    names: frozenset[str] = frozenset()
    conflicting_name: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.why} ({self.source})" if self.place else self.where_and_why

    @property
    def where_and_why(self) -> str:
        """The reason after the source, as in ``--plugin a:B: ...``."""
        return f"{self.source}: {self.why}"


class LoadedPlugins:
    """The plugins of one load. ``registry`` has all of them, in-tree ones and add-ons included.

    ``found`` has no add-ons, since these are not imported before a configuration names them.

    ``requested_names``: the names of plugins that flags name one by one (``--plugin``).
    ``modules``: the names in ``sys.modules`` of modules that were imported for this load alone.
    ``hashes``: SHA-256 in hexadecimal of what was read of each out-of-tree file, by path; files
    that plugins share, and those that could not be imported, are among them.
    ``files_without_plugins``: those of plugin folders. ``add_ons``: what imports each, by name.
    """

    def __init__(
        self,
        found: Mapping[str, LoadedPlugin],
        refusals: Sequence[RejectedPlugin],
        requested_names: Sequence[str],
        modules: Iterable[str],
        hashes: Mapping[str, str],
        files_without_plugins: Iterable[str],
        add_ons: Mapping[str, Callable[[], type[Plugin]]],
    ) -> None:
        self.found = dict(found)
        self._add_ons = add_ons
        self.refusals = tuple(refusals)
        self.requested_names = tuple(requested_names)
        self.registry = self._new_registry()
        self._modules = tuple(modules)
        self.hashes = dict(hashes)
        self._files_without_plugins = {
            _comparable(os.path.basename(file).removesuffix(".py")): file
            for file in files_without_plugins
        }

    def _new_registry(self) -> Registry:
        return Registry((one.plugin for one in self.found.values()), self._add_ons)

    def add_ons(self) -> dict[str, LoadedPlugin]:
        """Import all add-ons, and return them by name, except the ones that a found plugin
        replaces.
        """
        return {
            name: LoadedPlugin(self.registry[name], Origin("add-on", "", 0))
            for name in self._add_ons
            if name not in self.found
        }

    def replaces_add_on(self, name: str) -> bool:
        """Return whether a plugin has the name of an add-on, which cannot be enabled then."""
        return name in self.found and name in self._add_ons

    @property
    def out_of_tree(self) -> dict[str, LoadedPlugin]:
        """The out-of-tree plugins by name."""
        return {name: one for name, one in self.found.items() if one.origin.way != "in-tree"}

    def content_of(self, name: str) -> str:
        """Return the identity of an out-of-tree plugin's code, which is a SHA-256, or "" if
        unknown.

        It covers all files that were loaded from the folder of the plugin's file, since they may
        import each other, and the version of its package.
        """
        origin = self.found[name].origin
        folder = os.path.dirname(origin.file)
        lines = [
            f"{content}  {os.path.basename(file)}\n"
            for file, content in sorted(self.hashes.items())
            if os.path.dirname(file) == folder
        ]
        if not lines:
            return ""
        text = f"{name} {origin.package} {origin.version}\n{''.join(lines)}"
        return hashlib.sha256(text.encode()).hexdigest()

    def disable(self, name: str, because: str) -> None:
        """Put a class that is never called in the place of a plugin."""
        one = self.found[name]
        self.found[name] = LoadedPlugin(never_called(one.plugin, because), one.origin)
        self.registry = self._new_registry()

    def files(self) -> list[PluginFile]:
        """Return each out-of-tree file with its hash and its plugins."""
        plugins: dict[str, list[str]] = {file: [] for file in self.hashes}
        versions: dict[str, str] = {}
        for name, one in self.out_of_tree.items():
            if one.origin.file in plugins:
                plugins[one.origin.file].append(name)
                versions[one.origin.file] = f"{one.origin.package} {one.origin.version}".strip()
        return [
            PluginFile(
                file=file,
                sha256=self.hashes[file],
                plugins=sorted(names),
                package=versions.get(file, ""),
            )
            for file, names in sorted(plugins.items())
        ]

    def problems(self, config: SchedulerConfiguration) -> list[str]:
        """Return a sentence for each rejected plugin that a configuration names.

        Also for each unknown one that a file without a plugin is named after.
        """
        return self.problems_with(_named_by(config))

    def problems_with(self, names: Iterable[str]) -> list[str]:
        """Return a sentence for each rejection that concerns one of the named plugins."""
        named = frozenset(names)
        missing = named - self.found.keys() - self._add_ons.keys()
        empty = [
            f'plugin "{name}" does not exist: {file} has no plugin, that is, no class that '
            "inherits from an extension point of proreus.framework"
            for name in sorted(missing)
            if (file := self._files_without_plugins.get(_comparable(name)))
        ]
        return empty + [
            f"plugin {', '.join(sorted(concerned))} cannot be used: {refusal}"
            for refusal in self.refusals
            if (concerned := (refusal.names & missing) | (named & {refusal.conflicting_name}))
        ]

    def unused(self, config: SchedulerConfiguration) -> list[str]:
        """Return the names of plugins that flags load and no profile enables."""
        enabled = {name for profile in config.profiles for name in profile.plugins.enabled_names()}
        by_flag = ("module", "folder", "endpoint")
        given = {name for name, one in self.found.items() if one.origin.way in by_flag}
        return sorted(given - enabled)

    def default_plugins(self) -> Plugins:
        """Return the plugin sets of the profile that applies without a configuration file."""
        return self.enabling(name for name in self.requested_names if name in self.registry)

    def enabling(self, names: Iterable[str]) -> Plugins:
        """Return the plugin sets of a profile with these plugins in addition to the default ones.

        They come last at their points, with two exceptions, where a plugin in the last place would
        never be called: the last queue sort plugin replaces PrioritySort, and binders come before
        DefaultBinder.
        """
        refs = tuple(PluginRef(name=name) for name in names)
        sorting = tuple(ref for ref in refs if "queueSort" in self.registry.points(ref.name))
        binding = tuple(ref for ref in refs if "bind" in self.registry.points(ref.name))
        queue_sort = PluginSet()
        if sorting:
            queue_sort = PluginSet(enabled=sorting[-1:], disabled=(PluginRef(name=ALL_PLUGINS),))
        return Plugins(
            multi_point=PluginSet(enabled=refs),
            queue_sort=queue_sort,
            bind=PluginSet(enabled=binding),
        )

    @contextmanager
    def attributing_errors_to_plugins(self) -> Iterator[None]:
        """Turn exceptions of a plugin's ``Args`` into ``ConfigError`` with their place."""
        files = {one.origin.file for one in self.out_of_tree.values()}
        try:
            yield
        except ProreusError:
            raise
        except BaseException as error:
            if is_cancellation(error):
                raise
            place = error_location(error, files.__contains__)
            if not place:
                raise
            raise ConfigError(
                f"{place}: a plugin's arguments cannot be read: {named_error_text(error)}"
            ) from error

    def release(self) -> None:
        """Remove the modules of this load from ``sys.modules``, after a newer load replaced it.

        Existing plugin instances keep working, since they refer to their modules.
        """
        for name in self._modules:
            sys.modules.pop(name, None)


def _comparable(name: str) -> str:
    """Return a name in the form in which ``GpuHeadroom`` and ``gpu_headroom`` are equal."""
    return name.replace("_", "").replace("-", "").casefold()


def _named_by(config: SchedulerConfiguration) -> set[str]:
    named = {one.name for profile in config.profiles for one in profile.plugin_config}
    for profile in config.profiles:
        named |= profile.plugins.enabled_names()
    return named
