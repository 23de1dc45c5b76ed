"""NetworkOverhead: nodes near to the pods that a pod depends on.

Worked example: a pod depends on two placed pods. One runs in the node's own zone (cost 1), the
other in a zone at cost 5, where 3 is allowed: one requirement is met and one is not, so that the
node passes, with cost 6. The node with the lowest cost scores 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from proreus.addons.min_max import min_max_normalize
from proreus.addons.network_aware.distances import Dependency, Distances, Domains
from proreus.addons.network_aware.objects import (
    APP_GROUP_LABEL,
    APP_GROUPS,
    NETWORK_TOPOLOGIES,
    WORKLOAD_LABEL,
    first_named,
)
from proreus.framework import (
    MAX_SCORE,
    ClusterEvent,
    CycleState,
    FilterPlugin,
    Handle,
    IntArray,
    NodeTable,
    PluginArgs,
    PodInfo,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
    Verdicts,
    events,
    is_provided,
)
from proreus.objects import PODS, Pod


class NetworkOverheadArgs(PluginArgs):
    """The namespaces of AppGroups and the NetworkTopology, and the name of its weights."""

    namespaces: tuple[str, ...] = ("default",)
    weights_name: str = "UserDefined"
    network_topology_name: str = "nt-default"


class _Dependencies:
    """The dependencies of a pod, and the sums for the latest table of nodes."""

    def __init__(self, dependencies: Sequence[Dependency], distances: Distances) -> None:
        self.dependencies, self.distances = dependencies, distances
        self.sums: tuple[NodeTable, IntArray] | None = None


class NetworkOverhead(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin):
    """Reject nodes too far from the dependencies of a pod; prefer near ones."""

    Args = NetworkOverheadArgs
    args: NetworkOverheadArgs

    def __init__(self, args: NetworkOverheadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._groups = handle.store(APP_GROUPS)
        self._topologies = handle.store(NETWORK_TOPOLOGIES)
        self._placed: dict[str, dict[str, tuple[str, str]]] = {}
        """By AppGroup and UID: workload and node of each placed pod."""
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        """The same counted: by AppGroup and workload, by node."""
        self._distances: Distances | None = None
        self._domains: tuple[int, Domains] | None = None
        """The domains of all nodes, as of a generation of them."""
        handle.on_change(PODS, self._pod_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register changes of distances: groups, topologies, placed members, nodes."""
        return (
            ClusterEvent(APP_GROUPS.id, events.ALL),
            ClusterEvent(NETWORK_TOPOLOGIES.id, events.ALL),
            ClusterEvent(events.ASSIGNED_POD, events.ADD | events.DELETE, hint=_is_sibling),
            ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_LABEL),
        )

    # ---- placed pods ---------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._forget(old)
            return
        if old is not None and _group_of(old) != _group_of(new):
            self._forget(old)
        if new.spec.node_name:
            self._note(new, new.spec.node_name)

    def _note(self, pod: Pod, node_name: str) -> None:
        if group := _group_of(pod):
            placed = pod.metadata.labels.get(WORKLOAD_LABEL, ""), node_name
            pods = self._placed.setdefault(group, {})
            before = pods.get(pod.metadata.uid)
            if before != placed:
                if before is not None:
                    self._count(group, before, -1)
                pods[pod.metadata.uid] = placed
                self._count(group, placed, 1)

    def _forget(self, pod: Pod) -> None:
        group = _group_of(pod)
        pods = self._placed.get(group)
        if pods is not None:
            before = pods.pop(pod.metadata.uid, None)
            if before is not None:
                self._count(group, before, -1)
            if not pods:
                del self._placed[group]

    def _count(self, group: str, placed: tuple[str, str], sign: int) -> None:
        workload, node_name = placed
        counts = self._counts.setdefault((group, workload), Counter())
        counts[node_name] += sign
        if not counts[node_name]:
            del counts[node_name]
        if not counts:
            del self._counts[group, workload]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod as placed."""
        if not is_provided(pod.pod):
            self._note(pod.pod, node_name)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Forget the pod."""
        self._forget(pod.pod)

    # ---- Filter and Score ----------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Find the placed pods that the pod depends on; Skip if there are none."""
        found = self._dependencies(pod)
        if found is None:
            return Status.skip()
        state.write(self.name, found)
        return None

    def _dependencies(self, pod: PodInfo) -> _Dependencies | None:
        name = pod.labels.get(APP_GROUP_LABEL)
        if not name or name not in self._placed:
            return None
        group = first_named(self._groups, self.args.namespaces, name)
        topology_name = self.args.network_topology_name
        topology = first_named(self._topologies, self.args.namespaces, topology_name)
        if group is None or topology is None:
            return None
        found = [
            Dependency(counts, dependency.max_network_cost)
            for dependency in group.dependencies(pod.labels.get(WORKLOAD_LABEL, ""))
            if (counts := self._counts.get((name, dependency.workload.selector)))
        ]
        if not found:
            return None
        if self._distances is None or self._distances.topology is not topology:
            self._distances = Distances(topology, self.args.weights_name)
        return _Dependencies(found, self._distances)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Reject nodes that violate more requirements than they meet."""
        satisfied, violated, _ = self._sums(state, nodes)
        for row in np.flatnonzero(violated > satisfied).tolist():
            text = (
                f"Node {nodes[row].name} does not meet several network requirements from Workload "
                f"dependencies: Satisfied: {satisfied[row]} Violated: {violated[row]}"
            )
            verdicts.reject_row(row, Status.unschedulable(text))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods without dependencies, so that other plugins alone score nodes."""
        return Status.skip() if state.get(self.name) is None else None

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score nodes by the sum of costs; all 0 for a pod without dependencies."""
        if state.get(self.name) is None:
            return 0
        costs: IntArray = self._sums(state, nodes)[2]
        return costs

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give 100 to the lowest cost and 0 to the highest; without any cost 0 to all."""
        return MAX_SCORE - min_max_normalize(scores) if scores.any() else scores

    def _sums(self, state: CycleState, nodes: NodeTable) -> IntArray:
        """Return met and violated requirements and the cost of each node, shape (3, nodes)."""
        data = state.get(self.name)
        if not isinstance(data, _Dependencies) or not len(nodes):
            return np.zeros((3, len(nodes)), dtype=np.int64)
        # Score follows Filter, mostly about the same nodes.
        if data.sums is None or data.sums[0] is not nodes:
            everywhere = self.handle.nodes
            all_domains = self._all_domains()
            domains = all_domains if nodes is everywhere else Domains.of(nodes)
            sums = data.distances.sums(data.dependencies, nodes, domains, everywhere, all_domains)
            data.sums = nodes, sums
        return data.sums[1]

    def _all_domains(self) -> Domains:
        generation = self.handle.nodes.nodes_generation
        if self._domains is None or self._domains[0] != generation:
            self._domains = generation, Domains.of(self.handle.nodes)
        return self._domains[1]


def _group_of(pod: Pod) -> str:
    return pod.metadata.labels.get(APP_GROUP_LABEL, "")


def _is_sibling(pod: PodInfo, old: Any, new: Any) -> bool:
    changed: Pod = new or old
    group = pod.labels.get(APP_GROUP_LABEL)
    return group is not None and changed.metadata.labels.get(APP_GROUP_LABEL) == group
