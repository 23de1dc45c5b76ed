"""The order in which kube-scheduler looks at nodes: round robin over zones.

Only the search of per-node plugins needs it, which stops once enough nodes are found: neighbours
in this order lie in different zones.
"""

from __future__ import annotations

import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import Rows
from proreus.objects.node import (
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    Node,
)


class NodeTree:
    """Node names by zone; zones in order of first appearance, names in order of insertion."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._names: list[str] = []
        self._names_stale = False
        self._order: Rows | None = None

    def add(self, node: Node) -> None:
        """Insert a node at the end of its zone."""
        self._insert(node)
        self._forget_order()

    def update(self, old: Node, new: Node) -> None:
        """Move a node whose zone label changed; the order stays until nodes come or go."""
        if zone_of(old) != zone_of(new):
            self._delete(old)
            self._insert(new)

    def remove(self, node: Node) -> None:
        """Take a node away; a zone that is empty goes with it."""
        self._delete(node)
        self._forget_order()

    def order(self, table: NodeTable) -> Rows:
        """Return the rows of all nodes of a table in this order.

        It is that of the last call if the names are the same: kube-scheduler orders anew when it
        decides and finds that nodes came or went.
        """
        if self._names_stale:
            names = self._round_robin()
            if set(names) != set(self._names):
                self._names = names
            self._names_stale = False
        if self._order is None:
            self._order = np.array([table.rows[name] for name in self._names], dtype=np.intp)
        return self._order

    def validate(self, table: NodeTable) -> None:
        """Raise ``AssertionError`` where the tree does not hold exactly the table's nodes."""
        names = [name for zone in self._zones.values() for name in zone]
        assert sorted(names) == sorted(table.rows)
        assert all(self._zones.values())

    def _forget_order(self) -> None:
        self._names_stale = True
        self._order = None

    def _insert(self, node: Node) -> None:
        self._zones.setdefault(zone_of(node), {})[node.metadata.name] = None

    def _delete(self, node: Node) -> None:
        zone = zone_of(node)
        del self._zones[zone][node.metadata.name]
        if not self._zones[zone]:
            del self._zones[zone]

    def _round_robin(self) -> list[str]:
        names: list[str] = []
        waiting = [iter(zone) for zone in self._zones.values()]
        while waiting:
            still = []
            for zone in waiting:
                name = next(zone, None)
                if name is not None:
                    names.append(name)
                    still.append(zone)
            waiting = still
        return names


def zone_of(node: Node) -> str:
    """Return the key of a node's zone: region and zone, the older labels first; "" without both."""
    labels = node.metadata.labels
    zone = labels.get(LABEL_ZONE_BETA, labels.get(LABEL_ZONE, ""))
    region = labels.get(LABEL_REGION_BETA, labels.get(LABEL_REGION, ""))
    return f"{region}:\0:{zone}" if region or zone else ""
