"""What is available in the zones of all nodes, as columns (zone, node), -1 where none is listed.

A row is filled again when its node's topology is another object than before.
"""

from __future__ import annotations

import numpy as np

from proreus.addons.node_resource_topology_match.cache import TopologyCache
from proreus.addons.node_resource_topology_match.zones import SINGLE_NUMA_NODE, NodeTopology
from proreus.framework import BoolArray, IntArray, NodeTable

MOST_ZONES = 16
"""Nodes with more are looked at one by one: each would lengthen the columns of all."""
_MOST_RESOURCES = 32
NOT_LISTED = -1


class ZoneColumns:
    """The zones of all nodes of the cluster, by row.

    ``aligned``: whether the kubelet aligns by a topology that is known; ``pod_scope``: the pod as a
    whole; ``trusted``: whether the topology may be used; ``zones``: which zones there are, shape
    (zones, nodes).
    """

    def __init__(self, cache: TopologyCache) -> None:
        self._cache = cache
        self._seen: list[NodeTopology | None] = []
        self._amounts: dict[str, IntArray] = {}
        self._clear(0, 1)

    def _clear(self, size: int, most_zones: int) -> None:
        self._seen = [None] * size
        self._amounts.clear()
        self._most_zones = most_zones
        self.aligned: BoolArray = np.zeros(size, dtype=np.bool_)
        self.pod_scope: BoolArray = np.zeros(size, dtype=np.bool_)
        self.trusted: BoolArray = np.ones(size, dtype=np.bool_)
        self.zones: BoolArray = np.zeros((most_zones, size), dtype=np.bool_)

    def refresh(self, nodes: NodeTable) -> bool:
        """Bring the columns up to date; return whether they can hold the zones of all nodes."""
        if len(self._seen) != len(nodes):
            self._clear(len(nodes), self._most_zones)
        topology_of, trusts = self._cache.topology, self._cache.is_trusted
        found = [topology_of(node.name) for node in nodes]
        changed = [
            row
            for row, (one, before) in enumerate(zip(found, self._seen, strict=True))
            if one is not before
        ]
        most = max((len(one.zones) for row in changed if (one := found[row])), default=0)
        if most > MOST_ZONES:
            return False
        if most > self._most_zones:
            self._clear(len(nodes), most)
            changed = list(range(len(nodes)))
        for row in changed:
            self._fill(row, found[row])
        self.trusted = np.fromiter((trusts(node.name) for node in nodes), np.bool_, len(nodes))
        return True

    def _fill(self, row: int, topology: NodeTopology | None) -> None:
        self._seen[row] = topology
        self.aligned[row] = topology is not None and topology.policy == SINGLE_NUMA_NODE
        self.pod_scope[row] = topology is not None and topology.pod_scope
        zones = () if topology is None else topology.zones
        self.zones[:, row] = np.arange(self._most_zones) < len(zones)
        for resource, column in self._amounts.items():
            column[:, row] = NOT_LISTED
            for place, zone in enumerate(zones):
                column[place, row] = zone.available.get(resource, NOT_LISTED)

    def amounts(self, resource: str) -> IntArray:
        """Return what of a resource is available, shape (zones, nodes); not to be written to."""
        column = self._amounts.get(resource)
        if column is None:
            if len(self._amounts) >= _MOST_RESOURCES:
                self._amounts.clear()
            column = np.full(self.zones.shape, NOT_LISTED, dtype=np.int64)
            for row, topology in enumerate(self._seen):
                for place, zone in enumerate(() if topology is None else topology.zones):
                    column[place, row] = zone.available.get(resource, NOT_LISTED)
            self._amounts[resource] = column
        return column
