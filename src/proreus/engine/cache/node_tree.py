"""The order in which kube-scheduler visits nodes: round robin over zones (``nodeTree``).

The search with per-node plugins needs it, since it stops once enough nodes are found: these should
lie in different zones. Example: zones a = [n1, n2, n3], b = [n4] give n1, n4, n2, n3.
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
        """Move a node whose zone labels changed."""
        # The order stays, as in kube-scheduler, whose snapshot keeps its list until a node comes
        # or goes.
        if zone_of(old) != zone_of(new):
            self._delete(old)
            self._insert(new)

    def remove(self, node: Node) -> None:
        """Remove a node, and its zone if that is empty then."""
        self._delete(node)
        self._forget_order()

    def order(self, table: NodeTable) -> Rows:
        """Return the rows of all nodes of a table in this order.

        The order is kept as long as the names are the same.
        """
        # kube-scheduler rebuilds its list at the start of a cycle, and only if the number of nodes
        # changed: a node that left and came back in between keeps its place.
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
