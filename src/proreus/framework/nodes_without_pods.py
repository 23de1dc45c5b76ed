"""Nodes as kube-scheduler 1.36 sees them once an HTTP extender has sent them back as objects.

It builds new NodeInfos from these objects, without pods and image sizes, so Score takes each node
for empty. That is a bug (kubernetes/kubernetes#141781), but it decides where pods go; extenders
that are ``nodeCacheCapable`` are not affected. Remove this module once the bug is fixed upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from proreus.framework.columns import ResourceColumns
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import NodeTableView
from proreus.framework.pod_label_groups import PodQuery
from proreus.framework.term_set import Column, TermsInNamespaces
from proreus.framework.verdicts import IntArray, Rows


def _zeros(dtype: type[np.generic]) -> Any:
    """Return the property of a column of zeros."""
    return property(lambda table: np.zeros(table.size, dtype=dtype))


class NodesWithoutPods(NodeTableView):
    """Some rows of a table, without their pods, ports and images; cluster-wide counts stay."""

    def __init__(self, parent: NodeTable, rows: Rows) -> None:
        super().__init__(parent, rows)
        self.capacity = self.size

    requested: Any = property(ResourceColumns)
    nonzero_requested: Any = property(ResourceColumns)
    pod_count = _zeros(np.int64)
    port_set = _zeros(np.int32)
    image_set = _zeros(np.int32)

    def __getitem__(self, row: int) -> NodeInfo:
        # Built anew at each call: per-node plugins must see the same empty node as columns do.
        known = super().__getitem__(row)
        info = NodeInfo(known.name)
        info.row = known.row
        if known.node is not None:
            status = msgspec.structs.replace(known.node.status, images=())
            info.set_node(msgspec.structs.replace(known.node, status=status))
        return info

    def __iter__(self) -> Iterator[NodeInfo]:
        return (self[row] for row in range(self.size))

    def count_pods(self, query: PodQuery) -> IntArray:
        """Return zeros, since there are no pods."""
        return np.zeros(self.size, dtype=np.int64)

    def count_selected(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> Iterator[tuple[Column, IntArray]]:
        """Yield nothing, since there are no pods."""
        return iter(())

    def count_selected_by_all(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> IntArray:
        """Return zeros, since there are no pods."""
        return np.zeros(self.size, dtype=np.int64)

    def take(self, rows: Rows) -> NodeTable:
        """Return some of these rows."""
        return NodesWithoutPods(self._parent, self.parent_rows[rows])
