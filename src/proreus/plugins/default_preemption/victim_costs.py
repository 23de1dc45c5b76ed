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

import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray
from proreus.plugins.default_preemption.domain_victims import DomainVictim

NodeCost = tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
"""Less is better: pods that violate a budget; by priority from the top, the number of pods; by
unit, the most important first, its rank and the number of its pods."""


class VictimCosts:
    """The units by node, as a group's pods are placed. ``violations``: see ``reprieve_order``."""

    # Invariant: unless _changed, _ranks is what the costs in _costs make of it.

    def __init__(
        self, nodes: NodeTable, units: Iterable[DomainVictim], violations: Mapping[int, int]
    ) -> None:
        self._nodes = nodes
        self._violations = violations
        self._units: dict[int, list[DomainVictim]] = {}
        """By row, the most important first."""
        self._condemned: set[int] = set()
        """The ``id`` of each."""
        for unit in sorted(units, key=lambda unit: unit.importance):
            for row in self._rows_of(unit):
                self._units.setdefault(row, []).append(unit)
        self._costs = {row: self._cost(row) for row in self._units}
        """Of the rows where units are left."""
        self._ranks: IntArray = np.zeros(nodes.size, dtype=np.int64)
        self._changed = True

    @property
    def ranks(self) -> IntArray:
        """The rank of each row of the table, 0 where no victim is left; less is better."""
        if self._changed:
            by_cost = {cost: rank for rank, cost in enumerate(sorted({*self._costs.values()}), 1)}
            self._ranks[:] = 0
            for row, cost in self._costs.items():
                self._ranks[row] = by_cost[cost]
            self._changed = False
        return self._ranks

    def condemn(self, node_name: str) -> list[DomainVictim]:
        """Condemn the units that are left on a node, and return them."""
        row = self._nodes.rows[node_name]
        units = self._left(row)
        self._condemned.update(map(id, units))
        self._update(units)
        return units

    def release(self, units: Iterable[DomainVictim]) -> None:
        """Take back that units were condemned."""
        units = list(units)
        self._condemned.difference_update(map(id, units))
        self._update(units)

    def _update(self, units: Iterable[DomainVictim]) -> None:
        for row in {row for unit in units for row in self._rows_of(unit)}:
            self._costs.pop(row, None)
            if self._left(row):
                self._costs[row] = self._cost(row)
                self._changed = True
            else:
                # As for most: its pods are evicted one by one, and no other node is concerned.
                self._ranks[row] = 0

    def _cost(self, row: int) -> NodeCost:
        units = self._left(row)
        return (
            sum(self._violations.get(id(unit), 0) for unit in units),
            tuple(
                (priority, sum(len(unit.placed) for unit in equal))
                for priority, equal in groupby(units, key=lambda unit: unit.priority)
            ),
            tuple((unit.rank, len(unit.placed)) for unit in units),
        )

    def _left(self, row: int) -> list[DomainVictim]:
        return [unit for unit in self._units.get(row, ()) if id(unit) not in self._condemned]

    def _rows_of(self, unit: DomainVictim) -> set[int]:
        return {self._nodes.rows[placed.node_name] for placed in unit.placed}
