"""Filter and Score of all nodes at once: what ``alignment`` and ``scoring`` do for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from proreus.addons.node_resource_topology_match.alignment import ALWAYS_ALLOCATABLE
from proreus.addons.node_resource_topology_match.demand import (
    Amounts,
    Demand,
    is_aligned_for_guaranteed_pods_only,
    is_host_level,
)
from proreus.addons.node_resource_topology_match.zone_columns import ZoneColumns
from proreus.framework import BoolArray, IntArray, NodeTable, Rows

_MOST = 2**56
_Available = Callable[[str], IntArray]
"""Returns what of a resource is available on some nodes, shape (zones, nodes)."""


def misaligned_nodes(
    demand: Demand, columns: ZoneColumns, nodes: NodeTable, rows: Rows
) -> Iterator[tuple[Rows, str]]:
    """Yield nodes of these rows that cannot align something, and what (``misaligned``)."""
    whole = columns.pod_scope[rows]
    of_pod, of_containers = rows[whole], rows[~whole]
    zones = _Zones(columns, nodes, of_pod)
    yield of_pod[~zones.suitable(demand.total, demand.guaranteed).any(axis=0)], "pod"
    zones = _Zones(columns, nodes, of_containers)
    left = np.ones(len(of_containers), dtype=np.bool_)
    for index, container in enumerate(demand.containers):
        suitable = zones.suitable(container.amounts, demand.guaranteed)
        fits = suitable.any(axis=0)
        yield of_containers[left & ~fits], container.kind
        left &= fits
        # Init containers end before the next one starts.
        if index >= demand.inits:
            zones.take(container.amounts, suitable.argmax(axis=0))


class _Zones:
    """The zones of some nodes, from which containers may take; the last zone stands for none."""

    def __init__(self, columns: ZoneColumns, nodes: NodeTable, rows: Rows) -> None:
        self._columns, self._nodes, self._rows = columns, nodes, rows
        self._amounts: dict[str, IntArray] = {}

    def _available(self, resource: str) -> IntArray:
        if resource not in self._amounts:
            self._amounts[resource] = self._columns.amounts(resource)[:, self._rows]
        return self._amounts[resource]

    def suitable(self, amounts: Amounts, guaranteed: bool) -> BoolArray:
        """Return which zones can have all amounts, shape (zones + 1, nodes)."""
        zones = self._columns.zones[:, self._rows]
        suitable, constrained = zones.copy(), np.zeros(len(self._rows), dtype=np.bool_)
        possible = np.ones(len(self._rows), dtype=np.bool_)
        for resource, amount in amounts.items():
            if not amount:
                continue
            if resource not in ALWAYS_ALLOCATABLE:
                possible &= self._allocatable(resource)
            available = self._available(resource)
            listed = available >= 0
            applies = listed.any(axis=0) | (not is_host_level(resource))
            constrained |= applies
            free = not guaranteed and is_aligned_for_guaranteed_pods_only(resource)
            can = listed if free else listed & (available >= amount)
            suitable &= can | ~applies
        none_needed = ~constrained & ~suitable.any(axis=0)
        return np.vstack((suitable, none_needed)) & possible

    def _allocatable(self, resource: str) -> BoolArray:
        nodes = self._nodes
        found = (resource in nodes[row].allocatable for row in self._rows.tolist())
        return np.fromiter(found, np.bool_, len(self._rows))

    def take(self, amounts: Amounts, places: Rows) -> None:
        """Take amounts from a zone of each node."""
        nodes = np.flatnonzero(places < len(self._columns.zones))
        for resource, amount in amounts.items():
            available = self._available(resource)
            of_zone = available[places[nodes], nodes]
            left = np.where(of_zone < 0, of_zone, np.maximum(of_zone - amount, 0))
            available[places[nodes], nodes] = left


def can_score(demand: Demand, columns: ZoneColumns) -> bool:
    """Return whether no amount is so large that a percentage of it would not be an int64."""
    return all(columns.amounts(name).max(initial=0) < _MOST for name in demand.total)


def scores_by_zones(
    score: Callable[[int, IntArray], IntArray],
    demand: Demand,
    columns: ZoneColumns,
    rows: Rows,
    weights: Mapping[str, int],
) -> IntArray:
    """Return ``score_by_zones`` of these rows; ``score``: of an amount, by what there is of it."""

    def worst(amounts: Amounts) -> IntArray:
        zones = _mean(score, amounts, lambda name: columns.amounts(name)[:, rows], weights)
        if zones is None:
            return np.zeros(len(rows), dtype=np.int64)
        # The worst zone that has a score at all.
        least = np.where(zones > 0, zones, np.iinfo(np.int64).max).min(axis=0)
        return np.where((zones > 0).any(axis=0), least, 0)

    if not demand.containers:
        containers = np.zeros(len(rows), dtype=np.int64)
    else:
        scores = [worst(one.amounts) for one in demand.containers]
        containers = np.sum(scores, axis=0) // len(scores)
    return np.where(columns.pod_scope[rows], worst(demand.total), containers)


def _mean(
    score: Callable[[int, IntArray], IntArray],
    amounts: Amounts,
    available: _Available,
    weights: Mapping[str, int],
) -> IntArray | None:
    total: IntArray | None = None
    weight_sum = 0
    for name, amount in amounts.items():
        most, weight = available(name), weights.get(name, 1)
        weight_sum += weight
        fits = (most > 0) & (amount <= most)
        more = np.where(fits, score(amount, np.maximum(most, 1)) * weight, 0)
        total = more if total is None else total + more
    return None if total is None or not weight_sum else total // weight_sum


SCORES: Mapping[str, Callable[[int, IntArray], IntArray]] = {
    "LeastAllocated": lambda amount, most: (most - amount) * 100 // most,
    "MostAllocated": lambda amount, most: amount * 100 // most,
}
