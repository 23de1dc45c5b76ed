"""The ``Handle`` of one profile, through which its plugins reach the scheduler.

It gives access to the parts of a scheduler that outlive a profile (``Core``) and to its
``Environment``. kube-scheduler's ``framework.Handle``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, cast

from msgspec import Struct

from proreus.engine.cache.cache import Cache
from proreus.engine.cycles.binding_cycle import BindingCycle
from proreus.engine.environment import Environment
from proreus.engine.extenders.extender_chain import ExtenderChain
from proreus.engine.groups.provided_pods import PodChangeFn, ProvidedPods
from proreus.engine.guards.avoided_nodes import AvoidedNodes
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.runtime.dry_run import PreemptionDryRun, dry_run_key
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.out_of_tree import log_exceptions, log_exceptions_of_task
from proreus.engine.runtime.plugin_health import HealthContext
from proreus.engine.runtime.pod_group_reprieve import PodGroupReprieve
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.waiting_pods import WaitingPod, WaitingPods
from proreus.framework.attribute_hints import AttributeHints
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import DryRunKey
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import Nominator
from proreus.framework.pod_group import ProposedAssignment
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_source import PodSourcePlugin
from proreus.framework.post_filter_result import Victims
from proreus.framework.verdicts import Rows, Verdicts
from proreus.framework.workload_forest import Group
from proreus.objects.kinds import require_resource
from proreus.objects.meta import ApiObject, Resource
from proreus.objects.pod import Pod

T = TypeVar("T", bound=ApiObject)


class Core(Struct, frozen=True):
    """The parts of a scheduler that outlive its profiles.

    ``avoided_nodes``: None if nodes are never avoided; ``provided_pods``: None if no plugin
    provides pods.
    """

    cache: Cache
    queue: SchedulingQueue
    waiting_pods: WaitingPods
    search: NodeSearch
    binding_cycle: BindingCycle
    avoided_nodes: AvoidedNodes | None = None
    provided_pods: ProvidedPods | None = None


class ProfileHandle(AttributeHints):
    """Implements ``framework.handle.Handle`` for one profile.

    ``extenders``: those of the profile's configuration. ``shared``: the handle for state that all
    profiles share; None: this one.
    """

    def __init__(
        self,
        profile_name: str,
        environment: Environment,
        core: Core,
        extenders: ExtenderChain | None = None,
        shared: ProfileHandle | None = None,
    ) -> None:
        self.profile_name = profile_name
        self.profile: Profile | None = None
        """Set once the profile is built."""
        self._environment = environment
        self._core = core
        self._extenders = extenders
        self.shared: ProfileHandle = shared or self
        self.nodes: NodeTable = core.cache.table
        self.nominator: Nominator = core.queue.nominator
        self.pod_group_states = core.cache.pod_group_states
        self.workload_forest = core.cache.workload_forest
        self.api = environment.api
        self.event_recorder = environment.event_recorder
        self.clock = environment.clock
        self.polls_only = environment.polls_only
        self.rng = environment.rng
        self.feature_gates = environment.feature_gates
        self.metrics = environment.metrics
        self.watched_kinds: set[str] = set()
        """The ``Resource.id`` of what plugins have asked for."""
        self._subscriptions: list[Callable[[], None]] = []
        self._unconnected: list[tuple[ProfileHandle, Callable[[], None]]] | None = None
        """Handlers that wait for the end of a plugin's constructor, with their handles; None while
        no plugin is constructed. That of ``shared`` is used: handlers keep their order."""
        self.health_context = environment.health_context or HealthContext(
            environment.clock, environment.metrics
        )
        """The rules for plugin failures, and where they are reported."""

    def close(self) -> None:
        """End all subscriptions: the profile is no longer in use."""
        for end in self._subscriptions:
            end()
        self._subscriptions.clear()

    def node_order(self) -> Rows:
        """Return all rows in the order in which kube-scheduler visits nodes."""
        return self._core.cache.node_order()

    def put_pod_group(self, *groups: Group) -> None:
        """Provide groups of a plugin, or their new versions."""
        for group in groups:
            if not group.key.is_provided:
                raise ValueError(
                    f"the name of a group that a plugin provides needs a slash: {group.key}"
                )
        pod_groups = self._core.queue.pod_groups
        # The queue of a scheduler without such plugins has no groups.
        if pod_groups is not None:
            pod_groups.put_provided(groups)

    def remove_pod_group(self, group: Group) -> None:
        """Take back a group of a plugin."""
        pod_groups = self._core.queue.pod_groups
        known = self._core.cache.workload_forest.get(group.key)
        if pod_groups is not None and known is not None and group.key.is_provided:
            pod_groups.delete_group(known)

    def put_pod(self, pod: Pod, source: PodSourcePlugin) -> None:
        """Provide a pod of a plugin, or its new version."""
        if self._core.provided_pods is not None:
            self._core.provided_pods.put(pod, source)

    def remove_pod(self, pod_key: str) -> None:
        """Take back a pod of a plugin."""
        if self._core.provided_pods is not None:
            self._core.provided_pods.remove(pod_key)

    def provided_for(self, pod: PodInfo) -> Mapping[str, PodInfo]:
        """Return the provided pods whose room a pod may take, by node."""
        if self._core.provided_pods is None:
            return {}
        sources = (one for one in self._profile.plugins if isinstance(one, PodSourcePlugin))
        return {name: found for one in sources for name, found in one.provided_for(pod).items()}

    def store(self, resource: Resource[T], *, with_provided: bool = False) -> Mapping[str, T]:
        """Return the watched objects of a resource by key."""
        require_resource(resource)
        self.watched_kinds.add(resource.id)
        found = self._environment.stores.store(resource)
        if with_provided and self._core.provided_pods is not None:
            return cast(Mapping[str, T], self._core.provided_pods.with_stored(found))
        return found

    @contextmanager
    def construction(self) -> Iterator[None]:
        """Connect the handlers that the constructor of a plugin registers, once it is done.

        A handler called before would find a plugin without the attributes that are yet to be set.
        """
        unconnected = self.shared._unconnected = []
        try:
            yield
        except BaseException:
            self.shared._unconnected = None
            # What plugins share outlives the one that was the first to need it.
            for handle, connect in unconnected:
                if handle is self.shared:
                    connect()
            raise
        self.shared._unconnected = None
        for _, connect in unconnected:
            connect()

    def on_change(
        self,
        resource: Resource[T],
        handler: Callable[[T | None, T | None], None],
        *,
        with_provided: bool = False,
    ) -> None:
        """Call ``handler(old, new)`` on each change of a watched resource."""
        require_resource(resource)
        self.watched_kinds.add(resource.id)
        connect = partial(self._connect, resource, handler, with_provided)
        if self.shared._unconnected is None:
            connect()
        else:
            self.shared._unconnected.append((self, connect))

    def _connect(
        self,
        resource: Resource[T],
        handler: Callable[[T | None, T | None], None],
        with_provided: bool,
    ) -> None:
        logged = log_exceptions(handler, self.health_context)
        self._subscriptions += self._subscribe(resource, logged, with_provided)

    def _subscribe(
        self,
        resource: Resource[T],
        handler: Callable[[T | None, T | None], None],
        with_provided: bool,
    ) -> Iterator[Callable[[], None]]:
        """Yield what ends each subscription."""
        yield self._environment.stores.on_change(resource, handler)
        if with_provided and self._core.provided_pods is not None:
            yield self._core.provided_pods.on_change(cast(PodChangeFn, handler))

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Run the profile's Filter plugins over a table, nominated pods taken into account."""
        return self._core.search.run_filters_with_nominated_pods(self._profile, state, pod, nodes)

    def dry_run_preemption(
        self,
        state: CycleState,
        pod: PodInfo,
        rows: Rows,
        potential_victims: Sequence[Sequence[PodInfo]],
    ) -> PreemptionDryRun:
        """Return a dry run of preemption on rows of ``nodes``."""
        profile, nominated = self._profile, self._core.search.nominated
        return PreemptionDryRun(
            profile.filter,
            profile.pre_filter,
            nominated,
            self.nodes,
            state,
            pod,
            rows,
            potential_victims,
        )

    def run_pre_filter_extension_add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> None:
        """Run AddPod of the profile's PreFilter plugins."""
        self._profile.run_add_pod(state, pod, added, node)

    def run_pre_filter_extension_remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> None:
        """Run RemovePod of the profile's PreFilter plugins."""
        self._profile.run_remove_pod(state, pod, removed, node)

    def pod_group_reprieve(self, assignments: Sequence[ProposedAssignment]) -> PodGroupReprieve:
        """Return the reprieve of victims of a group's preemption on ``nodes``."""
        return PodGroupReprieve(self._profile, self._core.search, assignments)

    def dry_run_key(self, state: CycleState, pod: PodInfo) -> DryRunKey | None:
        """Return the key for the reuse of dry runs; None: filters read more than they sign."""
        nominated = self._core.search.nominated
        return dry_run_key(self._profile.filter, nominated, self.nodes, state, pod)

    def extender_may_preempt(self, pod: Pod) -> bool:
        """Return whether an extender with a preemptVerb is interested in a pod."""
        return self._extenders is not None and self._extenders.may_preempt(pod)

    async def preempt_through_extenders(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Return the preemption candidates that extenders accept, by node name."""
        extenders = self._extenders
        return victims if extenders is None else await extenders.preempt(pod, victims)

    def activate(self, pod_keys: Iterable[str]) -> None:
        """Move pods to the active queue."""
        # A text would be taken for the keys "d", "e", "f" …
        if isinstance(pod_keys, str):
            raise TypeError(f"activate takes several keys: [{pod_keys!r}]")
        self._core.queue.activate(pod_keys)

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Report an event to the queue that no informer reports."""
        # What is no event would be recorded for pods in flight, and fail them later.
        if not isinstance(event, ClusterEvent):
            raise TypeError(f"event must be a ClusterEvent, not {event!r}")
        self._core.queue.move_all_to_active_or_backoff(event, old, new)

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return the pod if Permit holds it."""
        if not isinstance(uid, str):
            raise TypeError(f"a waiting pod is found by its UID, pod.uid, not by {uid!r}")
        return self._core.waiting_pods.get(uid)

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """Return all pods that Permit holds."""
        return self._core.waiting_pods

    def cancel_binding(self, uid: str, message: str) -> bool:
        """Cancel a pod's binding before Bind."""
        return self._core.binding_cycle.cancel(uid, message)

    async def wait_for_binding(self, uid: str) -> bool:
        """Return whether a pod counts on a node, once its binding has ended."""
        await self._core.binding_cycle.wait_for(uid)
        return self._core.cache.get_pod(uid) is not None

    def invalidate_results(self, node_name: str) -> None:
        """Discard the cached results for one node."""
        self.nodes.record_change(node_name)

    async def http_get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        timeout_seconds: float = 10.0,
        insecure_skip_verify: bool = False,
    ) -> bytes:
        """Return the body of another server's answer to GET."""
        return await self._environment.http_get(
            url,
            headers=headers,
            timeout_seconds=timeout_seconds,
            insecure_skip_verify=insecure_skip_verify,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run something in the background."""
        return self._environment.spawn(log_exceptions_of_task(work, self.health_context))

    @property
    def _profile(self) -> Profile:
        assert self.profile is not None, "not before the profile is built"
        return self.profile
