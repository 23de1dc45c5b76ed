"""The plugin: Filter by alignment in zones, Score by zones, and the events that wake pods.

Worked example, scope container: zones 0 and 1 have 4 and 8 CPUs left. A pod's first container asks
for 3 CPUs and gets zone 0, the lowest with room; the second one asks for 8 and gets zone 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from pydantic import Field

from proreus.addons.node_resource_topology_match.cache import (
    TopologyCache,
    has_exclusive_resources,
)
from proreus.addons.node_resource_topology_match.demand import (
    Demand,
    is_aligned_for_guaranteed_pods_only,
    is_host_level,
)
from proreus.addons.node_resource_topology_match.scoring import (
    STRATEGIES,
    least_numa_nodes_score,
    score_by_zones,
)
from proreus.addons.node_resource_topology_match.zones import (
    NODE_RESOURCE_TOPOLOGIES,
    SINGLE_NUMA_NODE,
    NodeTopology,
    Zone,
)
from proreus.addons.pod_amounts import Amounts, count, requests_of
from proreus.framework import (
    MAX_SCORE,
    BackgroundPlugin,
    ClusterEvent,
    ConfigModel,
    CycleState,
    FilterPlugin,
    Handle,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PostBindPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
    events,
    is_provided,
    plugin_event,
)
from proreus.objects import PODS, Pod

INVALID_DATA = Status.unschedulable("invalid node topology data")
_RESYNCED = "NodeTopologyResynced"
_ALWAYS_ALLOCATABLE = ("cpu", "memory", "ephemeral-storage", "pods")


class ScoredZoneResource(ConfigModel):
    """A resource and its weight; below 1 counts as 1."""

    name: str
    weight: int = 1


class ZoneScoringStrategy(ConfigModel):
    """The strategy of Score."""

    type: Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"] = (
        "LeastAllocated"
    )
    resources: tuple[ScoredZoneResource, ...] = (
        ScoredZoneResource(name="cpu"),
        ScoredZoneResource(name="memory"),
    )

    def weights(self) -> dict[str, int]:
        """Return the weights by resource; others count once."""
        return {one.name: max(one.weight, 1) for one in self.resources}


class TopologyCacheArgs(ConfigModel):
    """The options of the cache."""

    foreign_pods_detect: Literal["None", "All", "OnlyExclusiveResources"] = "All"
    resync_method: Literal["Autodetect", "All", "OnlyExclusiveResources"] = "Autodetect"
    informer_mode: Literal["Dedicated", "Shared"] = "Dedicated"
    resync_scope: Literal["All", "OnlyResources"] = "All"


class NodeResourceTopologyMatchArgs(PluginArgs):
    """Scoring, and the cache that bridges the time until agents publish."""

    # A point of Koordinator's NodeNUMAResource, which this plugin replaces.
    points_without_effect = frozenset({"preBind"})

    scoring_strategy: ZoneScoringStrategy = ZoneScoringStrategy()
    cache_resync_period_seconds: int = Field(0, ge=0)
    discard_reserved_nodes: bool = False
    cache: TopologyCacheArgs | None = None
    preemption_mode: Literal["Disabled", "Enabled"] = "Disabled"


class _RemovedPods:
    """The amounts that pods removed by a dry run give back, by node."""

    def __init__(self, given_back: dict[str, dict[str, int]] | None = None) -> None:
        self.given_back = given_back or {}

    def clone(self) -> _RemovedPods:
        return _RemovedPods({name: dict(one) for name, one in self.given_back.items()})


class NodeResourceTopologyMatch(
    PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, PostBindPlugin, BackgroundPlugin
):
    """Reject nodes whose kubelet could not align the pod; prefer a good NUMA fit."""

    Args = NodeResourceTopologyMatchArgs
    args: NodeResourceTopologyMatchArgs
    row_local = True

    def __init__(self, args: NodeResourceTopologyMatchArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        options = args.cache or TopologyCacheArgs()
        self._period = args.cache_resync_period_seconds
        self._cache = TopologyCache(
            handle.nodes, self._period > 0, handle.invalidate_results, options.resync_method
        )
        self._weights = args.scoring_strategy.weights()
        self._unbound: dict[str, set[str]] = {}
        """With ``discardReservedNodes``: by node, UIDs of reserved pods until they are bound."""
        # Asked for several times a cycle.
        self._demand_of = lru_cache(maxsize=1)(lambda pod: Demand.of(pod.pod))
        self._foreign = options.foreign_pods_detect if self._period else "None"
        self._own: set[str] = set()
        """UIDs of pods that this plugin has seen at Reserve, until they have a node or are gone;
        none where foreign pods make no difference."""
        handle.on_change(NODE_RESOURCE_TOPOLOGIES, self._cache.report)
        if self._foreign != "None":
            handle.on_change(PODS, self._pod_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register deleted pods, nodes and topologies, which may make room."""
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE),
            ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_ALLOCATABLE),
            # A node without one takes pods as if it had no zones.
            ClusterEvent(NODE_RESOURCE_TOPOLOGIES.id, events.ALL),
            plugin_event(_RESYNCED),
        )

    # ---- the cache -----------------------------------------------------------------------------

    async def run_in_background(self) -> None:
        """Compare dirty nodes with the published objects, once a period."""
        while self._period:
            await asyncio.sleep(self._period)
            if self._cache.resync():
                self.handle.announce(plugin_event(_RESYNCED))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._own.discard(old.metadata.uid)
        elif new.spec.node_name and (old is None or not old.spec.node_name):
            if new.metadata.uid in self._own:
                self._own.discard(new.metadata.uid)
            elif self._foreign == "All" or has_exclusive_resources(PodInfo(new)):
                self._cache.note_foreign_pod(new.spec.node_name)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Take the pod's requests from the zones of the node."""
        if is_provided(pod.pod):
            return None
        if self._foreign != "None":
            self._own.add(pod.uid)
        if self.args.discard_reserved_nodes:
            self._unbound.setdefault(node_name, set()).add(pod.uid)
            self.handle.invalidate_results(node_name)
        else:
            self._cache.reserve(pod, node_name)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Give them back."""
        self._own.discard(pod.uid)
        self._cache.unreserve(pod, node_name)
        self._release(pod, node_name)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """With ``discardReservedNodes``: use the node again."""
        self._release(pod, node_name)

    def _release(self, pod: PodInfo, node_name: str) -> None:
        unbound = self._unbound.get(node_name)
        if unbound is not None:
            unbound.discard(pod.uid)
            if not unbound:
                del self._unbound[node_name]
                self.handle.invalidate_results(node_name)

    # ---- Filter and Score ----------------------------------------------------------------------

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the demand of the pod."""
        return self._demand_of(pod).key()

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Skip pods that no kubelet aligns; with preemption, note removed pods from now on."""
        if not self._demand_of(pod).needs_alignment:
            return Status.skip()
        state.write(self.name, _RemovedPods())
        return None

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> bool | None:
        """With ``preemptionMode: Enabled``, take the amounts of a pod again."""
        return self._note_removed(state, added, node, 1)

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> bool | None:
        """With ``preemptionMode: Enabled``, give back the amounts of a pod."""
        return self._note_removed(state, removed, node, -1)

    def _note_removed(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, sign: int
    ) -> bool | None:
        data = state.get(self.name)
        if self.args.preemption_mode == "Disabled" or not isinstance(data, _RemovedPods):
            return False
        if is_provided(pod.pod):
            return None
        count(data.given_back.setdefault(node.name, {}), requests_of(pod.pod), -sign)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Reject a node whose kubelet could not align the pod."""
        demand = self._demand_of(pod)
        if not demand.needs_alignment:
            return None
        if node.name in self._unbound or not self._cache.is_trusted(node.name):
            return INVALID_DATA
        topology = self._cache.topology(node.name)
        if topology is None or topology.policy != SINGLE_NUMA_NODE:
            return None
        topology = _with_removed(topology, state.get(self.name), node.name)
        what = misaligned(demand, topology, node)
        if not what:
            return None
        self._cache.note_rejection(node.name)
        return Status.unschedulable(f"cannot align {what}")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node by its zones; pods that kubelets do not align score all nodes alike."""
        demand = self._demand_of(pod)
        if not demand.guaranteed:
            return MAX_SCORE
        topology = self._cache.topology(node.name)
        if topology is None or not self._cache.is_trusted(node.name):
            return 0
        strategy = self.args.scoring_strategy.type
        if strategy == "LeastNUMANodes":
            return least_numa_nodes_score(demand, topology)
        if topology.policy != SINGLE_NUMA_NODE:
            return 0
        return score_by_zones(STRATEGIES[strategy], demand, topology, self._weights)


def misaligned(demand: Demand, topology: NodeTopology, node: NodeInfo) -> str:
    """Return the kind of container, or "pod", that fits no zone; "" if all fit."""
    if topology.pod_scope:
        found = _suitable_zone(demand.total, demand.guaranteed, topology.zones, node)
        return "pod" if found is None else ""
    zones = list(topology.zones)
    for index, container in enumerate(demand.containers):
        place = _suitable_zone(container.amounts, demand.guaranteed, zones, node)
        if place is None:
            return container.kind
        # Init containers end before the next one starts.
        if index >= demand.inits and place < len(zones):
            zones[place] = zones[place].less(container.amounts)
    return ""


def _suitable_zone(
    amounts: Amounts, guaranteed: bool, zones: Sequence[Zone], node: NodeInfo
) -> int | None:
    """Return the index of the lowest zone that can have all amounts, ``len(zones)`` for none
    needed; None if no zone can."""
    suitable = set(range(len(zones)))
    constrained = False
    for resource, amount in amounts.items():
        if not amount:
            continue
        if resource not in node.allocatable and resource not in _ALWAYS_ALLOCATABLE:
            return None
        listed = [index for index, zone in enumerate(zones) if resource in zone.available]
        if not listed and is_host_level(resource):
            continue
        constrained = True
        free = not guaranteed and is_aligned_for_guaranteed_pods_only(resource)
        suitable &= {
            index for index in listed if free or zones[index].available[resource] >= amount
        }
        if not suitable:
            return None
    if not suitable:
        return None if constrained else len(zones)
    return min(suitable)


def _with_removed(topology: NodeTopology, data: object, node_name: str) -> NodeTopology:
    """Return the topology with the amounts of removed pods given back in every zone."""
    if not isinstance(data, _RemovedPods) or node_name not in data.given_back:
        return topology
    more = data.given_back[node_name]
    zones = tuple(
        replace(
            zone,
            available={name: amount + more.get(name, 0) for name, amount in zone.available.items()},
        )
        for zone in topology.zones
    )
    return replace(topology, zones=zones)
