"""The parts that one configuration makes: profiles, extenders, and the queue's view of them.

A scheduler uses one set at a time. A changed configuration is built into another set first; after
the switch the old set lives on until the last binding of a pod that it assumed has ended.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from functools import partial
from typing import Any

from msgspec import Struct

from proreus.base.errors import ConfigError, ProreusError
from proreus.base.kubernetes_version import Change
from proreus.base.logs import logger
from proreus.base.similar_names import similar
from proreus.config.types import SchedulerConfiguration
from proreus.engine.environment import Environment
from proreus.engine.extenders.extender import build_extenders
from proreus.engine.extenders.extender_chain import EXTENDER, ExtenderChain
from proreus.engine.guards.avoided_nodes import AvoidedNodes, KubeletRejections
from proreus.engine.profile_handle import Core, ProfileHandle
from proreus.engine.profile_warnings import (
    warn_of_binders_never_called,
    warn_of_idle_registration,
    warn_of_post_filters_of_pods_alone,
)
from proreus.engine.runtime.background import BackgroundWork
from proreus.engine.runtime.expansion import ExpandedProfile, expand_all
from proreus.engine.runtime.instrumentation import instrument_hint
from proreus.engine.runtime.out_of_tree import config_errors_from, constructor
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.registry import Registry
from proreus.framework import events
from proreus.framework.event_registrations import EventRegistration, PreEnqueue, registrations_of
from proreus.framework.plugin import (
    FeasibleFilterPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from proreus.framework.pod_group_plugin import PlacementFeasiblePlugin
from proreus.framework.pod_info import QueuedPodInfo
from proreus.objects.kinds import BY_KIND
from proreus.objects.meta import Resource, Untyped

log = logger(__name__)

_ALWAYS_WATCHED = frozenset(
    {
        *(events.POD, events.ASSIGNED_POD, events.UNSCHEDULABLE_POD, events.UNSCHEDULED_POD),
        *(events.TARGET_POD, events.NODE, events.ANY),
    }
)

_EVENT_REGISTERING_PLUGINS = (
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    FeasibleFilterPlugin,
    ReservePlugin,
    PermitPlugin,
    PlacementFeasiblePlugin,
)


class QueueProfileView:
    """A profile as the queue sees it."""

    def __init__(
        self,
        profile: Profile,
        extended: bool = False,
        all_events: Iterable[events.ClusterEvent] = events.ALL_EVENTS,
        implied_taint_event: bool = False,
    ) -> None:
        """``extended``: extenders may reject its pods, so that any event may help them.

        ``all_events``: the events of a plugin that registers ``ALL_EVENTS``.
        ``implied_taint_event``: see ``registrations_of``.
        """
        self.pre_enqueue: Mapping[str, PreEnqueue] = {
            plugin.name: plugin.pre_enqueue for plugin in profile.pre_enqueue
        }
        self.group_wide = frozenset(
            plugin.name for plugin in profile.pre_enqueue if plugin.group_wide
        )
        self.registrations: list[EventRegistration] = [
            registration
            for plugin in profile.plugins
            if isinstance(plugin, _EVENT_REGISTERING_PLUGINS)
            for registration in registrations_of(
                plugin.name,
                _registered(profile.name, plugin, all_events),
                implied_taint_event=implied_taint_event,
            )
        ]
        if extended:
            self.registrations += registrations_of(
                EXTENDER, all_events, implied_taint_event=implied_taint_event
            )


def _registered(
    profile: str, plugin: Plugin, all_events: Iterable[events.ClusterEvent]
) -> Iterable[events.ClusterEvent]:
    # Errors name the plugin's file and line: the author of an out-of-tree plugin reads them.
    with config_errors_from(type(plugin)):
        registered: Any = plugin.events_to_register()
        if registered is events.ALL_EVENTS:
            return all_events
        if registered is None:
            raise TypeError(f"events_to_register of {plugin.name} returns None instead of events")
        registered = tuple(registered)
        for event in registered:
            if not isinstance(event, events.ClusterEvent):
                raise TypeError(f"events_to_register of {plugin.name} has {event!r} in it")
            warn_of_idle_registration(profile, plugin, event)
        return tuple(instrument_hint(event, plugin) for event in registered)


class ProfileSet(Struct, eq=False):
    """The parts of one configuration. ``bindings``: the number of its bindings under way."""

    configuration: SchedulerConfiguration
    registry: Registry
    profiles: Mapping[str, Profile]
    queue_profiles: Mapping[str, QueueProfileView]
    extenders: ExtenderChain | None
    handles: tuple[ProfileHandle, ...]
    bindings: int = 0
    on_end: Callable[[], None] | None = None
    """Called when the set is retired and its last binding has ended."""

    @property
    def sort_key(self) -> Callable[[QueuedPodInfo], Any]:
        """The order of the active queue; the same plugin in every profile."""
        return next(iter(self.profiles.values())).queue_sort.sort_key

    @property
    def sort_key_changes(self) -> bool:
        """Whether keys of that order may compare otherwise later."""
        return next(iter(self.profiles.values())).queue_sort.sort_key_changes

    @property
    def plugins(self) -> Iterator[Plugin]:
        """All plugins of all profiles."""
        return (plugin for profile in self.profiles.values() for plugin in profile.plugins)

    @property
    def kinds(self) -> dict[str, Resource[Any]]:
        """The kinds other than pods and nodes that plugins registered, by event resource name."""
        return _registered_kinds(self.queue_profiles)

    @property
    def needed_kinds(self) -> set[str]:
        """The kinds that plugins registered or read, by name."""
        registered = {resource.id for resource in self.kinds.values()}
        return registered.union(*(handle.watched_kinds for handle in self.handles))

    def retire(self, on_end: Callable[[], None]) -> None:
        """Use the set for no further pods."""
        self.on_end = on_end
        self._end_if_done()

    def binding_ended(self) -> None:
        """Record the end of a binding."""
        self.bindings -= 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self.on_end is not None and not self.bindings:
            # Cleared first, so that it is called once.
            on_end, self.on_end = self.on_end, None
            self.close()
            on_end()

    def close(self) -> None:
        """End subscriptions and free cached results."""
        # Plugins and handles refer to each other, and the collector, tuned for rare full runs
        # (``gc_tuning``), may find such cycles hours later.
        for handle in self.handles:
            handle.close()
        for profile in self.profiles.values():
            profile.equivalence_cache.clear()


class ProfileSets:
    """The set in force, retired ones whose bindings have not ended, and their background work."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]) -> None:
        self._sets: list[ProfileSet] = []
        """The one in force is the last."""
        self._background: BackgroundWork | None = None
        """None until it is started."""
        self._spawn = spawn

    def use(self, profile_set: ProfileSet) -> None:
        """Put another set in force; the one before ends with its last binding."""
        retired = self._sets[-1:]
        self._sets.append(profile_set)
        for one in retired:
            one.retire(partial(self._forget, one))
        self._sync_background_work()

    def _forget(self, retired: ProfileSet) -> None:
        self._sets.remove(retired)
        if retired.extenders is not None:
            self._spawn(retired.extenders.close())
        self._sync_background_work()

    def start_background_work(self) -> None:
        """Start the background work of plugins (``BackgroundPlugin``), unless it runs."""
        self._background = self._background or BackgroundWork()
        self._sync_background_work()

    def _sync_background_work(self) -> None:
        if self._background is not None:
            self._background.sync(plugin for one in self._sets for plugin in one.plugins)

    async def close(self) -> None:
        """End background work of plugins and connections to extenders."""
        background, self._background = self._background, None
        if background is not None:
            await background.close()
        for one in self._sets:
            if one.extenders is not None:
                await one.extenders.close()


def build_profiles(
    configuration: SchedulerConfiguration,
    registry: Registry,
    environment: Environment,
    core: Core,
    shared_handle: ProfileHandle,
    without: Collection[str] = (),
) -> ProfileSet:
    """Make every plugin of a configuration; raises ``ConfigError``, and then nothing is left over.

    Kinds that only these plugins registered are watched from now on. The handles of profiles are of
    the same class as ``shared_handle``. ``without``: names of plugins to leave out.
    """
    gates = environment.feature_gates
    expanded = expand_all(configuration, registry, gates)
    extenders = _extenders(configuration, environment, core)
    handles = tuple(
        type(shared_handle)(name, environment, core, extenders, shared_handle) for name in expanded
    )
    try:
        profiles = {
            handle.profile_name: _build_profile(
                expanded[handle.profile_name], registry, handle, core.avoided_nodes, without
            )
            for handle in handles
        }
        all_events = events.all_events(
            gates.enabled("GenericWorkload"), gates.enabled("CompositePodGroup")
        )
        implied_taint_event = not gates.includes(Change.NO_IMPLIED_TAINT_EVENT)
        queue_profiles = {
            name: QueueProfileView(profile, extenders is not None, all_events, implied_taint_event)
            for name, profile in profiles.items()
        }
    except BaseException:
        # Plugins made so far have subscribed to informers, which would keep them alive.
        for handle in handles:
            handle.close()
        raise
    return ProfileSet(configuration, registry, profiles, queue_profiles, extenders, handles)


def _extenders(
    configuration: SchedulerConfiguration, environment: Environment, core: Core
) -> ExtenderChain | None:
    extenders = build_extenders(
        configuration.extenders, environment.clock, environment.extender_transport
    )
    if not extenders or not environment.use_extenders:
        return None
    return ExtenderChain(extenders, core.cache.table, environment.metrics, environment.rng)


def _build_profile(
    expanded: ExpandedProfile,
    registry: Registry,
    handle: ProfileHandle,
    avoided_nodes: AvoidedNodes | None,
    without: Collection[str],
) -> Profile:
    """Return a profile; a plugin of several extension points is made once."""
    made: dict[str, Plugin] = {}

    def plugin(name: str) -> Plugin:
        if name not in made:
            made[name] = _make(name, expanded, registry, handle)
        return made[name]

    _check_needed_points(expanded, registry)
    plugins = {
        point: tuple(plugin(name) for name in names if name not in without)
        for point, names in expanded.points.items()
    }
    for name in made:
        # Exposed as 0 from the start: Prometheus sees no increase in a series that begins with 1.
        handle.metrics.scheduled_after_flush_total.labels(name)
    profile = handle.profile = Profile(
        expanded.name,
        plugins,
        expanded.weights,
        placement_weights=expanded.placement_weights,
        table=handle.nodes,
        metrics=handle.metrics,
        percentage_of_nodes_to_score=expanded.percentage_of_nodes_to_score,
        percentage_of_placements_to_score=expanded.percentage_of_placements_to_score,
        optional_filter=(
            None if avoided_nodes is None else KubeletRejections(avoided_nodes, handle)
        ),
        deferred_resizes=handle.feature_gates.enabled(
            "InPlacePodVerticalScalingSchedulerPreemption"
        ),
        health_context=handle.health_context,
    )
    warn_of_binders_never_called(profile)
    if "podGroupPostFilter" in expanded.points and handle.feature_gates.enabled("GenericWorkload"):
        warn_of_post_filters_of_pods_alone(profile)
    return profile


def _check_needed_points(expanded: ExpandedProfile, registry: Registry) -> None:
    """Check that points whose data a plugin reads are enabled; raises ``ConfigError``.

    kube-scheduler accepts such a profile, and fails each of its pods.
    """
    for name in sorted({name for names in expanded.points.values() for name in names}):
        for point, needed in registry[name].needs_points.items():
            if name in expanded.points.get(point, ()) and name not in expanded.points[needed]:
                raise ConfigError(
                    "initializing profiles: creating profile for scheduler name "
                    f'{expanded.name}: plugin "{name}" is enabled at {point} without {needed}, '
                    "whose data it reads: every pod would fail",
                    remedy=f"enable {name} at {needed} too, or disable it at {point}",
                )


def _make(
    name: str, expanded: ExpandedProfile, registry: Registry, handle: ProfileHandle
) -> Plugin:
    plugin = registry[name]
    try:
        with config_errors_from(plugin), handle.construction():
            make = constructor(plugin, handle.health_context)
            return make(expanded.args.get(name), handle)
    except ProreusError as error:
        raise ConfigError(
            "initializing profiles: creating profile for scheduler name "
            f'{expanded.name}: initializing plugin "{name}": {error}'
        ) from error


def _registered_kinds(queue_profiles: Mapping[str, QueueProfileView]) -> dict[str, Resource[Any]]:
    """Return the kinds other than pods and nodes that plugins registered, by resource name."""
    plugins: dict[str, set[str]] = {}
    for view in queue_profiles.values():
        for plugin, event in view.registrations:
            plugins.setdefault(event.resource, set()).add(plugin)
    found = {}
    for name in sorted(plugins.keys() - _ALWAYS_WATCHED):
        if events.is_announced(name):
            continue
        resource = BY_KIND.get(name.rpartition("/")[2]) or _custom_resource(name)
        if resource is not None:
            found[name] = resource
        else:
            known = {events.POD, events.NODE, *BY_KIND}
            log.error(
                "Incorrect event registration",
                err="neither a kind that is known nor of the form <plural>.<version>.<group>",
                resource=name,
                plugins=sorted(plugins[name]),
                similar=similar(name.capitalize(), known, 0.6),
            )
    return found


def _custom_resource(name: str) -> Resource[Any] | None:
    """Return the resource that ``plural.version.group`` names: any that the apiserver may serve."""
    plural, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    if not (plural and version and group) or "/" in name:
        return None
    return Resource(group, version, plural, name, True, Untyped)
