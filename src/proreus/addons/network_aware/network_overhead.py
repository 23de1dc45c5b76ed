"""NetworkOverhead: nodes near to the pods that a pod depends on.

Worked example: a pod depends on two placed pods. One runs in the node's own zone (cost 1), the
other in a zone at cost 5, where 3 is allowed: one requirement is met and one is not, so that the
node passes, with cost 6. The node with the lowest cost scores 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from proreus.addons.network_aware.costs import NodeCosts
from proreus.addons.network_aware.objects import (
    APP_GROUP_LABEL,
    APP_GROUPS,
    NETWORK_TOPOLOGIES,
    WORKLOAD_LABEL,
    NetworkTopology,
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
    ReservePlugin,
    ScorePlugin,
    Status,
    Verdicts,
    events,
)
from proreus.objects import LABEL_REGION, LABEL_ZONE, PODS, Pod


class NetworkOverheadArgs(PluginArgs):
    """Where to look for AppGroups and the NetworkTopology, and which of its weights count."""

    namespaces: tuple[str, ...] = ("default",)
    weights_name: str = "UserDefined"
    network_topology_name: str = "nt-default"


class _Placed(NamedTuple):
    """Placed pods of one kind: where they run, and how far away that may be."""

    node_name: str
    max_cost: int


class _Sums(NamedTuple):
    satisfied: int
    violated: int
    cost: int

    def plus(self, other: _Sums, times: int) -> _Sums:
        return _Sums(*(mine + times * more for mine, more in zip(self, other, strict=True)))


_SAME_HOST = _Sums(1, 0, 0)


class _Dependencies:
    """What a pod depends on. ``placed``: how many pods, by node and maximum."""

    def __init__(self, placed: Counter[_Placed], topology: NetworkTopology, weights: str) -> None:
        self.placed = placed
        self._topology, self._weights = topology, weights
        self._costs: dict[tuple[str, str], NodeCosts] = {}

    def costs_of(self, region: str, zone: str) -> NodeCosts:
        if (region, zone) not in self._costs:
            self._costs[region, zone] = NodeCosts(self._topology, self._weights, region, zone)
        return self._costs[region, zone]


class NetworkOverhead(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin):
    """Reject nodes that are too far from what a pod depends on; prefer near ones."""

    Args = NetworkOverheadArgs
    args: NetworkOverheadArgs

    def __init__(self, args: NetworkOverheadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._groups = handle.store(APP_GROUPS)
        self._topologies = handle.store(NETWORK_TOPOLOGIES)
        self._placed: dict[str, dict[str, tuple[str, str]]] = {}
        """By AppGroup and UID: workload and node of each placed pod."""
        handle.on_change(PODS, self._pod_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register what changes distances: groups, topologies, placed members, nodes."""
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
        elif new.spec.node_name:
            self._note(new, new.spec.node_name)

    def _note(self, pod: Pod, node_name: str) -> None:
        labels = pod.metadata.labels
        if group := labels.get(APP_GROUP_LABEL):
            workload = labels.get(WORKLOAD_LABEL, "")
            self._placed.setdefault(group, {})[pod.metadata.uid] = workload, node_name

    def _forget(self, pod: Pod) -> None:
        group = pod.metadata.labels.get(APP_GROUP_LABEL, "")
        pods = self._placed.get(group)
        if pods is not None:
            pods.pop(pod.metadata.uid, None)
            if not pods:
                del self._placed[group]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod as placed."""
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
        members = self._placed.get(name or "")
        if not name or not members:
            return None
        group = first_named(self._groups, self.args.namespaces, name)
        topology_name = self.args.network_topology_name
        topology = first_named(self._topologies, self.args.namespaces, topology_name)
        if group is None or topology is None:
            return None
        dependencies = group.dependencies(pod.labels.get(WORKLOAD_LABEL, ""))
        placed = Counter(
            _Placed(node_name, dependency.max_network_cost)
            for dependency in dependencies
            for workload, node_name in members.values()
            if workload == dependency.workload.selector
        )
        if not placed:
            return None
        return _Dependencies(placed, topology, self.args.weights_name)

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

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        """Score nodes by the sum of costs."""
        costs: IntArray = self._sums(state, nodes)[2]
        return costs

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give 100 to the lowest cost and 0 to the highest; without any cost 0 to all."""
        if not scores.size:
            return scores
        least, most = int(scores.min()), int(scores.max())
        if least == most:
            return np.full_like(scores, MAX_SCORE if most else 0)
        normalized: IntArray = MAX_SCORE - MAX_SCORE * (scores - least) // (most - least)
        return normalized

    def _sums(self, state: CycleState, nodes: NodeTable) -> IntArray:
        """Return met and violated requirements and the cost of each node, shape (3, nodes)."""
        found = np.zeros((3, len(nodes)), dtype=np.int64)
        data = state.get(self.name)
        if not isinstance(data, _Dependencies) or not len(nodes):
            return found
        # Nodes of one region and zone differ only in which of the pods run on them.
        regions, zones = nodes.label(LABEL_REGION), nodes.label(LABEL_ZONE)
        both = np.stack((regions, zones), axis=1)
        pairs, domains = np.unique(both, axis=0, return_inverse=True)
        domains = domains.reshape(-1)
        everywhere = self.handle.nodes
        for number, (region, zone) in enumerate(pairs.tolist()):
            costs = data.costs_of(
                nodes.label_values(LABEL_REGION).values[region] if region >= 0 else "",
                nodes.label_values(LABEL_ZONE).values[zone] if zone >= 0 else "",
            )
            sums = _Sums(0, 0, 0)
            here: dict[str, _Sums] = {}
            for placed, times in data.placed.items():
                distance = _distance(costs, everywhere, placed)
                if distance is None:
                    continue
                sums = sums.plus(distance, times)
                row = nodes.rows.get(placed.node_name)
                if row is not None and domains[row] == number:
                    correction = _SAME_HOST.plus(distance, -1)
                    own = here.get(placed.node_name, _Sums(0, 0, 0))
                    here[placed.node_name] = own.plus(correction, times)
            found[:, domains == number] = np.array(sums)[:, None]
            for name, correction in here.items():
                found[:, nodes.rows[name]] += np.array(correction)
        return found


def _distance(costs: NodeCosts, nodes: NodeTable, placed: _Placed) -> _Sums | None:
    """Return what a placed pod on another node adds; None if its node is not known."""
    row = nodes.rows.get(placed.node_name)
    if row is None:
        return None
    labels = nodes[row].labels
    compared, cost = costs.to(labels.get(LABEL_REGION, ""), labels.get(LABEL_ZONE, ""))
    if compared is None:
        return _Sums(0, 0, cost)
    met = compared <= placed.max_cost
    return _Sums(int(met), int(not met), cost)


def _is_sibling(pod: PodInfo, old: Any, new: Any) -> bool:
    changed: Pod = new or old
    group = pod.labels.get(APP_GROUP_LABEL)
    return group is not None and changed.metadata.labels.get(APP_GROUP_LABEL) == group
