"""The plugin: extension points, and what wakes the pods that it rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np

from proreus.addons.node_resource_topology_match.alignment import misaligned
from proreus.addons.node_resource_topology_match.args import (
    NodeResourceTopologyMatchArgs,
    TopologyCacheArgs,
)
from proreus.addons.node_resource_topology_match.cache import (
    TopologyCache,
    has_exclusive_resources,
)
from proreus.addons.node_resource_topology_match.demand import Demand
from proreus.addons.node_resource_topology_match.least_numa_nodes import least_numa_nodes_score
from proreus.addons.node_resource_topology_match.over_columns import (
    SCORES,
    can_score,
    misaligned_nodes,
    scores_by_zones,
)
from proreus.addons.node_resource_topology_match.scoring import STRATEGIES, score_by_zones
from proreus.addons.node_resource_topology_match.zone_columns import ZoneColumns
from proreus.addons.node_resource_topology_match.zones import (
    NODE_RESOURCE_TOPOLOGIES,
    SINGLE_NUMA_NODE,
    NodeTopology,
)
from proreus.framework import (
    MAX_SCORE,
    BackgroundPlugin,
    ClusterEvent,
    CycleState,
    FilterPlugin,
    Handle,
    IntArray,
    NodeInfo,
    NodeTable,
    PodInfo,
    PostBindPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
    Verdicts,
    events,
    is_provided,
    plugin_event,
)
from proreus.objects import PODS, Pod

INVALID_DATA = Status.unschedulable("invalid node topology data")
_RESYNCED = "NodeTopologyResynced"
_ROWS_BETWEEN_CHECKS = 64


class _RemovedPods:
    """What the pods that a dry run removed give back, by node."""

    def __init__(self, given_back: dict[str, dict[str, int]] | None = None) -> None:
        self.given_back = given_back or {}

    def clone(self) -> _RemovedPods:
        return _RemovedPods({name: dict(one) for name, one in self.given_back.items()})

    def add(self, node_name: str, pod: PodInfo, sign: int) -> None:
        amounts = self.given_back.setdefault(node_name, {})
        for name, amount in Demand.of(pod.pod).total.items():
            amounts[name] = amounts.get(name, 0) - sign * amount


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
        self._columns = ZoneColumns(self._cache)
        self._weights = args.scoring_strategy.weights()
        self._unbound: dict[str, set[str]] = {}
        """With ``discardReservedNodes``: by node, UIDs of reserved pods until they are bound."""
        self._last_demand: tuple[Pod, Demand] | None = None
        self._foreign = options.foreign_pods_detect if self._period else "None"
        self._own: set[str] = set()
        """UIDs of pods that this plugin has seen at Reserve, until they have a node or are gone;
        none where foreign pods make no difference."""
        handle.on_change(NODE_RESOURCE_TOPOLOGIES, self._cache.report)
        if self._foreign != "None":
            handle.on_change(PODS, self._pod_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register what may make room: deleted pods, nodes, topologies."""
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE),
            ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_ALLOCATABLE),
            # A node without one takes pods as if it had no zones.
            ClusterEvent(NODE_RESOURCE_TOPOLOGIES.id, events.ALL),
            plugin_event(_RESYNCED),
        )

    # ---- the cache -----------------------------------------------------------------------------

    async def run_in_background(self) -> None:
        """Compare dirty nodes with what agents have published, once a period."""
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
        """Return what the pod requests."""
        return self._demand_of(pod).key()

    def _demand_of(self, pod: PodInfo) -> Demand:
        # Asked for several times a cycle, by one point after the other.
        if self._last_demand is None or self._last_demand[0] is not pod.pod:
            self._last_demand = pod.pod, Demand.of(pod.pod)
        return self._last_demand[1]

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Skip pods that no kubelet aligns; with preemption, note removed pods from now on."""
        demand = self._demand_of(pod)
        if not demand.needs_alignment:
            return Status.skip()
        state.write(self.name, _RemovedPods())
        return None

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> bool | None:
        """With ``preemptionMode: Enabled``: a pod is back on a node."""
        return self._note_removed(state, added, node, 1)

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> bool | None:
        """With ``preemptionMode: Enabled``: a pod gives back what it has."""
        return self._note_removed(state, removed, node, -1)

    def _note_removed(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, sign: int
    ) -> bool | None:
        data = state.get(self.name)
        if self.args.preemption_mode == "Disabled" or not isinstance(data, _RemovedPods):
            return False
        if is_provided(pod.pod):
            return None
        data.add(node.name, pod, sign)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Reject a node whose kubelet could not align the pod."""
        return self._filter(state, self._demand_of(pod), node)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes, over columns where they are those of the cluster as it is."""
        demand = self._demand_of(pod)
        if not demand.needs_alignment:
            return
        as_it_is = nodes is self.handle.nodes and not _removed(state.get(self.name))
        if as_it_is and self._columns.refresh(nodes):
            self._filter_columns(demand, nodes, verdicts)
            return
        for row, node in enumerate(nodes):
            if row % _ROWS_BETWEEN_CHECKS == 0:
                state.check_budget(self.name, "Filter")
            status = self._filter(state, demand, node)
            if status is not None:
                verdicts.reject_row(row, status)

    def _filter_columns(self, demand: Demand, nodes: NodeTable, verdicts: Verdicts) -> None:
        columns = self._columns
        usable = columns.trusted.copy()
        for name in self._unbound:
            if name in nodes:
                usable[nodes.rows[name]] = False
        verdicts.reject_with(~usable, INVALID_DATA)
        rows = np.flatnonzero(usable & columns.aligned)
        for rejected, what in misaligned_nodes(demand, columns, nodes, rows):
            status = Status.unschedulable(f"cannot align {what}")
            for row in rejected.tolist():
                self._cache.note_rejection(nodes[row].name)
                verdicts.reject_row(row, status)

    def _filter(self, state: CycleState, demand: Demand, node: NodeInfo) -> Status | None:
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
        """Score one node by its zones; pods that kubelets do not align like all nodes."""
        demand = self._demand_of(pod)
        return self._score(demand, node) if demand.guaranteed else MAX_SCORE

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes, over columns where they are the cluster's and the strategy allows it."""
        demand = self._demand_of(pod)
        if not demand.guaranteed:
            return MAX_SCORE
        score, columns = SCORES.get(self.args.scoring_strategy.type), self._columns
        as_it_is = nodes is self.handle.nodes and columns.refresh(nodes)
        if score is not None and as_it_is and can_score(demand, columns):
            scores = np.zeros(len(nodes), dtype=np.int64)
            rows = np.flatnonzero(columns.aligned & columns.trusted)
            scores[rows] = scores_by_zones(score, demand, columns, rows, self._weights)
            return scores
        return np.fromiter((self._score(demand, node) for node in nodes), np.int64, len(nodes))

    def _score(self, demand: Demand, node: NodeInfo) -> int:
        """Score one node for a Guaranteed pod."""
        topology = self._cache.topology(node.name)
        if topology is None or not self._cache.is_trusted(node.name):
            return 0
        strategy = self.args.scoring_strategy.type
        if strategy == "LeastNUMANodes":
            return least_numa_nodes_score(demand, topology)
        if topology.policy != SINGLE_NUMA_NODE:
            return 0
        return score_by_zones(STRATEGIES[strategy], demand, topology, self._weights)


def _removed(data: object) -> bool:
    return isinstance(data, _RemovedPods) and bool(data.given_back)


def _with_removed(topology: NodeTopology, data: object, node_name: str) -> NodeTopology:
    """Return the topology with what removed pods give back, in every zone."""
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
