"""From a profile's configuration to the ordered plugins of each extension point.

Pure functions over names; the caller creates the plugins. kube-scheduler does this in two steps.
The first merges a profile with the defaults (``config.default_plugins.merge``). This is the second
(``expandMultiPointPlugins``): each ``multiPoint`` plugin is enabled at every point that it has, and
what is configured at a point takes precedence.

Example: multiPoint enables A, B, C; score enables C (weight 5) and D and disables B. Score becomes
C, A, D: C overrides its multiPoint entry and comes first, A is from multiPoint, D is only here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cache
from itertools import chain
from typing import Any

from msgspec import Struct

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.int64 import MAX_INT64, wrap
from proreus.base.kubernetes_version import Change
from proreus.config import former_names
from proreus.config.default_plugins import points_in_version
from proreus.config.durations import quote
from proreus.config.fields import PluginArgs
from proreus.config.types import (
    ALL_PLUGINS,
    Extender,
    PluginCatalog,
    PluginRef,
    Plugins,
    PluginSet,
    ProfileConfiguration,
    SchedulerConfiguration,
)

log = logs.logger(__name__)

MAX_SCORE = 100

POINTS = (
    "preFilter",
    "filter",
    "postFilter",
    "reserve",
    "preScore",
    "score",
    "preBind",
    "bind",
    "postBind",
    "permit",
    "preEnqueue",
    "queueSort",
    "placementGenerate",
    "placementScore",
    "placementFeasible",
    "podGroupPostFilter",
)
"""All extension points in kube-scheduler's order, which decides which error is reported first."""

_POINTS_OF_GROUP_ENTITIES = frozenset({"podGroupPostFilter"})


class ExpandedProfile(Struct, frozen=True):
    """The names of the plugins at each extension point.

    ``points`` has every extension point. ``weights``: of Score plugins. ``args``: the arguments of
    each plugin that has some (plain data if the plugin has no model).
    ``percentage_of_placements_to_score``: the profile's, else the global one; 0 is adaptive.
    """

    name: str
    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]
    placement_weights: Mapping[str, int]
    args: Mapping[str, Any]
    percentage_of_nodes_to_score: int | None = None
    percentage_of_placements_to_score: int = 0

    @property
    def plugins(self) -> tuple[str, ...]:
        """The names of all plugins that are enabled at any point, each once."""
        return tuple(dict.fromkeys(name for names in self.points.values() for name in names))


def expand_all(
    config: SchedulerConfiguration, catalog: PluginCatalog, gates: FeatureGates
) -> dict[str, ExpandedProfile]:
    """Expand every profile of a completed configuration, by schedulerName.

    Raises ``ConfigError`` as kube-scheduler does while it builds profiles.
    """
    if not config.profiles:
        raise ConfigError("initializing profiles: at least one profile is required")
    profiles = [with_ignored_resources(profile, config.extenders) for profile in config.profiles]
    expanded: dict[str, ExpandedProfile] = {}
    for profile in profiles:
        try:
            one = expand(profile, catalog, gates, config.percentage_of_placements_to_score or 0)
        except ConfigError as error:
            # The texts of kube-scheduler's errors, which it wraps at each level of the call.
            raise ConfigError(
                "initializing profiles: creating profile for scheduler name "
                f"{profile.name}: {error}",
                remedy=error.remedy or _unknown_plugins(profiles, catalog.names()),
            ) from None
        _check_against_others(one, expanded)
        expanded[one.name] = one
    return expanded


def expand(
    profile: ProfileConfiguration,
    catalog: PluginCatalog,
    gates: FeatureGates,
    percentage_of_placements_to_score: int = 0,
) -> ExpandedProfile:
    """Expand one completed profile; the percentage is the global one."""
    plugins = profile.plugins
    share = profile.percentage_of_placements_to_score
    # pluginConfig for a plugin that nothing enables is ignored, not an error: the defaults bring
    # arguments for plugins that a profile may disable.
    needed = plugins.enabled_names() & catalog.names()
    args = {name: value for name, value in profile.args().items() if name in needed}
    _check_args_of_construction(args, gates)

    @cache  # asked for at each extension point, for each plugin of multiPoint
    def points_of(name: str) -> Set[str]:
        return points_in_version(name, catalog.points(name), gates)

    points = _points(plugins, catalog, points_of, gates)
    _check_counts(profile.name, points, gates)
    return ExpandedProfile(
        name=profile.name,
        points=points,
        weights=_weights("score", plugins, points_of),
        placement_weights=_weights("placementScore", plugins, points_of),
        args=args,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        percentage_of_placements_to_score=(
            percentage_of_placements_to_score if share is None else share
        ),
    )


def effective_configuration(
    config: SchedulerConfiguration, catalog: PluginCatalog
) -> SchedulerConfiguration:
    """Return a configuration as ``--write-config-to`` and ``/configz`` show it.

    Arguments of plugins that are not enabled are omitted, the others are sorted by plugin, and
    resources that extenders manage are among the ignored ones.
    """
    profiles = []
    for configured in config.profiles:
        profile = with_ignored_resources(configured, config.extenders)
        needed = profile.plugins.enabled_names() & catalog.names()
        configs = [config for config in profile.plugin_config if config.name in needed]
        configs.sort(key=lambda config: config.name)
        profiles.append(profile.model_copy(update={"plugin_config": tuple(configs)}))
    return config.model_copy(update={"profiles": tuple(profiles)})


def with_ignored_resources(
    profile: ProfileConfiguration, extenders: Iterable[Extender]
) -> ProfileConfiguration:
    """Make NodeResourcesFit ignore the resources that extenders manage, not those of its args."""
    # Upstream overwrites ``ignoredResources`` instead of adding to it (buildExtenders); recorded
    # configurations show the same.
    ignored = tuple(
        resource.name
        for extender in extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    if not ignored:
        return profile
    configs = []
    found = False
    for config in profile.plugin_config:
        if config.name == "NodeResourcesFit" and isinstance(config.args, PluginArgs):
            found = True
            args = config.args.model_copy(update={"ignored_resources": ignored})
            config = config.model_copy(update={"args": args})
        configs.append(config)
    if not found:
        raise ConfigError(
            "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"
        )
    return profile.model_copy(update={"plugin_config": tuple(configs)})


def _check_args_of_construction(args: Mapping[str, Any], gates: FeatureGates) -> None:
    for name, value in args.items():
        if isinstance(value, PluginArgs) and value.checked_at_construction:
            problems = ConfigError(*value.problems("", gates))
            if problems.problems:
                raise ConfigError(f'initializing plugin "{name}": {problems}')


_PointsOf = Callable[[str], Set[str]]
"""Returns the extension points that a plugin has in the emulated version."""


def _points(
    plugins: Plugins, catalog: PluginCatalog, points_of: _PointsOf, gates: FeatureGates
) -> dict[str, tuple[str, ...]]:
    known = catalog.names()
    sets = {
        point: set_.model_copy(
            update={"enabled": tuple(_with_effect(point, set_, catalog, points_of))}
        )
        for point, set_ in plugins.sets().items()
    }
    # All points are checked before any is expanded: which of two mistakes is reported is upstream's
    # order.
    for point in POINTS:
        _check_explicit(point, sets[point], known, points_of)
    points = {
        point: _expand_point(point, sets[point], plugins.multi_point.enabled, known, points_of)
        for point in POINTS
        if point not in _POINTS_OF_GROUP_ENTITIES or gates.includes(Change.POD_GROUP_ENTITIES)
    }
    point, configured = "placementFeasible", points["placementFeasible"]
    implied = (
        name
        for name in chain.from_iterable(points.values())
        if point in points_of(name)
        and not plugins.placement_feasible.disables(name)
        and not (catalog.is_in_tree(name) and gates.includes(Change.PLACEMENTS_CONFIGURED))
    )
    return {**points, point: tuple(dict.fromkeys((*configured, *implied)))}


def _with_effect(
    point: str, set_: PluginSet, catalog: PluginCatalog, points_of: _PointsOf
) -> Iterator[PluginRef]:
    """Yield the plugins that are not enabled there just because another project's are."""
    for ref in set_.enabled:
        model = catalog.args_model(ref.name)
        idle = model is not None and point in model.points_without_effect
        if not idle or point in points_of(ref.name):
            yield ref


def _check_explicit(point: str, set_: PluginSet, known: Set[str], points_of: _PointsOf) -> None:
    seen: set[str] = set()
    for ref in set_.enabled:
        _check_exists(point, ref.name, known)
        if point not in points_of(ref.name):
            raise ConfigError(f"plugin {quote(ref.name)} does not extend {_title(point)} plugin")
        if ref.name in seen:
            raise _registered_twice(point, ref.name)
        seen.add(ref.name)


def _expand_point(
    point: str,
    set_: PluginSet,
    multi_point: tuple[PluginRef, ...],
    known: Set[str],
    points_of: _PointsOf,
) -> tuple[str, ...]:
    """Return a point's plugins: overrides of multiPoint, the rest of it, the point's own."""
    explicit = [ref.name for ref in set_.enabled]
    disabled = {ref.name for ref in set_.disabled}
    # ``disabled: "*"`` at a point turns multiPoint off for it; what the point itself enables stays.
    if ALL_PLUGINS in disabled:
        return tuple(explicit)
    overridden: set[str] = set()
    spread: list[str] = []
    for ref in multi_point:
        _check_exists(point, ref.name, known)
        if point not in points_of(ref.name) or ref.name in disabled:
            continue
        # Configured at the point as well: the entry there has the weight and the place. It moves to
        # the front, before plugins of multiPoint, as upstream's three-part order has it.
        if ref.name in explicit:
            overridden.add(ref.name)
        elif ref.name in spread:
            raise _registered_twice(point, ref.name)
        else:
            spread.append(ref.name)
    first = [name for name in explicit if name in overridden]
    last = [name for name in explicit if name not in overridden]
    return (*first, *spread, *last)


def _check_exists(point: str, name: str, known: Set[str]) -> None:
    if name not in known:
        similar = former_names.similar_plugin(name, known)
        hint = f"; did you mean {quote(similar)}?" if similar else ""
        raise ConfigError(f"{_title(point)} {quote(name)} does not exist{hint}")


def _check_counts(profile: str, points: Mapping[str, tuple[str, ...]], gates: FeatureGates) -> None:
    where = f"for profile with scheduler name {quote(profile)}"
    if (count := len(points["queueSort"])) != 1:
        if count > 1:
            # Not in the error, whose text is kube-scheduler's.
            log.warning(
                "Several queue sort plugins are enabled, and there is one queue",
                profile=profile,
                plugins=points["queueSort"],
                remedy='plugins.queueSort: {disabled: [{name: "*"}], enabled: [{name: '
                f"{points['queueSort'][-1]}}}]}}, the same in every profile",
            )
        raise ConfigError(f"only one queue sort plugin required {where}, but got {count}")
    if not points["bind"]:
        raise ConfigError(f"at least one bind plugin is needed {where}")
    several = len(points["placementGenerate"]) > 1
    if several and not gates.includes(Change.PLACEMENTS_INTERSECTED):
        raise ConfigError(f"at most one placement generate plugin is allowed {where}")


def _weights(point: str, plugins: Plugins, points_of: _PointsOf) -> dict[str, int]:
    """Return weights: the point's own, else multiPoint's; unset is 1.

    The sum must fit an int64. kube-scheduler checks that with a subtraction which wraps around
    below zero, and so refuses a negative sum as soon as another weight follows.
    """
    weights: dict[str, int] = {}
    total = 0
    for ref in (*plugins.sets()[point].enabled, *plugins.multi_point.enabled):
        if ref.name in weights or point not in points_of(ref.name):
            continue
        # 0 and unset are the same in the configuration's types; kube-scheduler makes it 1.
        weight = ref.weight or 1
        if weight * MAX_SCORE > wrap(MAX_INT64 - total):
            kind = "score" if point == "score" else "placement score"
            raise ConfigError(f"{kind} plugins: total score of Score plugins could overflow")
        total += weight * MAX_SCORE
        weights[ref.name] = weight
    return weights


def _registered_twice(point: str, name: str) -> ConfigError:
    return ConfigError(f"plugin {quote(name)} already registered as {quote(_title(point))}")


def _title(point: str) -> str:
    return f"{point[0].upper()}{point[1:]}Plugin"


def _check_against_others(one: ExpandedProfile, others: Mapping[str, ExpandedProfile]) -> None:
    """Check that all profiles sort the one queue alike and that no name is used twice."""
    if others:
        first = next(iter(others.values()))
        (sort,), (first_sort,) = one.points["queueSort"], first.points["queueSort"]
        name = quote(one.name)
        if sort != first_sort:
            raise ConfigError(
                f"initializing profiles: different queue sort plugins for profile {name}: "
                f"{quote(sort)}, first: {quote(first_sort)}"
            )
        if one.args.get(sort) != first.args.get(sort):
            raise ConfigError(
                f"initializing profiles: different queue sort plugin args for profile {name}"
            )
        if one.name in others:
            raise ConfigError(
                f"initializing profiles: duplicate profile with scheduler name {name}"
            )


def _unknown_plugins(profiles: Iterable[ProfileConfiguration], known: Set[str]) -> str:
    """Return a clause about all plugins that do not exist; "" if there is nothing to add.

    kube-scheduler ends at the first of them. Nothing is added about one unknown plugin that nothing
    replaces: the error names it already.
    """
    enabled = (
        ref.name
        for profile in profiles
        for set_ in (*profile.plugins.sets().values(), profile.plugins.multi_point)
        for ref in set_.enabled
    )
    names = [name for name in dict.fromkeys(enabled) if name not in known]
    former = any(name in former_names.PLUGINS for name in names)
    if len(names) < 2 and not former:
        return ""
    listed = ", ".join(map(_described, names))
    page = f" ({former_names.PAGE})" if former else ""
    return f"of the plugins that are enabled these do not exist: {listed}{page}"


def _described(name: str) -> str:
    instead = former_names.PLUGINS.get(name)
    return f"{name} ({instead})" if instead else name
