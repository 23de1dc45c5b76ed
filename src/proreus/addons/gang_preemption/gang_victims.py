"""Finds the units of eviction: surplus pods of gangs one by one, needed ones together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from proreus.addons.coscheduling.groups import Group
from proreus.addons.gang_preemption.placed_gangs import PlacedGang, PlacedGangs
from proreus.framework import Handle, NodeInfo, PlacedPod, PodInfo
from proreus.objects import Pod
from proreus.objects.scheduling import EntityKey
from proreus.plugins.default_preemption import DomainVictim, DomainVictims

_POD, _GANG = 1, 2
"""Ranks, as those of ``DomainVictim``."""


class GangVictims(DomainVictims):
    """Finds the units of pods of gangs and of other pods.

    ``find_group``: returns the group of a pod.
    """

    def __init__(
        self, handle: Handle, gangs: PlacedGangs, find_group: Callable[[Pod], Group | None]
    ) -> None:
        super().__init__(handle.workload_forest, handle.pod_group_states, handle.nodes)
        self._table = handle.nodes
        self._gangs = gangs
        self._find_group = find_group

    def is_grouped(self, pod: PodInfo) -> bool:
        """Return whether a pod is of a gang, or of a PodGroup."""
        return self._gangs.of_pod(pod.uid) is not None or super().is_grouped(pod)

    def surplus_of(self, gang: PlacedGang) -> frozenset[str]:
        """Return the UIDs of the pods that a gang does not need."""
        group = self._find_group(gang.any_pod())
        return frozenset() if group is None else gang.surplus(group)

    def of_nodes(self, infos: Iterable[NodeInfo]) -> list[DomainVictim]:
        """Return the units that have a pod on some nodes.

        Those of a gang that may go as a whole include its surplus on any node.
        """
        units: list[DomainVictim] = []
        groups: set[EntityKey] = set()
        whole: dict[str, PlacedGang] = {}
        surplus_of = cache(self.surplus_of)
        surplus: list[tuple[PlacedGang, PlacedPod]] = []
        for info in infos:
            for uid in info.order:
                pod = PlacedPod(info.pods[uid], info.name)
                gang = self._gangs.of_pod(uid)
                if gang is None:
                    units += self.units_of_pod(pod.pod, info.name, groups)
                elif gang.leaves(uid):
                    units.append(DomainVictim(pod.pod.priority, _POD, [pod]))
                elif uid in surplus_of(gang):
                    surplus.append((gang, pod))
                else:
                    whole[gang.key] = gang
        for gang in whole.values():
            units += self._units_of(gang)
        for gang, pod in surplus:
            if gang.key not in whole:
                units.append(self._surplus_unit(gang, pod))
        return units

    def rounds(self, units: Sequence[DomainVictim]) -> Iterator[list[DomainVictim]]:
        """Yield surplus alone, then all units that break no gang, then all units."""
        surplus = [unit for unit in units if unit.is_surplus]
        unbroken = [unit for unit in units if not unit.is_group]
        known = 0
        for some in (surplus, unbroken, list(units)):
            if len(some) > known:
                known = len(some)
                yield some

    def _units_of(self, gang: PlacedGang) -> list[DomainVictim]:
        """Return the unit of the pods that a gang needs, and one for each that is surplus."""
        rows, surplus = self._table.rows, self.surplus_of(gang)
        # As the nodes have them: a dry run puts removed pods back.
        placed = {
            uid: PlacedPod(self._table[rows[name]].pods[uid], name)
            for uid, name in gang.nodes.items()
            if name in rows and uid in self._table[rows[name]].pods and not gang.leaves(uid)
        }
        dependents = tuple(
            self._surplus_unit(gang, placed[uid]) for uid in surplus if uid in placed
        )
        needed = [pod for uid, pod in placed.items() if uid not in surplus]
        priority = max(pod.pod.priority for pod in placed.values())
        groups = ((gang, gang.generation),)
        return [DomainVictim(priority, _GANG, needed, groups, dependents), *dependents]

    def _surplus_unit(self, gang: PlacedGang, pod: PlacedPod) -> DomainVictim:
        groups = ((gang, gang.generation),)
        return DomainVictim(pod.pod.priority, _POD, [pod], groups, is_surplus=True)
