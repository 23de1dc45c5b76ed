"""The plugin: placements of a group, the tightest domain first, and neighbours for its pods.

Worked example: the levels are block and rack, and 60 pods prefer one block. A rack that has room
for 60 is tried first, of several the one with the least room; then the blocks, within which racks
are filled one after another; then all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from proreus.addons.coscheduling.groups import (
    VOLCANO,
    VOLCANO_GANGS,
    Gang,
    group_key,
    group_key_of,
)
from proreus.addons.group_topology.domains import (
    GroupRoom,
    best_fit,
    least_free,
    pods_by_node,
    slices_of,
)
from proreus.addons.group_topology.hyper_nodes import HYPER_NODES, HyperNodes, TierRequest
from proreus.framework import (
    MAX_SCORE,
    POD_GROUP_SCHEDULING_CYCLE,
    ClusterEvent,
    CodeArray,
    CycleState,
    FeatureGates,
    Handle,
    IntArray,
    NodeTable,
    OrderedPlacements,
    Placement,
    PlacementGeneratePlugin,
    PluginArgs,
    PodGroupInfo,
    PodGroupSchedulingCycle,
    PodInfo,
    PreFilterPlugin,
    PreScorePlugin,
    Rows,
    ScorePlugin,
    Status,
    events,
    field_errors,
    is_provided,
)
from proreus.framework.pod_group import reasons_of_placements
from proreus.objects import Pod
from proreus.objects.scheduling import pod_group_key

_REQUIRED = (
    "kueue.x-k8s.io/podset-required-topology",
    "kai.scheduler/topology-required-placement",
)
_PREFERRED = (
    "kueue.x-k8s.io/podset-preferred-topology",
    "kai.scheduler/topology-preferred-placement",
)
_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"


@dataclass(frozen=True)
class TopologyRequest:
    """The topology that a group asks for, by the annotations of its first pod.

    ``key``: the label of the domain, "" for none. ``required``: whether one has to hold all.

    =====================================================  =========================================
    annotation of the pods                                 meaning
    =====================================================  =========================================
    ``kueue.x-k8s.io/podset-required-topology``            all pods in one domain of this label
    ``kueue.x-k8s.io/podset-preferred-topology``           in one domain of it if there is one
    ``kueue.x-k8s.io/podset-unconstrained-topology``       anywhere, in as few domains as possible
    ``kai.scheduler/topology-required-placement``          as Kueue's
    ``kai.scheduler/topology-preferred-placement``         as Kueue's
    =====================================================  =========================================
    """

    key: str = ""
    required: bool = False


def topology_request(pod: Pod) -> TopologyRequest | None:
    """Return the topology that a pod's group asks for, None if it asks for none."""
    annotations = pod.metadata.annotations
    for names, required in ((_REQUIRED, True), (_PREFERRED, False)):
        for name in names:
            if key := annotations.get(name):
                return TopologyRequest(key, required)
    return TopologyRequest() if annotations.get(_UNCONSTRAINED) == "true" else None


_POSITIONS = "GroupTopology/positions"
_ABSENT = -1
_ELSEWHERE = "pods of the group have nodes elsewhere"

Fill = Callable[[Sequence[int], int], list[int]]
"""Returns the indexes of the domains to fill, by their room, with so many pods."""


class GroupTopologyArgs(PluginArgs):
    """``levels``: labels of nodes, the widest domain first. ``policy``: the choice among domains.

    ``BestFit`` takes the one with the least room that is enough, ``Balance`` the one with the most.
    ``max_placements``: how many domains are tried at most where none is required, all nodes
    included.
    """

    levels: tuple[str, ...] = Field(("topology.kubernetes.io/zone",), min_length=1)
    policy: Literal["BestFit", "Balance"] = "BestFit"
    max_placements: int = Field(8, ge=1)

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that each level is there once."""
        where = field_errors.child(path, "levels")
        if len(set(self.levels)) != len(self.levels):
            yield field_errors.invalid(where, list(self.levels), "each label once")


class GroupTopology(PlacementGeneratePlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin):
    """Places a group in the tightest domain that holds it."""

    Args = GroupTopologyArgs
    args: GroupTopologyArgs

    def __init__(self, args: GroupTopologyArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._hyper_nodes = HyperNodes(handle)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register the events that make room in a domain or change its nodes.

        The plugins that rejected pods of a group register all others that may help it.
        """
        changed = events.UPDATE_NODE_ALLOCATABLE | events.UPDATE_NODE_LABEL
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE | events.UPDATE_POD_SCALE_DOWN),
            ClusterEvent(events.ASSIGNED_POD, events.ADD, hint=_is_held_or_sibling),
            ClusterEvent(events.NODE, events.ADD | changed | events.UPDATE_NODE_TAINT),
            ClusterEvent(HYPER_NODES.id, events.ALL),
            ClusterEvent(VOLCANO_GANGS.id, events.UPDATE, hint=_is_of_group),
        )

    # ---- placements ----------------------------------------------------------------------------

    def generate_placements(
        self, state: CycleState, group: PodGroupInfo, nodes: NodeTable
    ) -> Sequence[Placement] | Status:
        """Return the domains that hold the group, the tightest first."""
        pods = group.unscheduled_pods
        request = topology_request(pods[0].pod) if pods else None
        tier = self._hyper_nodes.request_of(pods[0].pod) if pods and request is None else None
        if tier is not None:
            return self._in_hyper_nodes(tier, group, nodes)
        if request is None:
            return (Placement("all-nodes", None),)
        room = pods_by_node(nodes, pods, self.handle.provided_for)
        needed, own = self._needed(group, nodes)
        if self.args.policy == "BestFit":
            whole = self.handle.nodes
            # As few domains as possible for groups that want neighbours, scraps for the others.
            fill = best_fit if request.key else least_free
            room_of_all = (
                room if nodes is whole else pods_by_node(whole, pods, self.handle.provided_for)
            )
            state.write(_POSITIONS, self._positions(whole, room_of_all, needed, fill))
        group_room = GroupRoom(nodes, pods, needed, self.handle.provided_for)
        placements = list(self._domains(request, nodes, group_room, own))
        text = f"no {request.key} has room for {needed} pods"
        return self._ordered(placements, request.required, text)

    def _ordered(
        self, placements: list[Placement], required: bool, text: str
    ) -> Sequence[Placement] | Status:
        """Return the placements, and all nodes unless one is required; ``text``: if none holds."""
        if not required:
            placements = [one for one in placements if not one.lacking]
            placements = placements[: self.args.max_placements - 1]
            placements.append(Placement("all-nodes", None))
        if any(not one.lacking for one in placements):
            return OrderedPlacements(placements)
        return Status.unschedulable(text, *reasons_of_placements(placements))

    def _in_hyper_nodes(
        self, request: TierRequest, group: PodGroupInfo, nodes: NodeTable
    ) -> Sequence[Placement] | Status:
        """Return the HyperNodes that hold the group, the lowest tier first."""
        domains = self._hyper_nodes.domains()
        if domains is None:
            return Status.error("the members of the HyperNodes are not known yet")
        needed, own = self._needed(group, nodes)
        whole = self.handle.nodes
        held = {whole[row].name for row in own}
        known, rows_of = [], []
        for domain in domains:
            allowed = request.highest_tier is None or domain.tier <= request.highest_tier
            # Within the placement of a group above, the table is a part of the nodes.
            names = domain.members if nodes is whole else domain.members & nodes.rows.keys()
            # A preference goes further up.
            if names and (allowed or not request.required):
                known.append((domain, names))
                rows_of.append(domain.rows if nodes is whole else nodes.rows_of(names))
        room = GroupRoom(nodes, group.unscheduled_pods, needed, self.handle.provided_for)
        balance = self.args.policy == "Balance"
        found = []
        for (domain, names), (count, lacking) in zip(known, room.of_domains(rows_of), strict=True):
            elsewhere = "" if held <= domain.members else _ELSEWHERE
            order = (domain.tier, -count if balance else count, domain.name)
            placement = Placement(f"hypernode={domain.name}", names, elsewhere or lacking)
            found.append((order, placement))
        found.sort(key=lambda one: one[0])
        text = f"no HyperNode that is allowed has room for {needed} pods"
        return self._ordered([placement for _, placement in found], request.required, text)

    def _needed(self, group: PodGroupInfo, nodes: NodeTable) -> tuple[int, set[int]]:
        """Return the number of pods that the group lacks, and the rows of its placed pods."""
        states = [self.handle.pod_group_states.get(leaf.key) for leaf in group.leaves]
        placed = [one for state in states if state is not None for one in state.scheduled()]
        rows = self.handle.nodes.rows
        own = {rows[one.node_name] for one in placed if one.node_name in rows}
        pods = len(group.unscheduled_pods)
        minimum = pods if group.group is None else group.group.min_count - len(placed)
        return max(1, min(minimum, pods)), own

    def _domains(
        self, request: TopologyRequest, nodes: NodeTable, room: GroupRoom, own: set[int]
    ) -> Iterator[Placement]:
        for key in self._levels_of(request):
            codes = nodes.label(key)
            values = nodes.label_values(key).values
            rows_of = _rows_by_code(codes)
            held = {int(self.handle.nodes.label(key)[row]) for row in own}
            domains = list(zip(rows_of, room.of_domains(list(rows_of.values())), strict=True))
            balance = self.args.policy == "Balance"
            domains.sort(key=lambda one: (-one[1][0] if balance else one[1][0], values[one[0]]))
            for code, (_, lacking) in domains:
                names = frozenset(nodes[row].name for row in rows_of[code].tolist())
                # Members that have a node already are the group's domain, if they are in one.
                elsewhere = _ELSEWHERE if held and held != {code} else ""
                yield Placement(f"{key}={values[code]}", names, elsewhere or lacking)

    def _levels_of(self, request: TopologyRequest) -> list[str]:
        """Return the labels of the domains to try: the tightest first, up to the requested one.

        A preference goes further up.
        """
        levels = list(self.args.levels)
        if not request.key:
            return []
        if request.key not in levels:
            return [request.key]
        widest = levels.index(request.key) if request.required else 0
        return levels[widest:][::-1]

    # ---- slices --------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Restrict a pod of a slice to the domain of its slice, or to domains with room for one."""
        slices = slices_of(pod.pod)
        if slices is None or state.get(POD_GROUP_SCHEDULING_CYCLE) is None:
            return Status.skip()
        group = self.handle.pod_group_states.get(pod_group_key(pod.pod))
        placed = () if group is None else group.scheduled()
        names = slices.node_names(pod, placed, nodes, self.handle.provided_for)
        text = f"no {slices.key} has room for a slice of {slices.size} pods"
        return names or Status.unresolvable(text)

    # ---- neighbours ----------------------------------------------------------------------------

    def _positions(self, nodes: NodeTable, room: IntArray, needed: int, fill: Fill) -> IntArray:
        """Return the order of filling tightest domains, by code; the last for no domain."""
        parents = np.zeros(len(nodes), dtype=np.int64)
        order = np.zeros(len(nodes), dtype=np.int64)
        for key in self.args.levels:
            codes = nodes.label(key).astype(np.int64)
            places = _places(parents, codes, room, needed, fill)
            order = order * len(places) + places[codes]
            parents = codes
        present = parents != _ABSENT
        _, dense = np.unique(order[present], return_inverse=True)
        count = int(parents.max(initial=_ABSENT)) + 1
        positions = np.full(count + 1, MAX_SCORE, dtype=np.int64)
        positions[parents[present]] = dense.reshape(-1)
        return positions

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods without a group, so that other plugins alone score nodes."""
        return None if self._positions_in(state) is not None else Status.skip()

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score nodes by how early their tightest domain is filled; 0 for pods without a group."""
        positions = self._positions_in(state)
        if positions is None:
            return 0
        scores: IntArray = np.maximum(MAX_SCORE - positions[nodes.label(self.args.levels[-1])], 0)
        return scores

    def _positions_in(self, state: CycleState) -> IntArray | None:
        cycle: PodGroupSchedulingCycle | None = state.get(POD_GROUP_SCHEDULING_CYCLE)
        positions: IntArray | None = None if cycle is None else cycle.state.get(_POSITIONS)
        return positions


def _is_held_or_sibling(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
    """Return whether a pod that got a node is room held for others, or of the same group."""
    return new is not None and (is_provided(new) or group_key(new) == group_key(pod.pod))


def _is_of_group(pod: PodInfo, old: Gang | None, new: Gang | None) -> bool:
    return new is not None and group_key_of(VOLCANO, new.metadata) == group_key(pod.pod)


def _rows_by_code(codes: CodeArray) -> dict[int, Rows]:
    """Return the rows that have a label, by the code of its value."""
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] != _ABSENT]
    if not len(order):
        return {}
    found, starts = np.unique(codes[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True))


def _places(
    parents: IntArray, codes: IntArray, room: IntArray, needed: int, fill: Fill
) -> IntArray:
    """Return the place of each domain in its parent, by code; the last for no domain."""
    count = int(codes.max(initial=_ABSENT)) + 1
    places = np.full(count + 1, count, dtype=np.int64)
    present = codes != _ABSENT
    capacities = np.bincount(codes[present], weights=room[present], minlength=count)
    domains: dict[int, list[int]] = {}
    pairs = np.unique(np.stack((parents[present], codes[present])), axis=1)
    for parent, code in pairs.T.tolist():
        domains.setdefault(parent, []).append(code)
    for children in domains.values():
        sizes = [int(capacities[code]) for code in children]
        first = fill(sizes, needed)
        rest = [index for index in range(len(children)) if index not in set(first)]
        rest.sort(key=lambda index: -sizes[index])
        for place, index in enumerate((*first, *rest)):
            places[children[index]] = place
    return places
