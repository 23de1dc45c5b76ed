"""Nodes as kube-scheduler 1.36 sees them once an HTTP extender has sent them back as objects.

It makes new nodes of the objects then, and puts no pods on them and no sizes of images: Score takes
each for empty. That is an accident (kubernetes/kubernetes#141781), but it decides where pods go;
extenders that are ``nodeCacheCapable`` are not concerned. Once that is mended, this module goes.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from proreus.framework.columns import ResourceColumns
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import NodeTableView
from proreus.framework.pod_label_groups import PodQuery
from proreus.framework.verdicts import CodeArray, IntArray, Rows


class NodesWithoutPods(NodeTableView):
    """Some rows of a table, without their pods, ports and images; cluster-wide counts stay."""

    def __init__(self, parent: NodeTable, rows: Rows) -> None:
        super().__init__(parent, rows)
        self.capacity = self.size

    @property
    def requested(self) -> ResourceColumns:  # type: ignore[override]
        """Nothing is asked for."""
        return ResourceColumns(self)

    @property
    def nonzero_requested(self) -> ResourceColumns:  # type: ignore[override]
        """Nothing is asked for."""
        return ResourceColumns(self)

    def __getitem__(self, row: int) -> NodeInfo:
        known = super().__getitem__(row)
        info = NodeInfo(known.name)
        info.row = known.row
        if known.node is not None:
            status = msgspec.structs.replace(known.node.status, images=())
            info.set_node(msgspec.structs.replace(known.node, status=status))
        return info

    def __iter__(self) -> Iterator[NodeInfo]:
        return (self[row] for row in range(self.size))

    @property
    def pod_count(self) -> IntArray:
        """No pods."""
        return np.zeros(self.size, dtype=np.int64)

    @property
    def port_set(self) -> CodeArray:
        """No ports in use."""
        return np.zeros(self.size, dtype=np.int32)

    @property
    def image_set(self) -> CodeArray:
        """No images."""
        return np.zeros(self.size, dtype=np.int32)

    def count_pods(self, query: PodQuery) -> CodeArray:
        """No pods, whatever they are asked for by."""
        return np.zeros(self.size, dtype=np.int32)

    def take(self, rows: Rows) -> NodeTable:
        """Return some of these rows."""
        return NodesWithoutPods(self._parent, self.parent_rows[rows])
