"""The handle that plugins of one profile are given: their way to the scheduler around them.

It is made before the rest of the scheduler is, since plugins are built with it; what it leads to
(``Surroundings``) is completed by ``assembly``.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from proreus.cache.cache import Cache
from proreus.cache.pod_group_states import PodGroupStates
from proreus.clock import Clock
from proreus.feature_gates import FeatureGates
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import ApiWriter, EventRecorder, TrialGrounds
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import Nominator
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Rows, Verdicts
from proreus.framework.victims import Victims
from proreus.metrics import SchedulerMetrics
from proreus.objects.meta import ApiObject, Resource
from proreus.objects.pod import Pod
from proreus.queue.scheduling_queue import SchedulingQueue
from proreus.runtime.conduct import Supervision
from proreus.runtime.find_nodes import NodeSearch
from proreus.runtime.guard import surviving, surviving_work
from proreus.runtime.node_points import run_filter_plugins
from proreus.runtime.profile import Profile
from proreus.runtime.trials import NodeTrials, trial_grounds
from proreus.runtime.waiting_pods import WaitingPod, WaitingPods
from proreus.scheduler.binding_cycle import BindingCycle
from proreus.scheduler.extender_chain import ExtenderChain, Pausable

T = TypeVar("T", bound=ApiObject)


class Stores(Protocol):
    """Watched objects: informers in a process, plain dicts offline."""

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the objects of a resource by key; the first call begins to watch it."""
        ...

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> Callable[[], None]:
        """Call ``handler(old, new)`` on each change of a resource; returns what ends that."""
        ...

    def add_handler(self, resource: Resource[Any], handler: Any) -> None:
        """Tell an informer handler (``on_add``, ``on_update``, ``on_delete``) of each change."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What a scheduler stands on: the outside world, real or pretended.

    ``world``: what is to stand still while a scheduling cycle waits for somebody; None where
    nothing moves by itself. ``ask_extenders``: whether those that are configured are asked at all.
    ``supervision``: who keeps watch over plugins; None: the usual rules, and nobody is told.
    """

    api: ApiWriter
    event_recorder: EventRecorder
    stores: Stores
    clock: Clock
    rng: random.Random
    metrics: SchedulerMetrics
    feature_gates: FeatureGates
    spawn: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
    world: Pausable | None = None
    ask_extenders: bool = True
    supervision: Supervision | None = None

    def paused(self) -> AbstractContextManager[None]:
        """Let nothing change for the length of a ``with`` block."""
        return nullcontext() if self.world is None else self.world.paused()


@dataclass
class Core:
    """The parts of a scheduler that handles lead to; filled in while it is assembled."""

    cache: Cache
    waiting_pods: WaitingPods
    queue: SchedulingQueue | None = None
    search: NodeSearch | None = None
    binding_cycle: BindingCycle | None = None
    extenders: ExtenderChain | None = None
    shared_handle: ProfileHandle | None = None


class ProfileHandle:
    """Implements ``framework.handle.Handle`` for one profile."""

    def __init__(self, profile_name: str, around: Surroundings, core: Core) -> None:
        self.profile_name = profile_name
        self.profile: Profile | None = None
        """Set once the profile is built."""
        self._around = around
        self._core = core
        self.nodes: NodeTable = core.cache.table
        """All nodes."""
        self._subscriptions: list[Callable[[], None]] = []

    def close(self) -> None:
        """Hear of no more changes: the profile is not in use any more."""
        for end in self._subscriptions:
            end()
        self._subscriptions.clear()

    @property
    def shared(self) -> ProfileHandle:
        """The handle of what profiles have in common."""
        if self._core.shared_handle is None:
            self._core.shared_handle = ProfileHandle("", self._around, self._core)
        return self._core.shared_handle

    @property
    def clock(self) -> Clock:
        """The time."""
        return self._around.clock

    @property
    def rng(self) -> random.Random:
        """The source of chance."""
        return self._around.rng

    @property
    def feature_gates(self) -> FeatureGates:
        """Feature gates of this process."""
        return self._around.feature_gates

    @property
    def pod_group_states(self) -> PodGroupStates:
        """The pods of PodGroups."""
        return self._core.cache.pod_group_states

    @property
    def metrics(self) -> SchedulerMetrics:
        """Where to count."""
        return self._around.metrics

    @property
    def nominator(self) -> Nominator:
        """Nominated pods."""
        return self._queue.nominator

    @property
    def api(self) -> ApiWriter:
        """Writes to the apiserver."""
        return self._around.api

    @property
    def supervision(self) -> Supervision:
        """Who keeps watch over the plugins."""
        return self._around.supervision or Supervision(self._around.clock, self._around.metrics)

    @property
    def event_recorder(self) -> EventRecorder:
        """Events."""
        return self._around.event_recorder

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the watched objects of a resource by key."""
        return self._around.stores.store(resource)

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> None:
        """Call ``handler(old, new)`` on each change of a watched resource."""
        self._subscriptions.append(self._around.stores.on_change(resource, surviving(handler)))

    def run_filters(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Run the profile's Filter plugins over a table, without nominated pods."""
        verdicts.merge(run_filter_plugins(self._profile.filter, state, pod, nodes))

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Run the profile's Filter plugins over a table, nominated pods taken into account."""
        assert self._core.search is not None
        return self._core.search.run_filters_with_nominated_pods(self._profile, state, pod, nodes)

    def filters_are_row_local(self, state: CycleState) -> bool:
        """Tell whether no Filter plugin that takes part in this cycle looks across nodes."""
        return all(p.row_local or p.name in state.skip_filter for p in self._profile.filter)

    def run_add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeTable, row: int
    ) -> None:
        """Try a pod on a row of a fork."""
        self._profile.add_pod(state, pod, added, nodes, row)

    def run_remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeTable, row: int
    ) -> None:
        """Try a row of a fork without a pod."""
        self._profile.remove_pod(state, pod, removed, nodes, row)

    def try_nodes(
        self, state: CycleState, pod: PodInfo, rows: Rows, movable: Sequence[Sequence[PodInfo]]
    ) -> NodeTrials:
        """Try rows of ``nodes``, each without pods that may go."""
        assert self._core.search is not None
        profile, nominated = self._profile, self._core.search.nominated
        return NodeTrials(
            profile.filter,
            profile.pre_filter,
            nominated,
            self.nodes,
            state,
            pod,
            rows,
            movable,
        )

    def trial_grounds(self, state: CycleState, pod: PodInfo) -> TrialGrounds | None:
        """Return what else trials rest on; None where filters read more than they sign."""
        assert self._core.search is not None
        nominated = self._core.search.nominated
        return trial_grounds(self._profile.filter, nominated, self.nodes, state, pod)

    async def preempt_through_extenders(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Let extenders take nodes and victims from what preemption would do."""
        extenders = self._core.extenders
        return victims if extenders is None else await extenders.preempt(pod, victims)

    def activate(self, pod_keys: Iterable[str]) -> None:
        """Move pods to the active queue."""
        self._queue.activate(pod_keys)

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Tell the queue of an event that no watch tells of."""
        self._queue.move_all_to_active_or_backoff(event, old, new)

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return the pod if Permit holds it."""
        return self._core.waiting_pods.get(uid)

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """Return all pods that Permit holds."""
        return self._core.waiting_pods

    def reject_waiting_pod(self, uid: str, plugin: str = "", message: str = "removed") -> bool:
        """Turn down a pod that Permit holds."""
        waiting = self._core.waiting_pods.get(uid)
        return waiting is not None and waiting.reject(plugin, message)

    def cancel_binding(self, uid: str, message: str) -> bool:
        """Cancel a pod's binding while it is in PreBind."""
        assert self._core.binding_cycle is not None
        return self._core.binding_cycle.cancel(uid, message)

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run something in the background."""
        return self._around.spawn(surviving_work(work))

    @property
    def _queue(self) -> SchedulingQueue:
        assert self._core.queue is not None, "not before the scheduler is assembled"
        return self._core.queue

    @property
    def _profile(self) -> Profile:
        assert self.profile is not None, "not before the profile is built"
        return self.profile
