"""What it costs to place pods of a group on nodes, while all potential victims are away.

A group is tried on nodes without any potential victim, where all nodes with room look alike. So
those are preferred for a pod whose victims cost least, and nodes without victims before all. A unit
of which a pod has taken the place costs nothing any more: it is *condemned*, on all of its nodes.
kube-scheduler's ``PodGroupPreemptionState`` and ``CompareVictimSets``.

Worked example: node ``a`` runs two pods of priority 5, ``b`` one of priority 9, ``c`` none. The
first pod of the group goes to ``c``. If ``c`` is full then, the next one goes to ``a``, where the
highest priority is lower, and so do those after it, as long as there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from proreus.plugins.default_preemption.domain_victims import DomainVictim

NodeCost = tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
"""Less is better: pods that violate a budget; by priority from the top, the number of pods; by
unit, the most important first, its rank and the number of its pods."""

NO_VICTIMS: NodeCost = (0, (), ())


class VictimCosts:
    """The units by node, as a group's pods are placed. ``violations``: see ``reprieve_order``."""

    def __init__(self, units: Iterable[DomainVictim], violations: Mapping[int, int]) -> None:
        self._violations = violations
        self._units: dict[str, list[DomainVictim]] = {}
        """By node, the most important first."""
        self._condemned: set[int] = set()
        """The ``id`` of each."""
        for unit in sorted(units, key=lambda unit: unit.importance):
            for node_name in {placed.node_name for placed in unit.placed}:
                self._units.setdefault(node_name, []).append(unit)

    def cost(self, node_name: str) -> NodeCost:
        """Return the cost of a node's units that are not condemned yet."""
        units = self._left(node_name)
        if not units:
            return NO_VICTIMS
        return (
            sum(self._violations.get(id(unit), 0) for unit in units),
            tuple(
                (priority, sum(len(unit.placed) for unit in equal))
                for priority, equal in groupby(units, key=lambda unit: unit.priority)
            ),
            tuple((unit.rank, len(unit.placed)) for unit in units),
        )

    def condemn(self, node_name: str) -> list[DomainVictim]:
        """Condemn the units of a node, and return them."""
        units = self._left(node_name)
        self._condemned.update(map(id, units))
        return units

    def release(self, units: Iterable[DomainVictim]) -> None:
        """Take back that units were condemned."""
        self._condemned.difference_update(map(id, units))

    def _left(self, node_name: str) -> list[DomainVictim]:
        units = self._units.get(node_name, [])
        return [unit for unit in units if id(unit) not in self._condemned]
