"""What a load brought: plugins with their origin, and what was refused and why."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from proreus.config.types import Plugins, SchedulerConfiguration
from proreus.errors import ConfigError, ProreusError
from proreus.framework.plugin import Plugin
from proreus.loading.enabling import enabled_with_defaults
from proreus.runtime.registry import Registry
from proreus.source_location import error_location


@dataclass(frozen=True)
class Origin:
    """Where a plugin comes from: ``package`` and ``version`` are of an installed distribution.

    Of a plugin in a process of its own ``file`` is the address of that.
    """

    way: Literal["in-tree", "package", "module", "folder", "endpoint"]
    file: str
    line: int
    package: str = ""
    version: str = ""

    def __str__(self) -> str:
        if self.way == "in-tree":
            return "in-tree"
        if self.way == "package":
            return f"{self.package} {self.version}".rstrip()
        if self.way == "endpoint":
            return self.file
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin that can be used."""

    plugin: type[Plugin]
    origin: Origin


@dataclass(frozen=True)
class RejectedPlugin:
    """Something that cannot be used.

    ``source``: how it was given. ``place``: file and line, "" where there is no file. ``why``: what
    is wrong and what was expected. ``names``: the plugins that are missing because of it, as far as
    that can be told of a file that cannot be read to its end. ``conflicting_name``: a name that
    another plugin has already; who writes it down may mean either.
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
        """The sentence that begins with how it was given."""
        return f"{self.source}: {self.why}"


class LoadedPlugins:
    """The plugins of one load. ``registry`` has all of them, in-tree ones included.

    ``requested_names``: the names of those that were given one by one (``--plugin``). ``modules``:
    what was imported for this load alone, by name in ``sys.modules``.
    """

    def __init__(
        self,
        found: Mapping[str, LoadedPlugin],
        refusals: Sequence[RejectedPlugin],
        requested_names: Sequence[str],
        modules: Iterable[str],
    ) -> None:
        self.found = dict(found)
        self.refusals = tuple(refusals)
        self.requested_names = tuple(requested_names)
        self.registry = Registry(one.plugin for one in self.found.values())
        self._modules = tuple(modules)

    @property
    def out_of_tree(self) -> dict[str, LoadedPlugin]:
        """The plugins that did not come with proreus, by name."""
        return {name: one for name, one in self.found.items() if one.origin.way != "in-tree"}

    def problems(self, config: SchedulerConfiguration) -> list[str]:
        """Return a sentence for each refused plugin that a configuration cannot do without."""
        return self.problems_with(_named_by(config))

    def problems_with(self, names: Iterable[str]) -> list[str]:
        """Return a sentence for each refusal that keeps one of the named plugins away."""
        named = frozenset(names)
        missing = named - self.found.keys()
        return [
            f"plugin {', '.join(sorted(concerned))} cannot be used: {refusal}"
            for refusal in self.refusals
            if (concerned := (refusal.names & missing) | (named & {refusal.conflicting_name}))
        ]

    def unused(self, config: SchedulerConfiguration) -> list[str]:
        """Return the plugins that flags brought along and that no profile enables."""
        enabled = {name for profile in config.profiles for name in profile.plugins.enabled_names()}
        by_flag = ("module", "folder", "endpoint")
        given = {name for name, one in self.found.items() if one.origin.way in by_flag}
        return sorted(given - enabled)

    def default_plugins(self) -> Plugins:
        """Return the sets of a profile where no file says what is enabled: what was asked for."""
        return self.enabling(name for name in self.requested_names if name in self.registry)

    def enabling(self, names: Iterable[str]) -> Plugins:
        """Return the sets of a profile that has some plugins beside the default ones."""
        return enabled_with_defaults(names, self.registry)

    @contextmanager
    def attributing_errors_to_plugins(self) -> Iterator[None]:
        """Turn what the code of a plugin's arguments raises into ``ConfigError`` with its place."""
        files = {one.origin.file for one in self.out_of_tree.values()}
        try:
            yield
        except ProreusError:
            raise
        except Exception as error:
            place = error_location(error, files.__contains__)
            if not place:
                raise
            told = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{place}: a plugin's arguments cannot be read: {told}") from error

    def release(self) -> None:
        """Let go of the modules of this load, once nothing new will be made of its plugins.

        Plugins that are at work keep working: they hold on to what they use.
        """
        for name in self._modules:
            sys.modules.pop(name, None)


def _named_by(config: SchedulerConfiguration) -> set[str]:
    named = {one.name for profile in config.profiles for one in profile.plugin_config}
    for profile in config.profiles:
        named |= profile.plugins.enabled_names()
    return named
