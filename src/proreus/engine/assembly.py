"""Puts a scheduler together from a configuration and an ``Environment``.

The same for a process, for ``evaluate`` and for tests: only the environment differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.base.errors import ConfigError
from proreus.config.types import SchedulerConfiguration
from proreus.engine.cycles.failure import FailureHandler
from proreus.engine.debugger.cache_comparer import CacheComparer
from proreus.engine.environment import Environment
from proreus.engine.event_handlers import NodeHandlers, OtherHandlers, PodGroupHandlers
from proreus.engine.groups.provided_pods import ProvidedPods, with_provided_pods
from proreus.engine.groups.sources import GroupedPodHandlers, PodGroupSources
from proreus.engine.guards.avoided_nodes import AvoidedNodes
from proreus.engine.guards.overcommit_watch import OvercommitWatch
from proreus.engine.guards.rejection_watch import RejectionWatch
from proreus.engine.housekeeping import Housekeeping
from proreus.engine.parts import (
    GroupSupport,
    build_cache,
    build_core,
    build_pod_handlers,
    build_queue,
    build_scheduler,
)
from proreus.engine.profile_handle import Core, ProfileHandle
from proreus.engine.profile_set import ProfileSet, build_profiles
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.select_host import SelectHost
from proreus.framework.plugin import Plugin
from proreus.framework.pod_events import PodEvents
from proreus.framework.pod_group_plugin import PodGroupSourcePlugin
from proreus.framework.pod_source import PodSourcePlugin
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod


class Assembly:
    """A scheduler that is connected to the informers, and the switch to another configuration."""

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        registry: Registry,
        environment: Environment,
        *,
        unschedulable_timeout_seconds: float = 300,
        assumed_ttl_seconds: float | None = None,
        select_host: SelectHost | None = None,
    ) -> None:
        """Build the scheduler; raises ``ConfigError``."""
        provided_pods = None
        if _enables(configuration, registry, PodSourcePlugin):
            provided_pods = ProvidedPods()
            environment = with_provided_pods(environment, provided_pods)
        self._environment = environment
        provided_groups = _enables(configuration, registry, PodGroupSourcePlugin)
        groups = GroupSupport.of(environment.feature_gates, provided_groups)
        self._pods: Mapping[str, Pod] = environment.stores.store(PODS)
        if provided_pods is not None:
            self._pods = provided_pods.with_stored(self._pods)
        self._sources = (
            PodGroupSources(self._pods, api_groups=groups.in_api) if groups.provided else None
        )
        pod_lister = self._pods.get if self._sources is None else self._sources.get
        cache = build_cache(environment, groups, assumed_ttl_seconds)
        queue = build_queue(environment, groups, cache, pod_lister, unschedulable_timeout_seconds)
        failures = FailureHandler(queue, environment, pod_lister)
        self._core = build_core(environment, cache, queue, failures, provided_pods)
        self._shared_handle = ProfileHandle("", environment, self._core)
        profile_set = self.prepare(configuration, registry)
        self._use_queue_profiles(profile_set)
        self.scheduler = build_scheduler(
            environment, groups, self._core, failures, profile_set, select_host
        )
        self.housekeeping = Housekeeping(self.scheduler, environment.metrics)
        self._pod_handlers = build_pod_handlers(environment, groups, self._core, profile_set)
        self._grouped_pods: GroupedPodHandlers | None = None
        if self._sources is not None:
            self._sources.use(profile_set.profiles)
            self._grouped_pods = GroupedPodHandlers(self._pod_handlers, self._sources)
        self._handled_kinds: set[str] = set()
        self.comparer = self._connect_handlers(groups)
        self._apply(profile_set)

    # ---- handlers of watch events --------------------------------------------------------------

    def _connect_handlers(self, groups: GroupSupport) -> CacheComparer:
        """Register the handlers of pods, nodes and groups; return what compares their effect."""
        environment, core = self._environment, self._core
        self._watch_pod_groups(groups)
        if environment.shares_nodes:
            self._watch_overcommits()
        nodes = NodeHandlers(
            cache=core.cache,
            queue=core.queue,
            metrics=environment.metrics,
            preemption_policy=PodEvents.of(environment.feature_gates).target_pods,
        )
        pods = self._grouped_pods or self._pod_handlers
        environment.stores.add_handler(NODES, nodes)
        environment.stores.add_handler(PODS, pods)
        if core.avoided_nodes is not None:
            self._watch_rejections(core.avoided_nodes)
        if core.provided_pods is not None:
            core.provided_pods.connect(pods)
        return CacheComparer(
            cache=core.cache,
            queue=core.queue,
            nodes=environment.stores.store(NODES),
            pods=self._pods,
            is_under_way=self.scheduler.is_under_way,
            node_handlers=nodes,
            pod_handlers=pods,
        )

    def _watch_pod_groups(self, groups: GroupSupport) -> None:
        for name, resource in groups.watched_kinds().items():
            handlers = PodGroupHandlers(name, self._core.queue, self._environment.metrics)
            self._environment.stores.add_handler(resource, handlers)
            self._handled_kinds.add(name)

    def _watch_rejections(self, avoided: AvoidedNodes) -> None:
        scheduler, environment = self.scheduler, self._environment
        scheduler.avoided_nodes = avoided
        rejection_watch = RejectionWatch(
            avoided,
            scheduler.queue,
            environment,
            self._pod_handlers.responsible_for_pod,
            scheduler.use_optional_filters,
        )
        environment.stores.add_handler(PODS, rejection_watch)
        environment.stores.on_change(NODES, rejection_watch.node_changed)
        self.housekeeping.calls.append(rejection_watch.tick)

    def _watch_overcommits(self) -> None:
        watch = OvercommitWatch(
            cache=self._core.cache,
            waiting_pods=self._core.waiting_pods,
            binding_cycle=self._core.binding_cycle,
            responsible_for_pod=self._pod_handlers.responsible_for_pod,
            environment=self._environment,
        )
        self._pod_handlers.overcommit_watch = watch
        self.housekeeping.calls.append(watch.tick)

    # ---- another configuration -----------------------------------------------------------------

    def prepare(self, configuration: SchedulerConfiguration, registry: Registry) -> ProfileSet:
        """Build the profiles of another configuration; raises ``ConfigError``.

        The kinds that its plugins registered are watched from now on. The caller passes the set to
        ``use`` once these are synced, or closes it.
        """
        if self._sources is None and _enables(configuration, registry, PodGroupSourcePlugin):
            raise ConfigError("plugins that name groups of pods can be enabled at the start only")
        if self._core.provided_pods is None and _enables(configuration, registry, PodSourcePlugin):
            raise ConfigError("plugins that provide pods can be enabled at the start only")
        return build_profiles(
            configuration, registry, self._environment, self._core, self._shared_handle
        )

    @property
    def core(self) -> Core:
        """The parts of the scheduler that outlive its configurations."""
        return self._core

    @property
    def environment(self) -> Environment:
        """The environment that the scheduler was assembled with."""
        return self._environment

    def use(self, profile_set: ProfileSet) -> None:
        """Schedule by another configuration from now on; to be called between cycles.

        Waiting and nominated pods stay; rejected pods are tried again.
        """
        self._apply(profile_set)
        self.scheduler.use(profile_set)
        self._use_queue_profiles(profile_set)
        pods = list(self._pods.values())
        if self._grouped_pods is not None and self._sources is not None:
            cache = self._core.cache
            self._grouped_pods.regroup(pods, profile_set.profiles, cache.is_assumed)
            pods = [self._sources.with_group(pod) for pod in pods]
        self._pod_handlers.use_scheduler_names(frozenset(profile_set.profiles), pods)

    def _use_queue_profiles(self, profile_set: ProfileSet) -> None:
        self._core.queue.use_profiles(
            profile_set.queue_profiles,
            profile_set.sort_key,
            sort_key_changes=profile_set.sort_key_changes,
        )

    def _apply(self, profile_set: ProfileSet) -> None:
        """Apply the fields outside of profiles; register handlers for the kinds of plugins."""
        if self._core.provided_pods is not None:
            self._core.provided_pods.use(profile_set.plugins)
        queue, search = self._core.queue, self._core.search
        configuration, extenders = profile_set.configuration, profile_set.extenders
        queue.use_backoff(
            configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
        )
        search.percentage_of_nodes_to_score = configuration.percentage_of_nodes_to_score
        # Without extenders, one feasible node is enough where no plugin scores.
        search.stop_at_first_feasible = extenders is None or not extenders.filter_or_prioritize
        for name, resource in profile_set.kinds.items():
            if name not in self._handled_kinds:
                self._handled_kinds.add(name)
                handler = OtherHandlers(name, queue, self._environment.metrics)
                self._environment.stores.add_handler(resource, handler)


def _enables(configuration: SchedulerConfiguration, registry: Registry, base: type[Plugin]) -> bool:
    """Return whether a plugin of some base class is enabled."""
    names = {name for one in configuration.profiles for name in one.plugins.enabled_names()}
    known = (registry[name] for name in sorted(names) if name in registry)
    return any(issubclass(plugin, base) for plugin in known)
