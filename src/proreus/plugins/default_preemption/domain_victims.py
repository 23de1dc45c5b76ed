"""Potential victims where pod groups count: pods that are only evicted together are one unit.

A pod whose PodGroup, or any CompositePodGroup above it, has disruption mode ``all`` is a unit with
all scheduled pods of the topmost such group, on whatever nodes; any other pod is one by itself. The
priority of a unit is that of its pods, which all pods of a tree have in common. Up to Kubernetes
1.37 it is that of the root group, and a pod of a group ranks as a group even if it is a unit by
itself. kube-scheduler's ``DomainVictim``.

Worked example: group ``g`` (mode all, priority 5) has pods on nodes ``a`` and ``b``. Preemption on
``a`` by a pod of priority 10 may evict ``g``, which takes its pod on ``b`` as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from msgspec import Struct

from proreus.base.errors import ProreusError
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import PlacedPod, PodGroupInfo, PodGroupState, PodGroupStates
from proreus.framework.pod_info import PodInfo
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.scheduling import EntityKey, PodGroup, pod_group_entity_key, pod_group_key

POD, POD_GROUP, COMPOSITE_POD_GROUP = 1, 2, 3
"""Ranks of units: of two with the same priority, the larger one is more important."""
_KINDS = {POD: "pod", POD_GROUP: "podgroup", COMPOSITE_POD_GROUP: "compositepodgroup"}


class NodeNotFound(ProreusError):
    """A pod of a unit is on a node that the scheduler does not know, ``node_name``."""

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        super().__init__(
            f'failed to get node info for node "{node_name}" from snapshot: nodeinfo not found for '
            f'node name "{node_name}"'
        )


class HasGeneration(Protocol):
    """A group."""

    @property
    def generation(self) -> int:
        """A number that grows with every change of the pods that have a node."""
        ...


GroupGenerations = tuple[tuple[HasGeneration, int], ...]
"""Groups, each with its generation at a certain time."""


class DomainVictim(Struct):
    """A unit of eviction: ``placed`` are its pods and their nodes, ``groups`` their PodGroups.

    ``priority``: that of its pods, or of its topmost group; ``rank``: 1 for a pod, 2 for a PodGroup
    (or a pod of one), 3 for a CompositePodGroup.
    ``dependents``: units that are of no use without it, and are evicted once it is. ``is_surplus``:
    its group does not need it, so that it is less important than all that are not surplus.
    ``tie``: the smaller is the more important of units that are equal otherwise; "" up to
    Kubernetes 1.37, where these stay in their order.
    """

    priority: int
    rank: int
    placed: list[PlacedPod]
    groups: GroupGenerations = ()
    dependents: tuple[DomainVictim, ...] = ()
    is_surplus: bool = False
    tie: str = ""

    @property
    def pods(self) -> list[PodInfo]:
        """Its pods."""
        return [pod for pod, _ in self.placed]

    @property
    def is_single_pod(self) -> bool:
        """Whether it is a pod by itself, evicted without others of its group."""
        return not self.groups

    @property
    def is_group(self) -> bool:
        """Whether pods of a group are evicted with it."""
        return self.rank > POD

    @property
    def kind(self) -> str:
        """What is evicted, as metrics name it: ``pod``, ``podgroup`` or ``compositepodgroup``."""
        return _KINDS[self.rank]

    @property
    def importance(self) -> tuple[float | str, ...]:
        """A key that sorts the most important first (kube-scheduler's ``MoreImportantVictim``)."""
        started = min(pod.importance[1] for pod, _ in self.placed)
        structure = self.is_surplus, -self.priority, -self.rank, -len(self.placed)
        return *structure, started, self.tie


def with_dependents(victims: list[DomainVictim]) -> list[DomainVictim]:
    """Return victims, and the units that are evicted with them, the most important first."""
    found = {id(unit): unit for unit in victims}
    for unit in victims:
        found |= {id(one): one for one in unit.dependents}
    return sorted(found.values(), key=lambda unit: unit.importance)


def check_nodes(units: Iterable[DomainVictim], nodes: NodeTable) -> None:
    """Raise ``NodeNotFound`` unless all pods of some units are on known nodes."""
    for unit in units:
        for placed in unit.placed:
            if placed.node_name not in nodes.rows:
                raise NodeNotFound(placed.node_name)


class DomainVictims:
    """Finds the units that pods belong to. ``nodes``: all nodes.

    ``by_root``: pods count by their root group, as up to Kubernetes 1.37. Since 1.38 the UIDs of
    first pods order units that are equal otherwise.
    """

    def __init__(
        self,
        forest: WorkloadForest,
        states: PodGroupStates,
        nodes: NodeTable,
        *,
        by_root: bool = True,
    ) -> None:
        self._by_root = by_root
        self._forest = forest
        self._states = states
        self._nodes = nodes

    def priority_of(self, pod: PodInfo) -> int:
        """Return the priority of a pod: its own, or that of its topmost known group."""
        key = pod_group_entity_key(pod.pod) if self._by_root else None
        root = self._forest.topmost_known(key)
        return pod.priority if root is None else root.priority

    def is_grouped(self, pod: PodInfo) -> bool:
        """Return whether a pod may be evicted with others, or otherwise than by its priority."""
        return pod.pod.spec.scheduling_group is not None

    def of_nodes(self, infos: Iterable[NodeInfo]) -> list[DomainVictim]:
        """Return the units that have a pod on some nodes."""
        seen: set[EntityKey] = set()
        return [
            unit
            for info in infos
            for uid in info.order
            for unit in self.units_of_pod(info.pods[uid], info.name, seen)
        ]

    def rounds(self, units: Sequence[DomainVictim]) -> Iterator[list[DomainVictim]]:
        """Yield the units that a group may evict: all at once.

        Override it for units that are to be left alone where the others are enough.
        """
        if units:
            yield list(units)

    def evictable(self, units: Iterable[DomainVictim], group: PodGroupInfo) -> list[DomainVictim]:
        """Return the units that a group may evict: those of a lower priority."""
        assert group.group is not None
        priority = group.group.priority
        return [unit for unit in units if unit.priority < priority]

    def removed(self, units: Iterable[DomainVictim]) -> AbstractContextManager[None]:
        """Count units as gone in the context, in which a group is scheduled and some are put back.

        Override it for what is counted of pods elsewhere than on nodes.
        """
        return nullcontext()

    def may_be_put_back(self, unit: DomainVictim) -> bool:
        """Return whether a unit may stay, besides that the group still fits; then count it."""
        return True

    def not_put_back(self, unit: DomainVictim) -> None:
        """Count a unit as gone, which might have stayed but for the group."""

    def units_of_pod(
        self, pod: PodInfo, node_name: str, seen: set[EntityKey]
    ) -> Iterator[DomainVictim]:
        """Yield the unit of a pod unless its group is in ``seen``, and add the group there."""
        whole = self._disrupted_with(pod)
        if whole is None:
            yield self._single(pod, node_name)
        elif whole.key not in seen:
            seen.add(whole.key)
            yield self._group(whole, pod, node_name)

    def _disrupted_with(self, pod: PodInfo) -> Group | None:
        """Return the topmost group of a pod that may only be evicted as a whole."""
        key = pod_group_entity_key(pod.pod)
        topmost: Group | None = None
        for group in () if key is None else self._forest.ancestors_of(key):
            topmost = group if group.disrupted_as_whole else topmost
        return topmost

    def _single(self, pod: PodInfo, node_name: str) -> DomainVictim:
        rank = POD_GROUP if self._by_root and pod_group_key(pod.pod) else POD
        return self._unit(pod, rank, [PlacedPod(pod, node_name)])

    def _group(self, group: Group, pod: PodInfo, node_name: str) -> DomainVictim:
        states = list(self._states_of(group.key))
        placed = [self._as_counted(one) for state in states for one in state.scheduled()]
        if not placed:
            return self._single(pod, node_name)
        rank = POD_GROUP if isinstance(group, PodGroup) else COMPOSITE_POD_GROUP
        generations = tuple((state, state.generation) for state in states)
        return self._unit(pod, rank, placed, generations)

    def _unit(
        self, pod: PodInfo, rank: int, placed: list[PlacedPod], groups: GroupGenerations = ()
    ) -> DomainVictim:
        tie = "" if self._by_root else placed[0].pod.uid
        return DomainVictim(self.priority_of(pod), rank, placed, groups, tie=tie)

    def _as_counted(self, placed: PlacedPod) -> PlacedPod:
        """Return a pod of a group as its node has it."""
        row = self._nodes.rows.get(placed.node_name)
        if row is None:
            return placed
        # A dry run puts it back: a node counts an assumed pod with devices otherwise than listed.
        return PlacedPod(self._nodes[row].pods.get(placed.pod.uid, placed.pod), placed.node_name)

    def _states_of(self, key: EntityKey) -> Iterator[PodGroupState]:
        for leaf in self._forest.leaves_of(key):
            state = self._states.get(leaf.namespaced_name)
            if state is not None:
                yield state
