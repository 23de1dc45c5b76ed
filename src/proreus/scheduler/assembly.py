"""Puts a scheduler together from a configuration and what it stands on.

The same for a process, for ``evaluate`` and for tests: only the surroundings differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proreus.cache.cache import Cache
from proreus.config.types import SchedulerConfiguration
from proreus.errors import ConfigError, ProreusError
from proreus.framework import events
from proreus.framework.plugin import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from proreus.framework.registrations import PreEnqueue, Registration, registrations_of
from proreus.logs import logger
from proreus.objects.kinds import BY_KIND, NODES, PODS
from proreus.objects.meta import Resource, Untyped
from proreus.objects.scheduling import POD_GROUPS
from proreus.queue.scheduling_queue import SchedulingQueue
from proreus.runtime.conduct import Supervision
from proreus.runtime.expansion import ExpandedProfile, expand_all
from proreus.runtime.guard import blamed_on, with_guarded_hint
from proreus.runtime.profile import Profile
from proreus.runtime.registry import Registry
from proreus.runtime.search import NodeSearch
from proreus.runtime.waiting_pods import WaitingPods
from proreus.scheduler.binding_cycle import BindingCycle
from proreus.scheduler.event_handlers import NodeHandlers, OtherHandlers, PodHandlers
from proreus.scheduler.extender import build_extenders
from proreus.scheduler.extender_chain import EXTENDER, ExtenderChain
from proreus.scheduler.failure import FailureHandler
from proreus.scheduler.pod_group_cycle import PodGroupCycle
from proreus.scheduler.pod_group_status import PodGroupStatusWriter
from proreus.scheduler.profile_handle import Core, ProfileHandle, Surroundings
from proreus.scheduler.scheduler import Scheduler
from proreus.scheduler.scheduling_cycle import SchedulingCycle
from proreus.scheduler.select_host import SelectHost, at_random

log = logger(__name__)

_ALWAYS_WATCHED = frozenset(
    {events.POD, events.ASSIGNED_POD, events.UNSCHEDULABLE_POD, events.NODE, events.ANY}
)

_ASKED_FOR_EVENTS = (
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    ReservePlugin,
    PermitPlugin,
)


class ProfileForQueue:
    """A profile as the queue sees it."""

    def __init__(
        self,
        profile: Profile,
        extended: bool = False,
        everything: Iterable[events.ClusterEvent] = events.EVERYTHING,
    ) -> None:
        """``extended``: extenders may reject its pods; anything that happens may help then.

        ``everything``: what somebody waits for who does not say what.
        """
        self.pre_enqueue: Mapping[str, PreEnqueue] = {
            plugin.name: plugin.pre_enqueue for plugin in profile.pre_enqueue
        }
        self.registrations: list[Registration] = [
            registration
            for plugin in profile.plugins
            if isinstance(plugin, _ASKED_FOR_EVENTS)
            for registration in registrations_of(plugin.name, _registered(plugin, everything))
        ]
        if extended:
            self.registrations += registrations_of(EXTENDER, everything)


def _registered(
    plugin: Plugin, everything: Iterable[events.ClusterEvent]
) -> Iterable[events.ClusterEvent]:
    with blamed_on(type(plugin)):
        asked = plugin.events_to_register()
        if asked is events.EVERYTHING:
            return everything
        asked = tuple(asked)
        for event in asked:
            if not isinstance(event, events.ClusterEvent):
                raise TypeError(f"events_to_register of {plugin.name} has {event!r} in it")
        return tuple(with_guarded_hint(event, plugin) for event in asked)


def assemble(
    configuration: SchedulerConfiguration,
    registry: Registry,
    around: Surroundings,
    *,
    unschedulable_timeout_seconds: float = 300,
    assumed_ttl_seconds: float | None = None,
    select_host: SelectHost | None = None,
) -> Scheduler:
    """Build a scheduler and connect it to the watched objects; raises ``ConfigError``."""
    gates = around.feature_gates
    pod_groups = gates.enabled("GenericWorkload")
    cache = Cache(around.clock, assumed_ttl_seconds, pod_groups)
    core = Core(cache, WaitingPods(around.clock))
    core.extenders = _extenders(configuration, around, core.cache)
    profiles = {
        name: _build_profile(expanded, registry, around, core)
        for name, expanded in expand_all(configuration, registry, gates).items()
    }
    extended = core.extenders is not None
    everything = events.everything(pod_groups)
    views = {
        name: ProfileForQueue(profile, extended, everything) for name, profile in profiles.items()
    }
    pods = around.stores.store(PODS)
    first = next(iter(profiles.values()))
    queue = core.queue = SchedulingQueue(
        clock=around.clock,
        sort_key=first.queue_sort.sort_key,
        profiles=views,
        pod_lister=pods.get,
        initial_backoff_seconds=configuration.pod_initial_backoff_seconds,
        max_backoff_seconds=configuration.pod_max_backoff_seconds,
        unschedulable_timeout_seconds=unschedulable_timeout_seconds,
        pop_from_backoff=gates.enabled("SchedulerPopFromBackoffQ"),
        generic_workload=pod_groups,
        metrics=around.metrics,
    )
    core.search = NodeSearch(
        queue.nominator, core.cache.node_order, configuration.percentage_of_nodes_to_score
    )
    if core.extenders is not None and core.extenders.narrow_or_score:
        core.search.one_is_enough = False
    failures = FailureHandler(
        queue=queue,
        pods=pods,
        api=around.api,
        event_recorder=around.event_recorder,
        metrics=around.metrics,
        clock=around.clock,
        spawn=around.spawn,
    )
    core.binding_cycle = BindingCycle(
        cache=core.cache,
        queue=queue,
        waiting_pods=core.waiting_pods,
        failures=failures,
        api=around.api,
        event_recorder=around.event_recorder,
        metrics=around.metrics,
        clock=around.clock,
        nominate_expected_node=lambda: gates.enabled("NominatedNodeNameForExpectation"),
        extenders=core.extenders,
    )
    scheduler = Scheduler(
        profiles=profiles,
        cache=core.cache,
        queue=queue,
        waiting_pods=core.waiting_pods,
        scheduling_cycle=SchedulingCycle(
            cache=core.cache,
            nominator=queue.nominator,
            search=core.search,
            waiting_pods=core.waiting_pods,
            select_host=select_host or at_random(around.rng),
            metrics=around.metrics,
            extenders=core.extenders,
            paused=around.paused,
        ),
        binding_cycle=core.binding_cycle,
        failures=failures,
        event_recorder=around.event_recorder,
        metrics=around.metrics,
        clock=around.clock,
        rng=around.rng,
        spawn=around.spawn,
        extenders=core.extenders,
    )
    if pod_groups:
        scheduler.pod_group_cycle = _pod_group_cycle(scheduler, core, failures, around)
    _connect(scheduler, views, around)
    return scheduler


def _pod_group_cycle(
    scheduler: Scheduler, core: Core, failures: FailureHandler, around: Surroundings
) -> PodGroupCycle:
    groups = around.stores.store(POD_GROUPS)
    return PodGroupCycle(
        pods=scheduler,
        cache=core.cache,
        queue=scheduler.queue,
        cycle=scheduler.scheduling_cycle,
        failures=failures,
        status_writer=PodGroupStatusWriter(groups, around.api, around.clock, around.spawn),
        metrics=around.metrics,
        rng=around.rng,
        paused=around.paused,
        topology_aware=around.feature_gates.enabled("TopologyAwareWorkloadScheduling"),
        groups=groups if around.feature_gates.enabled("WorkloadAwarePreemption") else None,
    )


def _extenders(
    configuration: SchedulerConfiguration, around: Surroundings, cache: Cache
) -> ExtenderChain | None:
    extenders = build_extenders(configuration.extenders, around.clock)
    if not extenders or not around.ask_extenders:
        return None
    return ExtenderChain(extenders, cache.table, around.metrics, around.rng)


def _build_profile(
    expanded: ExpandedProfile, registry: Registry, around: Surroundings, core: Core
) -> Profile:
    """Make each plugin of a profile once, and the profile of them."""
    handle = ProfileHandle(expanded.name, around, core)
    made: dict[str, Plugin] = {}

    def plugin(name: str) -> Plugin:
        if name not in made:
            made[name] = _make(name, expanded, registry, handle)
        return made[name]

    plugins = {point: tuple(map(plugin, names)) for point, names in expanded.points.items()}
    profile = handle.profile = Profile(
        expanded.name,
        plugins,
        expanded.weights,
        placement_weights=expanded.placement_weights,
        table=core.cache.table,
        metrics=around.metrics,
        percentage_of_nodes_to_score=expanded.percentage_of_nodes_to_score,
    )
    profile.supervise(around.supervision or Supervision(around.clock, around.metrics))
    return profile


def _make(
    name: str, expanded: ExpandedProfile, registry: Registry, handle: ProfileHandle
) -> Plugin:
    plugin = registry[name]
    try:
        with blamed_on(plugin):
            return plugin(expanded.args.get(name), handle)
    except ProreusError as error:
        raise ConfigError(
            "initializing profiles: creating profile for scheduler name "
            f'{expanded.name}: initializing plugin "{name}": {error}'
        ) from error


def _connect(
    scheduler: Scheduler, views: Mapping[str, ProfileForQueue], around: Surroundings
) -> None:
    """Let the scheduler hear of every change that it or one of its plugins cares about."""
    stores, queue, metrics = around.stores, scheduler.queue, around.metrics
    pod_handlers = PodHandlers(
        cache=scheduler.cache,
        queue=queue,
        waiting_pods=scheduler.waiting_pods,
        scheduler_names=scheduler.profiles.keys(),
        metrics=metrics,
        pod_level_resources=around.feature_gates.enabled("PodLevelResources"),
        pod_groups=around.feature_gates.enabled("GenericWorkload"),
        gangs=around.feature_gates.enabled("GangScheduling"),
    )
    stores.add_handler(NODES, NodeHandlers(cache=scheduler.cache, queue=queue, metrics=metrics))
    stores.add_handler(PODS, pod_handlers)
    for name, resource in _registered_kinds(views).items():
        stores.add_handler(resource, OtherHandlers(name, queue, metrics))


def _registered_kinds(views: Mapping[str, ProfileForQueue]) -> dict[str, Resource[Any]]:
    """Return the kinds beside pods and nodes that plugins registered, by event resource name."""
    names = {event.resource for view in views.values() for _, event in view.registrations}
    found = {}
    for name in sorted(names - _ALWAYS_WATCHED):
        if events.is_announced(name):
            continue
        resource = BY_KIND.get(name.rpartition("/")[2]) or _custom(name)
        if resource is not None:
            found[name] = resource
        else:
            log.error(
                "Incorrect event registration",
                err="neither a kind that is known nor of the form <plural>.<version>.<group>",
                resource=name,
            )
    return found


def _custom(name: str) -> Resource[Any] | None:
    """Return the resource that ``plural.version.group`` names: any that the apiserver may serve."""
    plural, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    if not (plural and version and group) or "/" in name:
        return None
    return Resource(group, version, plural, name, True, Untyped)
