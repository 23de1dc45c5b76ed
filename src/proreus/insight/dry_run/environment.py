"""The plugins of the configuration in force, made once more for the copy of the cluster.

They read the copy instead of the cache, and the same informers; they leave no trace (see
``insight.shadow.handle``, whose handle and environment these are but for the nominations).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from proreus.base.metrics import SchedulerMetrics
from proreus.engine.assembly import Assembly
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.environment import Environment
from proreus.engine.profile_handle import Core, ProfileHandle
from proreus.engine.profile_set import ProfileSet, build_profiles
from proreus.engine.runtime.expansion import expand_all
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.out_of_tree import is_out_of_tree
from proreus.engine.runtime.select_host import at_random
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.nominated_pods import Nominator
from proreus.framework.plugin import FetchingPlugin, Plugin, ReservePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.insight.dry_run.replica import ClusterReplica
from proreus.insight.shadow.handle import ShadowHandle, ShadowTasks, shadow_environment
from proreus.objects.meta import ApiObject, Resource

T = TypeVar("T", bound=ApiObject)


class _ReplicaCore(Core, frozen=True, kw_only=True):
    """The environment of a copy. ``cache`` is the copy; ``original`` has the parts of the scheduler
    itself.
    """

    original: Core
    nominations: NominationsCopy


class DryRunHandle(ShadowHandle):
    """The handle of a profile for dry runs."""

    def __init__(self, profile_name: str, environment: Environment, core: Core, *args: Any) -> None:
        super().__init__(profile_name, environment, core, *args)
        assert isinstance(core, _ReplicaCore)
        # Nominations at the beginning of the dry run, but groups as they are now.
        self.nominator = core.nominations
        self.pod_group_states = core.original.cache.pod_group_states
        self.workload_forest = core.original.cache.workload_forest

    def _connect(
        self,
        resource: Resource[T],
        handler: Callable[[T | None, T | None], None],
        with_provided: bool,
    ) -> None:
        # Unlike in the shadow, data that plugins share belong to the copy, and end with it.
        ProfileHandle._connect(self, resource, handler, with_provided)


class DryRunEnvironment:
    """A scheduling cycle over a copy of the cluster. ``close`` it when the plugins are replaced.

    ``profile_set``: whose plugins these are; ``left_out``: the names of those that cannot be asked,
    since they are in processes of their own, which keep the nodes themselves.
    """

    def __init__(self, assembly: Assembly) -> None:
        """Make the plugins; raises ``ConfigError``."""
        core, in_force = assembly.core, assembly.environment
        self.in_force = assembly.scheduler.profile_set
        self._tasks = ShadowTasks()
        environment = shadow_environment(
            in_force, SchedulerMetrics(), self._tasks.spawn, lambda *_: None
        )
        self.replica = ClusterReplica(core.cache, environment.clock)
        self.nominations = NominationsCopy(core.queue.nominator)
        cache = self.replica.cache
        self._search = NodeSearch(self.nominations, cache.node_order)
        replica_core = _ReplicaCore(
            **(asdict(core) | {"cache": cache, "search": self._search}),
            original=core,
            nominations=self.nominations,
        )
        configuration, registry = self.in_force.configuration, self.in_force.registry
        expanded = expand_all(configuration, registry, environment.feature_gates)
        names = dict.fromkeys(name for one in expanded.values() for name in one.plugins)
        self.left_out = tuple(name for name in names if issubclass(registry[name], FetchingPlugin))
        shared = DryRunHandle("", environment, replica_core)
        self.profile_set: ProfileSet = build_profiles(
            configuration, registry, environment, replica_core, shared, self.left_out
        )
        self.profile_set.handles += (shared,)
        self._avoided = core.avoided_nodes
        for profile in self.profile_set.profiles.values():
            # Effects of an out-of-tree plugin's Reserve outside this process cannot be undone.
            profile.reserve = profile.reserve.without(
                one.name for one in profile.reserve if _is_foreign(one)
            )
        self.cycle = SchedulingCycle(
            cache=cache,
            nominator=self.nominations,
            search=self._search,
            waiting_pods=WaitingPods(environment.clock),
            select_host=at_random(environment.rng),
            environment=replace(environment, informers=None),
        )
        self.environment = environment
        self._tasks.background.sync(self.profile_set.plugins)

    def begin(self, include_extenders: bool) -> None:
        """Refresh everything except nodes and pods."""
        self.nominations.sync()
        extenders = self.profile_set.extenders
        self.cycle.extenders = extenders if include_extenders else None
        search, configuration = self._search, self.in_force.configuration
        search.percentage_of_nodes_to_score = configuration.percentage_of_nodes_to_score
        search.stop_at_first_feasible = (
            self.cycle.extenders is None or not self.cycle.extenders.filter_or_prioritize
        )
        if self._avoided is not None:
            for profile in self.profile_set.profiles.values():
                profile.use_optional_filter(self._avoided.active)

    def forget_results(self) -> None:
        """Free the shared results: memory must not grow with the kinds of pods asked about."""
        for profile in self.profile_set.profiles.values():
            profile.equivalence_cache.clear()

    def close(self) -> None:
        """End subscriptions and background work, and free the copy."""
        self._tasks.cancel()
        self.profile_set.close()
        # Not left to the collector, which may find the cycles of plugins and handles hours later.
        self.replica.cache.clear()
        if self.profile_set.extenders is not None:
            task = asyncio.get_running_loop().create_task(self.profile_set.extenders.close())
            _closing.add(task)
            task.add_done_callback(_closing.discard)


_closing: set[asyncio.Task[Any]] = set()


def _is_foreign(plugin: Plugin) -> bool:
    return isinstance(plugin, ReservePlugin) and is_out_of_tree(type(plugin))


class NominationsCopy:
    """The nominations of one moment, which a dry run may change."""

    def __init__(self, original: Nominator) -> None:
        self._original = original
        self._by_node: dict[str, list[PodInfo]] = {}
        self._position = 0

    def sync(self) -> None:
        """Copy the original anew."""
        by_node = {name: self._original.nominated_pods(name) for name in self._nodes()}
        if by_node != self._by_node:
            self._by_node = by_node
            self._position += 1

    def _nodes(self) -> list[str]:
        return [name for name in self._original.nominated_nodes() if name]

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node."""
        return list(self._by_node.get(node_name, ()))

    def nominated_nodes(self) -> Iterable[str]:
        """Return the names of all nodes that pods are nominated to."""
        return list(self._by_node)

    def nominated_node_of(self, uid: str) -> str | None:
        """Return the node that a pod is nominated to; None if it is not."""
        for name, pods in self._by_node.items():
            if any(pod.uid == uid for pod in pods):
                return name
        return None

    @property
    def position(self) -> int:
        """A number that grows with each change."""
        return self._position

    def changes_since(self, position: int) -> Iterable[str] | None:
        """Return no node if nothing changed since, None (not known) otherwise."""
        return () if position == self._position else None

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Do nothing: a dry run nominates no pod."""

    def delete_nominated_pod(self, uid: str) -> None:
        """Forget a nomination, if there is one."""
        node = self.nominated_node_of(uid)
        if node is None:
            return
        self._position += 1
        left = [pod for pod in self._by_node[node] if pod.uid != uid]
        if left:
            self._by_node[node] = left
        else:
            del self._by_node[node]
