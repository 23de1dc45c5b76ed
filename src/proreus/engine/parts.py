"""The parts of a scheduler, made from an ``Environment``: cache, queue, cycles, handlers of pods.

``assembly`` connects them, in the order of the functions here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.engine.cache.cache import Cache
from proreus.engine.cycles.binding_cycle import BindingCycle
from proreus.engine.cycles.failure import FailureHandler
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.deferred_resizes import DeferredResizeHandlers
from proreus.engine.environment import Environment
from proreus.engine.event_handlers import PodHandlers
from proreus.engine.groups.cycle import CycleParts, PodGroupCycle
from proreus.engine.groups.provided_pods import ProvidedPods
from proreus.engine.groups.v1_36.cycle import PodGroupCycleV136
from proreus.engine.guards.avoided_nodes import AvoidedNodes
from proreus.engine.profile_handle import Core
from proreus.engine.profile_set import ProfileSet
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.queue.sub_queues import QueueOptions
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.select_host import SelectHost, at_random, in_order
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.engine.scheduler import Scheduler
from proreus.framework.events import COMPOSITE_POD_GROUP, POD_GROUP
from proreus.framework.pod_events import PodEvents
from proreus.framework.workload_forest import MAX_LEVELS, MAX_LEVELS_UP_TO_1_37
from proreus.objects.meta import Resource
from proreus.objects.pod import Pod
from proreus.objects.requests import PodResourcesOptions
from proreus.objects.scheduling import COMPOSITE_POD_GROUPS, POD_GROUPS

PodLister = Callable[[str], Pod | None]
_LEVELS_OF_GROUPS = (MAX_LEVELS_UP_TO_1_37, MAX_LEVELS)
DEFERRED_RESIZES = "InPlacePodVerticalScalingSchedulerPreemption"


class GroupSupport(Struct, frozen=True):
    """How the scheduler treats groups of pods.

    ``in_api``: PodGroups are API objects (gate GenericWorkload). ``provided``: plugins name groups.
    ``as_entities``: a group has one place in the queue, as from Kubernetes 1.37 on.
    ``composite_in_api``: CompositePodGroups are too. ``announced``: plugins hear of pods of groups.
    """

    in_api: bool
    provided: bool
    as_entities: bool
    composite_in_api: bool
    announced: bool

    @classmethod
    def of(cls, gates: FeatureGates, provided: bool) -> GroupSupport:
        """Return the support that gates and plugins ask for; raises ``ConfigError``."""
        in_api = gates.enabled("GenericWorkload")
        entities = gates.includes(Change.POD_GROUP_ENTITIES)
        if provided and in_api and not entities:
            raise ConfigError(
                "plugins that name groups of pods need Kubernetes 1.37 to be emulated where gate "
                "GenericWorkload is on"
            )
        return cls(
            in_api=in_api,
            provided=provided,
            as_entities=provided or (in_api and entities),
            composite_in_api=gates.enabled("CompositePodGroup"),
            announced=provided or gates.enabled("GangScheduling"),
        )

    @property
    def any(self) -> bool:
        """Whether pods may belong to groups."""
        return self.in_api or self.provided

    @property
    def composite(self) -> bool:
        """Whether groups may consist of groups."""
        return self.composite_in_api or self.provided

    def watched_kinds(self) -> dict[str, Resource[Any]]:
        """Return the kinds of groups whose events move pods, by name."""
        if not (self.in_api and self.as_entities):
            return {}
        kinds: dict[str, Resource[Any]] = {POD_GROUP: POD_GROUPS}
        if self.composite_in_api:
            kinds[COMPOSITE_POD_GROUP] = COMPOSITE_POD_GROUPS
        return kinds


def build_cache(
    environment: Environment, groups: GroupSupport, assumed_ttl_seconds: float | None
) -> Cache:
    """Return the cache of nodes and pods."""
    gates = environment.feature_gates
    return Cache(
        environment.clock,
        assumed_ttl_seconds,
        groups.any,
        groups.composite,
        removes_assumed_pods=gates.includes(Change.REMOVE_ASSUMED_POD),
        levels_of_groups=_LEVELS_OF_GROUPS[gates.includes(Change.GROUP_TREES_VALIDATED)],
    )


def build_queue(
    environment: Environment,
    groups: GroupSupport,
    cache: Cache,
    pod_lister: PodLister,
    unschedulable_timeout_seconds: float,
) -> SchedulingQueue:
    """Return the queue, which has no profiles yet."""
    gates = environment.feature_gates
    return SchedulingQueue(
        clock=environment.clock,
        pod_lister=pod_lister,
        options=QueueOptions(
            unschedulable_timeout_seconds=unschedulable_timeout_seconds,
            pop_from_backoff=gates.enabled("SchedulerPopFromBackoffQ"),
            generic_workload=groups.any and not groups.as_entities,
            flushes_gated_pods=gates.includes(Change.GATED_PODS_IN_FLUSH),
            events=PodEvents.of(gates),
            pre_queueing_hints=gates.enabled("SchedulerPreQueueingHints"),
            deferred_resizes=gates.enabled(DEFERRED_RESIZES),
            bookkeeping_of_1_37=gates.includes(Change.QUEUE_BOOKKEEPING_OF_1_37),
            first_gated_pod_gates=gates.includes(Change.FIRST_GATED_POD_GATES),
            named_pods_by_plugin=gates.includes(Change.NAMED_PODS_BY_PLUGIN),
        ),
        metrics=environment.metrics,
        forest=cache.workload_forest if groups.as_entities else None,
    )


def build_core(
    environment: Environment,
    cache: Cache,
    queue: SchedulingQueue,
    failures: FailureHandler,
    provided_pods: ProvidedPods | None,
) -> Core:
    """Return the parts that outlive a configuration, search and binding cycle among them."""
    waiting_pods = WaitingPods(environment.clock)
    rules = environment.avoidance_rules
    return Core(
        cache,
        queue,
        waiting_pods,
        NodeSearch(queue.nominator, cache.node_order),
        BindingCycle(
            cache=cache,
            queue=queue,
            waiting_pods=waiting_pods,
            failures=failures,
            environment=environment,
        ),
        AvoidedNodes(rules, environment.clock) if rules.threshold else None,
        provided_pods,
    )


def build_scheduler(
    environment: Environment,
    groups: GroupSupport,
    core: Core,
    failures: FailureHandler,
    profile_set: ProfileSet,
    select_host: SelectHost | None,
) -> Scheduler:
    """Return the scheduler with the cycles of pods and of groups."""
    cycle = SchedulingCycle(
        cache=core.cache,
        nominator=core.queue.nominator,
        search=core.search,
        waiting_pods=core.waiting_pods,
        select_host=select_host or at_random(environment.rng),
        environment=environment,
        select_host_in_group=select_host or in_order(environment.rng),
    )
    scheduler = Scheduler(
        profile_set=profile_set,
        cache=core.cache,
        queue=core.queue,
        waiting_pods=core.waiting_pods,
        scheduling_cycle=cycle,
        binding_cycle=core.binding_cycle,
        failures=failures,
        environment=environment,
    )
    if not groups.any:
        return scheduler
    parts: CycleParts = {
        "pods": scheduler,
        "cache": core.cache,
        "queue": core.queue,
        "cycle": cycle,
        "failures": failures,
        "environment": environment,
    }
    if groups.as_entities:
        scheduler.pod_group_cycle = PodGroupCycle(**parts, provided_groups=groups.provided)
    else:
        scheduler.pod_group_cycle_v1_36 = PodGroupCycleV136(**parts)
    return scheduler


def build_pod_handlers(
    environment: Environment, groups: GroupSupport, core: Core, profile_set: ProfileSet
) -> PodHandlers:
    """Return the handlers of pods, which are not connected yet."""
    gates = environment.feature_gates
    handlers = DeferredResizeHandlers if gates.enabled(DEFERRED_RESIZES) else PodHandlers
    return handlers(
        cache=core.cache,
        queue=core.queue,
        waiting_pods=core.waiting_pods,
        scheduler_names=frozenset(profile_set.profiles),
        metrics=environment.metrics,
        resources_options=PodResourcesOptions.of(gates),
        events=PodEvents.of(gates),
        pod_groups=groups.any,
        announces_group_pods=groups.announced,
    )
