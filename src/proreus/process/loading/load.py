"""Loads plugins from all sources."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution, EntryPoint, distribution, distributions
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from msgspec import Struct

from proreus.base.logs import named_error_text
from proreus.base.source_location import class_location, error_location, plugin_names_in
from proreus.engine.runtime.plugin_errors import is_cancellation
from proreus.framework.plugin import Plugin
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.loading.contract import contract_violations, resembles_plugin
from proreus.process.loading.folder import PluginFolder
from proreus.process.loading.import_anew import content_hash, import_anew
from proreus.process.loading.loaded_plugins import (
    LoadedPlugin,
    LoadedPlugins,
    Origin,
    RejectedPlugin,
)
from proreus.process.outer_rooms import PACKAGE, registered

ENTRY_POINTS = "proreus.plugins"
"""The group of entry points of packages with plugins."""

_package_hashes: dict[str, str] = {}
"""Content hashes of installed files, from when this process imported them: that is done once."""


class PluginSources(Struct, frozen=True):
    """The places to look for plugins.

    ``modules``: each ``module:Class``, from ``--plugin``. ``folders``: from ``--plugin-dir``.
    ``packages``: whether to use the entry points of installed packages.
    """

    modules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    packages: bool = True


def load(
    sources: PluginSources, remote_plugins: Mapping[str, type[Plugin]] = MappingProxyType({})
) -> LoadedPlugins:
    """Load all plugins; raises nothing: errors are in ``LoadedPlugins.refusals``.

    Each call imports files of plugin folders and modules of ``--plugin`` anew, but not installed
    packages. A name belongs to its first plugin in this order: in-tree, packages, ``--plugin``,
    ``--plugin-dir``, ``--plugin-endpoint``, ``--plugin-slot``. ``remote_plugins``: the last two, by
    address, or by flag for a slot.
    """
    loading = _Loading()
    for plugin in IN_TREE_PLUGINS:
        loading.found[plugin.name] = LoadedPlugin(plugin, Origin("in-tree", "", 0))
    if sources.packages:
        loading.add_packages()
    for given in dict.fromkeys(sources.modules):
        loading.add_module(given)
    for folder in dict.fromkeys(sources.folders):
        loading.add_folder(folder)
    for origin, plugin in remote_plugins.items():
        loading.add_remote(origin, plugin)
    return LoadedPlugins(
        loading.found,
        loading.refusals,
        loading.requested_names,
        loading.modules,
        loading.hashes,
        loading.files_without_plugins,
        add_ons(),
    )


def add_ons() -> dict[str, Callable[[], type[Plugin]]]:
    """Return a function that imports each add-on, by its name.

    Unlike plugins of other packages they are not imported, nor checked, before somebody asks.
    """
    return {name: entry_point.load for name, entry_point in registered(ENTRY_POINTS).items()}


class _Loading:
    """The results of a load in progress."""

    def __init__(self) -> None:
        self.found: dict[str, LoadedPlugin] = {}
        self.refusals: list[RejectedPlugin] = []
        self.requested_names: list[str] = []
        self.modules: list[str] = []
        self.hashes: dict[str, str] = {}
        self.files_without_plugins: list[str] = []

    def add_packages(self) -> None:
        """Load the plugins of all installed packages but this one.

        A package whose entry points cannot be read is refused. ``importlib.metadata.entry_points``
        would fail for all of them instead.
        """
        names: dict[str, None] = {}
        for package in distributions():
            try:
                if package.entry_points.select(group=ENTRY_POINTS):
                    names[package.name] = None
            except Exception as error:
                why = f"its entry points cannot be read: {named_error_text(error)}"
                self.refusals.append(RejectedPlugin(_named_package(package), "", why))
        names.pop(PACKAGE, None)
        for name in names:
            # By name, which finds the first in sys.path: others of that name are not in use.
            for entry_point in distribution(name).entry_points.select(group=ENTRY_POINTS):
                self.add_entry_point(entry_point)

    def add_entry_point(self, entry_point: EntryPoint) -> None:
        """Load the class of an entry point."""
        dist = entry_point.dist
        package, version = (dist.name, dist.version) if dist is not None else ("", "")
        source = f'package {package} {version}, entry point "{entry_point.name}"'
        names = frozenset({entry_point.name, entry_point.value.rpartition(":")[2]})
        try:
            plugin = entry_point.load()
        except BaseException as error:
            if is_cancellation(error):
                raise
            self._refuse_import(source, error, entry_point.value, names)
            return
        if (file := class_location(plugin)[0]) and file not in _package_hashes:
            with contextlib.suppress(OSError):
                _package_hashes[file] = content_hash(Path(file).read_bytes())
        if file in _package_hashes:
            self.hashes[file] = _package_hashes[file]
        self._add(plugin, source, "package", names, package, version)

    def add_module(self, given: str) -> None:
        """Load the class of ``module:Class``."""
        source = f"--plugin {given}"
        module_name, _, class_name = given.partition(":")
        names = frozenset({class_name})
        if not (module_name and class_name):
            why = f'"{given}" must look like module:Class'
            self.refusals.append(RejectedPlugin(source, "", why, frozenset({given, module_name})))
            self.requested_names.append(given)
            return
        try:
            module = import_anew(module_name, self.hashes)
        except BaseException as error:
            if is_cancellation(error):
                raise
            self._refuse_import(source, error, module_name, names)
            self.requested_names.append(class_name)
            return
        plugin = getattr(module, class_name, None)
        if plugin is None:
            why = f"module {module_name} has no class {class_name}; {_classes_in(module)}"
            self.refusals.append(RejectedPlugin(source, module.__file__ or "", why, names))
            self.requested_names.append(class_name)
            return
        name = getattr(plugin, "name", class_name)
        self.requested_names.append(name if isinstance(name, str) else class_name)
        self._add(plugin, source, "module", names)

    def add_folder(self, path: str) -> None:
        """Load all plugin classes that are defined in the files of a folder."""
        source = f"--plugin-dir {path}"
        try:
            folder = PluginFolder(path)
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}; it must be a folder with .py files"
            self.refusals.append(RejectedPlugin(source, path, why))
            return
        self.hashes |= folder.hashes
        for name, failure in folder.unreadable.items():
            why = f"cannot be read: {failure.strerror or failure}"
            self.refusals.append(RejectedPlugin(source, folder.file(name), why))
        for name in folder.plugin_modules:
            file = folder.file(name)
            try:
                module = folder.module(name)
            except BaseException as error:
                if is_cancellation(error):
                    raise
                place = error_location(error, folder.owns) or file
                names = plugin_names_in(folder.sources[name])
                self.refusals.append(
                    RejectedPlugin(source, place, _cannot_be_imported(error), names)
                )
                continue
            plugins = list(_plugins_of(module))
            for plugin in plugins:
                self._add(plugin, source, "folder", frozenset({plugin.__name__}))
            if not plugins:
                self.files_without_plugins.append(file)
        self.modules.extend(folder.modules)

    def add_remote(self, origin: str, plugin: type[Plugin]) -> None:
        """Add a remote plugin; its class needs no check, since ``remote`` made it."""
        self.requested_names.append(plugin.name)
        known = self.found.get(plugin.name)
        if known is None:
            self.found[plugin.name] = LoadedPlugin(plugin, Origin("endpoint", origin, 0))
            return
        source = origin if origin.startswith("--") else f"--plugin-endpoint {origin}"
        why = f'there is a plugin "{plugin.name}" already ({known.origin}); it needs another name'
        self.refusals.append(RejectedPlugin(source, "", why, conflicting_name=plugin.name))

    def _add(
        self,
        plugin: Any,
        source: str,
        way: Literal["package", "module", "folder"],
        names: frozenset[str],
        package: str = "",
        version: str = "",
    ) -> None:
        own = getattr(plugin, "name", None)
        if isinstance(own, str):
            names |= {own}
        violations = [
            RejectedPlugin(source, place, text, names)
            for place, text in contract_violations(plugin)
        ]
        if violations:
            self.refusals.extend(violations)
            return
        file, line = class_location(plugin)
        origin = Origin(way, file, line, package, version)
        other = self.found.get(plugin.name)
        if other is not None and not _same(other.plugin, plugin):
            whose = dict.fromkeys((str(other.origin), "{}:{}".format(*other.location)))
            why = (
                f'class {plugin.__name__}: the name "{plugin.name}" is that of another plugin '
                f"({', '.join(whose)}); set name to a unique one"
            )
            place = f"{file}:{line}"
            self.refusals.append(RejectedPlugin(source, place, why, conflicting_name=plugin.name))
            return
        self.found[plugin.name] = LoadedPlugin(plugin, origin)

    def _refuse_import(
        self, source: str, error: BaseException, module: str, names: frozenset[str]
    ) -> None:
        module = module.partition(":")[0]
        top = f"{os.sep}{module.partition('.')[0]}"
        place = error_location(
            error, lambda file: f"{top}." in file or (f"{top}{os.sep}" in file and file != __file__)
        )
        why = _cannot_be_imported(error)
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            why += "; it must be installed, in PYTHONPATH or in the working directory"
        self.refusals.append(RejectedPlugin(source, place, why, names))


def _named_package(package: Distribution) -> str:
    try:
        return f"package {package.name}"
    except Exception:
        return f"a package without readable metadata in {package.locate_file('')}"


def _cannot_be_imported(error: BaseException) -> str:
    # The text of a SyntaxError has file and line at its end, which the place says already.
    if isinstance(error, SyntaxError):
        return f"cannot be imported: {type(error).__name__}: {error.msg}"
    return f"cannot be imported: {named_error_text(error)}"


def _same(one: type, other: type) -> bool:
    """Return whether two classes are the same, perhaps imported twice."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _plugins_of(module: ModuleType) -> Iterator[type[Plugin]]:
    """Yield the plugin classes that a module defines, except base classes (leading ``_``).

    Includes classes that only lack the base class, so that they are rejected, not ignored.
    """
    for value in list(vars(module).values()):
        if (
            isinstance(value, type)
            and value.__module__ == module.__name__
            and not value.__name__.startswith("_")
            and (issubclass(value, Plugin) or resembles_plugin(value))
        ):
            yield value


def _classes_in(module: ModuleType) -> str:
    classes = [plugin.__name__ for plugin in _plugins_of(module)]
    return f"its plugins are {', '.join(classes)}" if classes else "it defines no plugin"
