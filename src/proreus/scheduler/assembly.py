"""Puts a scheduler together from a configuration and what it stands on.

The same for a process, for ``evaluate`` and for tests: only the surroundings differ.
"""

from __future__ import annotations

from proreus.cache.cache import Cache
from proreus.config.types import SchedulerConfiguration
from proreus.framework.pod_info import Counting
from proreus.objects.kinds import NODES, PODS
from proreus.objects.scheduling import POD_GROUPS
from proreus.queue.scheduling_queue import SchedulingQueue
from proreus.runtime.find_nodes import NodeSearch
from proreus.runtime.registry import Registry
from proreus.runtime.select_host import SelectHost, at_random
from proreus.runtime.waiting_pods import WaitingPods
from proreus.scheduler.binding_cycle import BindingCycle
from proreus.scheduler.event_handlers import NodeHandlers, OtherHandlers, PodHandlers
from proreus.scheduler.failure import FailureHandler
from proreus.scheduler.pod_group_cycle import PodGroupCycle
from proreus.scheduler.pod_group_status import PodGroupStatusWriter
from proreus.scheduler.profile_handle import Core, Surroundings
from proreus.scheduler.profile_set import ProfileSet, build_profiles
from proreus.scheduler.scheduler import Scheduler
from proreus.scheduler.scheduling_cycle import SchedulingCycle


class Assembly:
    """A scheduler, connected to the watched objects, and how it is given another configuration."""

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        registry: Registry,
        around: Surroundings,
        *,
        unschedulable_timeout_seconds: float = 300,
        assumed_ttl_seconds: float | None = None,
        select_host: SelectHost | None = None,
    ) -> None:
        """Build the scheduler; raises ``ConfigError``."""
        gates = around.feature_gates
        pod_groups = gates.enabled("GenericWorkload")
        cache = Cache(around.clock, assumed_ttl_seconds, pod_groups)
        self._around = around
        self._core = core = Core(cache, WaitingPods(around.clock))
        made = self.prepare(configuration, registry)
        pods = around.stores.store(PODS)
        queue = core.queue = SchedulingQueue(
            clock=around.clock,
            sort_key=made.sort_key,
            profiles=made.views,
            pod_lister=pods.get,
            unschedulable_timeout_seconds=unschedulable_timeout_seconds,
            pop_from_backoff=gates.enabled("SchedulerPopFromBackoffQ"),
            generic_workload=pod_groups,
            metrics=around.metrics,
        )
        core.search = NodeSearch(queue.nominator, cache.node_order)
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
            cache=cache,
            queue=queue,
            waiting_pods=core.waiting_pods,
            failures=failures,
            api=around.api,
            event_recorder=around.event_recorder,
            metrics=around.metrics,
            clock=around.clock,
            nominate_expected_node=lambda: gates.enabled("NominatedNodeNameForExpectation"),
        )
        self.scheduler = Scheduler(
            profile_set=made,
            cache=cache,
            queue=queue,
            waiting_pods=core.waiting_pods,
            scheduling_cycle=SchedulingCycle(
                cache=cache,
                nominator=queue.nominator,
                search=core.search,
                waiting_pods=core.waiting_pods,
                select_host=select_host or at_random(around.rng),
                metrics=around.metrics,
                paused=around.paused,
            ),
            binding_cycle=core.binding_cycle,
            failures=failures,
            event_recorder=around.event_recorder,
            metrics=around.metrics,
            clock=around.clock,
            rng=around.rng,
            spawn=around.spawn,
        )
        if pod_groups:
            self.scheduler.pod_group_cycle = _pod_group_cycle(
                self.scheduler, core, failures, around
            )
        self._pod_handlers = PodHandlers(
            cache=cache,
            queue=queue,
            waiting_pods=core.waiting_pods,
            scheduler_names=frozenset(made.profiles),
            metrics=around.metrics,
            counting=Counting.of(gates),
            pod_groups=pod_groups,
            gangs=gates.enabled("GangScheduling"),
        )
        nodes = NodeHandlers(cache=cache, queue=queue, metrics=around.metrics)
        around.stores.add_handler(NODES, nodes)
        around.stores.add_handler(PODS, self._pod_handlers)
        self._told: set[str] = set()
        self._follow(made)

    def prepare(self, configuration: SchedulerConfiguration, registry: Registry) -> ProfileSet:
        """Build aside what a configuration asks for; raises ``ConfigError``.

        What its plugins want to know of is watched from now on; ``use`` it once that is known, or
        ``close`` it.
        """
        return build_profiles(configuration, registry, self._around, self._core)

    def use(self, made: ProfileSet) -> None:
        """Schedule by another configuration from now on; to be called between cycles.

        Waiting and nominated pods stay; those that were rejected get another chance.
        """
        self._follow(made)
        self.scheduler.use(made)
        self.scheduler.queue.use_profiles(made.views, made.sort_key)
        pods = self._around.stores.store(PODS).values()
        self._pod_handlers.use_scheduler_names(frozenset(made.profiles), pods)

    def _follow(self, made: ProfileSet) -> None:
        """Take from a configuration what is not a profile's, and hear of the kinds it names."""
        queue, search = self._core.queue, self._core.search
        assert queue is not None
        assert search is not None
        configuration, extenders = made.configuration, made.extenders
        self._core.extenders = extenders
        queue.use_backoff(
            configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
        )
        search.percentage_of_nodes_to_score = configuration.percentage_of_nodes_to_score
        search.stop_at_first_feasible = extenders is None or not extenders.narrow_or_score
        for name, resource in made.kinds.items():
            if name not in self._told:
                self._told.add(name)
                handler = OtherHandlers(name, queue, self._around.metrics)
                self._around.stores.add_handler(resource, handler)


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
