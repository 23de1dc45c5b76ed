"""A handle without a scheduler, for testing the methods of one plugin.

Objects are in memory (``api``); nominations, waiting pods and calls to the queue are plain lists
that a test fills and inspects. Methods that run the profile's other plugins run ``filters``.
"""

from __future__ import annotations

import asyncio
import random
from collections import ChainMap
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from proreus.base.clock import FakeClock
from proreus.base.errors import ApiError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import DEFAULT_VERSION, KubernetesVersion
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.engine.runtime import waiting_pods
from proreus.engine.runtime.dry_run import PreemptionDryRun, dry_run_key
from proreus.engine.runtime.nominated_pods_filter import NominatedPodsFilter
from proreus.framework.attribute_hints import AttributeHints
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import DryRunKey, PodGroupReprieve, WaitingPod
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_group import ProposedAssignment
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_source import PodSourcePlugin, is_provided
from proreus.framework.post_filter_result import NominatingInfo, Victims
from proreus.framework.verdicts import Rows, Verdicts
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.kinds import NODES, PODS, require_resource
from proreus.objects.meta import Resource, key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.scheduling import COMPOSITE_POD_GROUPS, POD_GROUPS
from proreus.offline.api import FakeRecorder, InMemoryApi, JsonObject
from proreus.testing.builders import make_node, make_table

T = TypeVar("T")

_START = 1_700_000_000.0


class FakeNominator:
    """Nominated pods by node name, in ``pods``, without a record of changes."""

    def __init__(self) -> None:
        self.pods: dict[str, list[PodInfo]] = {}

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods that are nominated to a node."""
        return list(self.pods.get(node_name, ()))

    def nominated_nodes(self) -> Iterable[str]:
        """Return the names of the nodes that have nominated pods."""
        return [name for name, pods in self.pods.items() if pods]

    def nominated_node_of(self, uid: str) -> str | None:
        """Return the name of the node that a pod is nominated to, or None."""
        named = (name for name, pods in self.pods.items() if any(pod.uid == uid for pod in pods))
        return next(named, None)

    @property
    def position(self) -> int:
        """Always 0: changes are not recorded."""
        return 0

    def changes_since(self, position: int) -> Iterable[str] | None:
        """Return None, since changes are not recorded and all nodes may have changed."""
        return None

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Nominate a pod to the node of ``nominating``, or of the pod's status."""
        self.delete_nominated_pod(pod.uid)
        name = nominating.node_name if nominating else pod.pod.status.nominated_node_name
        if name:
            self.pods.setdefault(name, []).append(pod)

    def delete_nominated_pod(self, uid: str) -> None:
        """Remove a pod's nomination."""
        for name, pods in self.pods.items():
            self.pods[name] = [pod for pod in pods if pod.uid != uid]


class FakeHandle(AttributeHints):
    """Implements ``Handle`` over objects in memory.

    ``nodes``, also by name, ``pods``: the content of the cluster; pods with a ``node_name`` are on
    that node. ``objects``: further objects as in YAML. ``gates``: feature gates, as ``Name=true``.
    ``kubernetes_version``: the emulated version. ``seed``: of ``rng``.

    Set by the test: ``filters``, the profile's Filter plugins, ``waiting``, pods that wait on
    Permit, by UID (``hold`` adds one), and ``http_answers``, bodies by URL. Recorded calls of the
    plugin: ``activated`` (pod keys), ``announced`` (event, old, new), ``cancelled`` (UIDs) and
    ``provided`` (pods by key).
    ``clock`` is a ``FakeClock``.
    """

    def __init__(
        self,
        nodes: Iterable[Node | str] = (),
        pods: Iterable[PodInfo] = (),
        *,
        objects: Iterable[JsonObject] = (),
        gates: Sequence[str] = (),
        kubernetes_version: str = str(DEFAULT_VERSION),
        seed: int = 0,
    ) -> None:
        made = [make_node(one) if isinstance(one, str) else one for one in nodes]
        pods = list(pods)
        self.profile_name = "default-scheduler"
        self.nodes: ClusterTable = make_table(made, (p for p in pods if p.pod.spec.node_name))
        self.clock = FakeClock(_START)
        self.rng = random.Random(seed)
        self.polls_only = False
        version = KubernetesVersion.parse(kubernetes_version)
        self.feature_gates = FeatureGates.from_list(gates, version)
        self.nominator = FakeNominator()
        self._nominated = NominatedPodsFilter(self.nominator)
        self.pod_group_states = PodGroupStates()
        self.workload_forest = WorkloadForest(self.feature_gates.enabled("CompositePodGroup"))
        self.api = InMemoryApi(hide_finished=False)
        self.event_recorder = FakeRecorder()
        self.filters: tuple[FilterPlugin, ...] = ()
        self.activated: list[str] = []
        self.announced: list[tuple[ClusterEvent, Any, Any]] = []
        self.waiting: dict[str, WaitingPod] = {}
        self.cancelled: list[str] = []
        self.http_answers: dict[str, bytes] = {}
        self.provided: dict[str, Pod] = {}
        self._sources: set[PodSourcePlugin] = set()
        self._told_of_provided: list[Callable[[Any, Any], None]] = []
        for node in made:
            self.api.put(NODES, node)
        for pod in pods:
            self.api.put(PODS, pod.pod)
            if pod.pod.spec.node_name:
                self.pod_group_states.assign(pod)
            else:
                self.pod_group_states.add(pod)
        self.api.on_change(POD_GROUPS, self._group_changed)
        self.api.on_change(COMPOSITE_POD_GROUPS, self._group_changed)
        for obj in objects:
            self.api.add(obj)

    def put_pod_group(self, *groups: Group) -> None:
        """Provide groups of a plugin, or their new versions."""
        for group in groups:
            if not group.key.is_provided:
                raise ValueError(
                    f"the name of a group that a plugin provides needs a slash: {group.key}"
                )
            self.workload_forest.put(group)

    def remove_pod_group(self, group: Group) -> None:
        """Take back a group of a plugin."""
        self.workload_forest.remove(group.key)

    def put_pod(self, pod: Pod, source: PodSourcePlugin) -> None:
        """Keep a pod of a plugin in ``provided``, and on its node if it has one."""
        if not is_provided(pod):
            raise ValueError(
                f"the name of a pod that a plugin provides needs a slash: {key_of(pod)}"
            )
        known = self.provided.get(key_of(pod))
        self._take_off_its_node(known)
        self.provided[key_of(pod)] = pod
        self._sources.add(source)
        row = self.nodes.rows.get(pod.spec.node_name)
        if row is not None:
            self.nodes.add_pod(row, PodInfo(pod))
        for handler in self._told_of_provided:
            handler(known, pod)

    def remove_pod(self, pod_key: str) -> None:
        """Remove a pod of a plugin."""
        pod = self.provided.pop(pod_key, None)
        self._take_off_its_node(pod)
        for handler in self._told_of_provided if pod is not None else ():
            handler(pod, None)

    def _take_off_its_node(self, pod: Pod | None) -> None:
        row = None if pod is None else self.nodes.rows.get(pod.spec.node_name)
        if pod is not None and row is not None:
            self.nodes.remove_pod(row, pod.metadata.uid)

    def _group_changed(self, old: Group | None, new: Group | None) -> None:
        if new is not None:
            self.workload_forest.put(new)
        elif old is not None:
            self.workload_forest.remove(old.key)

    @cached_property
    def metrics(self) -> SchedulerMetrics:
        """The metrics registry, created on first use because it is large."""
        return SchedulerMetrics(version=self.feature_gates.emulation_version)

    def add(self, obj: JsonObject) -> None:
        """Create or replace an object, as in YAML, and call the handlers of ``on_change``."""
        self.api.add(obj)

    def remove(self, kind: str, key: str) -> None:
        """Delete an object by its key (``[namespace/]name``), and call the handlers."""
        assert self.api.resources_of(kind), kind
        self.api.remove(kind, key)

    def hold(self, pod: PodInfo, timeouts: Mapping[str, float]) -> WaitingPod:
        """Let a pod wait on Permit; ``timeouts``: in seconds, by the name of the plugin."""
        held = waiting_pods.WaitingPod(pod, dict(timeouts), self.clock.now())
        self.waiting[pod.uid] = held
        return held

    def provided_for(self, pod: PodInfo) -> Mapping[str, PodInfo]:
        """Return the answers of the plugins that provided pods, by node."""
        return {
            name: found for one in self._sources for name, found in one.provided_for(pod).items()
        }

    def store(self, resource: Resource[T], *, with_provided: bool = False) -> Mapping[str, T]:
        """Return the objects of a resource, by key; with the objects of ``provided`` if asked
        to.
        """
        require_resource(resource)
        found = self.api.store(resource)
        if not with_provided:
            return found
        return cast(Mapping[str, T], ChainMap(cast(dict[str, Any], found), self.provided))

    def on_change(
        self,
        resource: Resource[T],
        handler: Callable[[T | None, T | None], None],
        *,
        with_provided: bool = False,
    ) -> None:
        """Call ``handler(old, new)`` on each change of a resource, at once for existing objects."""
        require_resource(resource)
        self.api.on_change(resource, handler)
        if with_provided:
            self._told_of_provided.append(handler)
            for pod in self.provided.values():
                handler(None, cast(T, pod))

    def node_order(self) -> Rows:
        """Return all rows in the order of the table; zones do not matter."""
        return np.arange(len(self.nodes), dtype=np.intp)

    @property
    def shared(self) -> FakeHandle:
        """The handle itself: there is only one profile."""
        return self

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Return the verdicts of ``filters`` over a table; nominated pods are ignored."""
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
        """Return a preemption dry run of some rows of ``nodes``.

        ``potential_victims``: for each of ``rows``, the pods that may be removed.
        """
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

    def run_pre_filter_extension_add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> None:
        """Run AddPod of the plugins in ``filters``."""
        for plugin in self._active_pre_filters(state):
            plugin.add_pod(state, pod, added, node)

    def run_pre_filter_extension_remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> None:
        """Run RemovePod of the plugins in ``filters``."""
        for plugin in self._active_pre_filters(state):
            plugin.remove_pod(state, pod, removed, node)

    def _active_pre_filters(self, state: CycleState) -> Iterable[PreFilterPlugin]:
        pre_filters = (p for p in self.filters if isinstance(p, PreFilterPlugin))
        return (plugin for plugin in pre_filters if plugin.name not in state.skip_filter)

    def pod_group_reprieve(self, assignments: Sequence[ProposedAssignment]) -> PodGroupReprieve:
        """Not there: it needs a whole profile (``PluginHarness`` has one)."""
        raise NotImplementedError

    def dry_run_key(self, state: CycleState, pod: PodInfo) -> DryRunKey | None:
        """Return a key under which dry-run results may be cached.

        None if a plugin of ``filters`` has no signature for the pod.
        """
        return dry_run_key(self.filters, self._nominated, self.nodes, state, pod)

    def extender_may_preempt(self, pod: Pod) -> bool:
        """Return False: there are no extenders."""
        return False

    async def preempt_through_extenders(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Return ``victims`` unchanged: there are no extenders."""
        return victims

    def activate(self, pod_keys: Iterable[str]) -> None:
        """Record the keys of pods in ``activated``."""
        if isinstance(pod_keys, str):
            raise TypeError(f"activate takes several keys: [{pod_keys!r}]")
        self.activated.extend(pod_keys)

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Record an event for the queue in ``announced``."""
        self.announced.append((event, old, new))

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return a pod of ``waiting``, or None."""
        return self.waiting.get(uid)

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """Return all pods of ``waiting``."""
        return list(self.waiting.values())

    def cancel_binding(self, uid: str, message: str) -> bool:
        """Record a UID in ``cancelled``; return False, since there are no bindings."""
        self.cancelled.append(uid)
        return False

    async def wait_for_binding(self, uid: str) -> bool:
        """Return at once whether a node has the pod."""
        return any(uid in node.pods for node in self.nodes)

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
        """Return ``http_answers[url]``; raises ``ApiError`` for any other URL."""
        if url not in self.http_answers:
            raise ApiError(404, "Not Found", f"{url} answered 404")
        return self.http_answers[url]

    def spawn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run a coroutine as a task of the running event loop."""
        return asyncio.ensure_future(work)
