"""A handle without a scheduler: enough to test one plugin by itself.

Objects live in memory (``api``); nominations, Permit and the queue are plain lists that a test
fills and looks at. What needs the other plugins of a profile asks ``filters``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from proreus.cache.pod_group_states import PodGroupStates
from proreus.clock import FakeClock
from proreus.feature_gates import FeatureGates
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import DryRunKey, WaitingPod
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo, Victims
from proreus.framework.verdicts import Rows, Verdicts
from proreus.metrics import SchedulerMetrics
from proreus.objects.kinds import BY_KIND, NODES, PODS
from proreus.objects.meta import Resource
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.offline.api import FakeRecorder, InMemoryApi, JsonObject
from proreus.runtime.dry_run import PreemptionDryRun, dry_run_key
from proreus.runtime.nominated_pods_filter import NominatedPodsFilter
from proreus.testing.builders import make_table

T = TypeVar("T")

_START = 1_700_000_000.0


class FakeNominator:
    """Nominations by node name, in ``pods``."""

    def __init__(self) -> None:
        self.pods: dict[str, list[PodInfo]] = {}

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node."""
        return list(self.pods.get(node_name, ()))

    def nominated_nodes(self) -> Iterable[str]:
        """Return the names of nodes that pods are nominated to."""
        return [name for name, pods in self.pods.items() if pods]

    def nominated_node_of(self, uid: str) -> str | None:
        """Return the name of the node that a pod is nominated to; None if it is not."""
        named = (name for name, pods in self.pods.items() if any(pod.uid == uid for pod in pods))
        return next(named, None)

    @property
    def position(self) -> int:
        """There is no record of changes."""
        return 0

    def changes_since(self, position: int) -> Iterable[str] | None:
        """There is no record of changes."""
        return None

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Register a nomination."""
        self.delete_nominated_pod(pod.uid)
        name = nominating.node_name if nominating else pod.pod.status.nominated_node_name
        if name:
            self.pods.setdefault(name, []).append(pod)

    def delete_nominated_pod(self, uid: str) -> None:
        """Forget a nomination."""
        for name, pods in self.pods.items():
            self.pods[name] = [pod for pod in pods if pod.uid != uid]


class FakeHandle:
    """Implements ``framework.handle.Handle``.

    ``nodes`` and ``pods`` are what the cluster has; ``objects``: further objects as in YAML;
    ``gates``: ``Name=bool``. ``activated``, ``announced``, ``waiting``, ``cancelled`` record what
    plugins did.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        pods: Iterable[PodInfo] = (),
        *,
        objects: Iterable[JsonObject] = (),
        gates: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        nodes, pods = list(nodes), list(pods)
        self.profile_name = "default-scheduler"
        self.nodes: ClusterTable = make_table(nodes, (p for p in pods if p.pod.spec.node_name))
        self.clock = FakeClock(_START)
        self.rng = random.Random(seed)
        self.feature_gates = FeatureGates.from_list(gates)
        self.nominator = FakeNominator()
        self._nominated = NominatedPodsFilter(self.nominator)
        self.pod_group_states = PodGroupStates()
        self.api = InMemoryApi(hide_finished=False)
        self.event_recorder = FakeRecorder()
        self.filters: tuple[FilterPlugin, ...] = ()
        self.activated: list[str] = []
        self.announced: list[tuple[ClusterEvent, Any, Any]] = []
        self.waiting: dict[str, WaitingPod] = {}
        self.cancelled: list[str] = []
        for node in nodes:
            self.api.put(NODES, node)
        for pod in pods:
            self.api.put(PODS, pod.pod)
            if pod.pod.spec.node_name:
                self.pod_group_states.assign(pod)
            else:
                self.pod_group_states.add(pod)
        for obj in objects:
            self.api.add(obj)

    @cached_property
    def metrics(self) -> SchedulerMetrics:
        """Where to count; made when it is first asked for, since it is large."""
        return SchedulerMetrics()

    def add(self, obj: JsonObject) -> None:
        """Let an object appear, or change; handlers of ``on_change`` are told."""
        self.api.add(obj)

    def remove(self, kind: str, key: str) -> None:
        """Let an object go; handlers of ``on_change`` are told."""
        assert kind in BY_KIND, kind
        self.api.remove(kind, key)

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the objects of a resource by key."""
        return self.api.store(resource)

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> None:
        """Call ``handler(old, new)`` on each change of a resource."""
        self.api.on_change(resource, handler)

    @property
    def shared(self) -> FakeHandle:
        """Itself."""
        return self

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Run ``filters`` over a table; nominations are not looked at."""
        verdicts = Verdicts(len(nodes))
        for plugin in self.filters:
            if plugin.name not in state.skip_filter:
                own = Verdicts(len(nodes), plugin.name)
                plugin.filter_all(state, pod, nodes, own)
                verdicts.merge(own)
        return verdicts

    def dry_run_preemption(
        self,
        state: CycleState,
        pod: PodInfo,
        rows: Rows,
        potential_victims: Sequence[Sequence[PodInfo]],
    ) -> PreemptionDryRun:
        """Try rows of ``nodes``, each without pods that may go."""
        pre_filters = [p for p in self.filters if isinstance(p, PreFilterPlugin)]
        return PreemptionDryRun(
            self.filters,
            pre_filters,
            self._nominated,
            self.nodes,
            state,
            pod,
            rows,
            potential_victims,
        )

    def dry_run_key(self, state: CycleState, pod: PodInfo) -> DryRunKey | None:
        """Return what else trials rest on; None where ``filters`` read more than they sign."""
        return dry_run_key(self.filters, self._nominated, self.nodes, state, pod)

    async def preempt_through_extenders(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """There are no extenders."""
        return victims

    def activate(self, pod_keys: Iterable[str]) -> None:
        """Note pods to be moved to the active queue."""
        self.activated.extend(pod_keys)

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Note an event that a plugin tells the queue of."""
        self.announced.append((event, old, new))

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return the pod of ``waiting``."""
        return self.waiting.get(uid)

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """Return all pods of ``waiting``."""
        return list(self.waiting.values())

    def cancel_binding(self, uid: str, message: str) -> bool:
        """Note a binding to be cancelled; there is none that could be."""
        self.cancelled.append(uid)
        return False

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run something in the background of the test's event loop."""
        return asyncio.ensure_future(work)
