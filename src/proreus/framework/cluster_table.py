"""The nodes of the cluster as columns: the table whose rows come and go.

``NodeTable`` says what plugins see of a table; here is how nodes enter it, change and leave. Rows
are dense: the last row moves into the place of a node that is removed, so that a column is always
``array[:size]``. Growing doubles the arrays, so that adding n nodes costs O(n).
"""

from __future__ import annotations

from proreus.framework.columns import MAX_INT64, compacted, grown
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import Fork, NodeTableView
from proreus.framework.verdicts import Rows


class ClusterTable(NodeTable):
    """All nodes of the cluster; one is kept by the cache, which alone changes it."""

    _ARRAYS = (
        "_pod_count",
        "_allowed_pods",
        "_unschedulable",
        "_taint_set",
        "_port_set",
        "_image_set",
    )

    def take(self, rows: Rows) -> NodeTable:
        """Return some rows as a table: a read-only picture of the present."""
        return NodeTableView(self, rows)

    def fork(self, rows: Rows) -> NodeTable:
        """Return a copy of some rows to add pods to and remove pods from."""
        return Fork(self, rows)

    def add_node(self, info: NodeInfo) -> int:
        """Give a node a row and return it."""
        if self.size == self.capacity:
            self._grow(2 * self.capacity)
        row = self.size
        self.size += 1
        info.row = row
        self.infos.append(info)
        self.rows[info.name] = row
        self._put_node(row)
        self._put_pods(row)
        if self._pod_index is not None:
            self._pod_index.add_row(info)
        return row

    def update_node(self, info: NodeInfo) -> None:
        """Bring the columns in step after ``info.set_node``."""
        self._put_node(info.row)

    def remove_node(self, info: NodeInfo) -> None:
        """Take a node's row away; the last row moves into its place."""
        row, last = info.row, self.size - 1
        if self._pod_index is not None:
            self._pod_index.remove_row(info)
        old = self.image_sets.values[self._image_set[row]]
        self.images.replace(old, None)
        if row != last:
            self._move(last, row)
        # What stands in the image column is what ``images`` counts for a row: free the old place.
        self._image_set[last] = 0
        for columns in (self.allocatable, self.requested, self.nonzero_requested):
            columns.forget(last)
        self.infos.pop()
        self.size = last
        del self.rows[info.name]
        info.row = -1
        self.nodes_generation += 1
        if row != last:
            self.changes.record(row)
            self.node_changes.record(row)

    def _put_node(self, row: int) -> None:
        info = self.infos[row]
        assert info.node is not None
        self.allocatable.put(row, info.allocatable)
        self._allowed_pods[row] = min(info.allowed_pod_number, MAX_INT64)
        self._unschedulable[row] = info.unschedulable
        self._taint_set[row] = self.taint_sets.code(info.taints)
        old = self.image_sets.values[self._image_set[row]]
        self._image_set[row] = self.image_sets.code(self.images.replace(old, info.node))
        if len(self.image_sets) > self._max_sets:
            self.image_sets = compacted(self.image_set, self.image_sets)
        self._labels.put(row, info.labels, self.size, self._max_sets)
        if self._labels.key_count > self._max_sets:
            self._labels.forget_unused_keys(self.infos)
        self.nodes_generation += 1
        self.changes.record(row)
        self.node_changes.record(row)

    def _grow(self, capacity: int) -> None:
        self.capacity = capacity
        self.changes.reserve(capacity)
        self.node_changes.reserve(capacity)
        for columns in (self.allocatable, self.requested, self.nonzero_requested):
            columns.grow(capacity)
        for name in self._ARRAYS:
            setattr(self, name, grown(getattr(self, name), capacity))
        self._labels.grow(capacity)
        if self._pod_index is not None:
            self._pod_index.grow(capacity)

    def _move(self, source: int, target: int) -> None:
        for columns in (self.allocatable, self.requested, self.nonzero_requested):
            columns.move(source, target)
        for name in self._ARRAYS:
            array = getattr(self, name)
            array[target] = array[source]
        self._labels.move(source, target)
        info = self.infos[source]
        if self._pod_index is not None:
            self._pod_index.remove_row(info)
        info.row = target
        self.infos[target] = info
        self.rows[info.name] = target
        if self._pod_index is not None:
            self._pod_index.add_row(info)
