"""The table of the cluster's nodes: how nodes are added, updated and removed.

``NodeTable`` is the interface that plugins see. Rows are dense: the last row moves into the place
of a removed node, so that a column is always ``array[:size]``. Growing doubles the arrays, so that
adding n nodes costs O(n).

Example: rows are a, b, c, d. Removing b copies row 3 to row 1 and leaves a, d, c; row 1 is recorded
as changed, since it holds another node now, and row 3 is beyond the size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proreus.base.bounded_cache import register
from proreus.base.int64 import MAX_INT64
from proreus.framework.columns import NO_IMAGES, ImageStates, compacted
from proreus.framework.interning import Interner
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import Fork, NodeTableView
from proreus.framework.read_only import ReadOnlyDict
from proreus.framework.verdicts import Rows


class ClusterTable(NodeTable):
    """All nodes of the cluster; one is kept by the cache, which alone changes it."""

    def __init__(self) -> None:
        super().__init__()
        self._label_keys_as_of = (0, 0)
        """Generation and number of label columns when unused label keys were last looked for."""
        register(self)

    def take(self, rows: Rows) -> NodeTable:
        """Return some rows as a read-only table."""
        return NodeTableView(self, rows)

    def fork(self, rows: Rows) -> NodeTable:
        """Return a copy of some rows to add pods to and remove pods from."""
        return Fork(self, rows)

    def age(self) -> None:
        """Forget taints, ports, images and label keys that no node has any more."""
        # A pass over all nodes, which finds nothing unless one has changed, or a column has gone.
        keys_as_of = (self.nodes_generation, self._labels.column_count)
        if keys_as_of != self._label_keys_as_of:
            self._labels.forget_unused_keys(self.infos)
            self._label_keys_as_of = keys_as_of
        for columns in (self.allocatable, self.requested, self.nonzero_requested):
            columns.shrink()
        # Codes are never reused. Taints may carry a time, as cluster-autoscaler's do, and nodes
        # report new sets of images for months; one set may take megabytes.
        for name, codes in (
            ("taint_sets", self._node_state.taint_set),
            ("port_sets", self._node_state.port_set),
            ("image_sets", self._node_state.image_set),
        ):
            interner: Interner[Any] = getattr(self, name)
            codes = codes[: self.size]
            if len(interner) > 1 + np.count_nonzero(np.unique(codes)):
                setattr(self, name, compacted(codes, interner))

    def clear(self) -> None:
        """Forget all nodes at once."""
        super().__init__()

    def add_node(self, info: NodeInfo) -> int:
        """Give a node a row and return it."""
        # Doubled, so that the copies of n additions cost O(n) together.
        if self.size == self.capacity:
            self._grow(2 * self.capacity)
        row = self.size
        self.size += 1
        info.row = row
        self.infos.append(info)
        dict.__setitem__(self.rows, info.name, row)
        self._put_node(row)
        if info.pods:
            self._put_pods(row)
        if self._pod_index is not None:
            self._pod_index.add_row(info)
        return row

    def update_node(self, info: NodeInfo) -> None:
        """Update the columns after ``info.set_node``."""
        self._put_node(info.row)

    def remove_node(self, info: NodeInfo) -> None:
        """Remove a node; the last row moves into its place."""
        # The pod index goes by row number: the node's pods leave it before the row is overwritten.
        row, last = info.row, self.size - 1
        if self._pod_index is not None:
            self._pod_index.remove_row(info)
        old = self.image_sets.values[self._node_state.image_set[row]]
        self.images.replace(old, None)
        if row != last:
            self._move(last, row)
        self._clear_row(last)
        self.infos.pop()
        self.size = last
        dict.__delitem__(self.rows, info.name)
        info.row = -1
        self.nodes_generation += 1
        # If a node is added before a cache looks again, the size is the same as before; then only
        # the log says that this row holds another node.
        if row != last:
            self.changes.record(row)
            self.node_changes.record(row)

    def rebuild_row(self, row: int, info: NodeInfo) -> None:
        """Replace a row's ``NodeInfo`` by a newly derived one, and write all its cells."""
        if self._image_set_differs(row):
            self._recount_images()
        info.row = row
        self.infos[row] = info
        self._put_node(row)
        self._put_pods(row)
        # The pods that the index has counted there may be others. It is created anew at its next
        # use, which takes a while in a large cluster; cached results that read it must go too.
        if self._pod_index is not None:
            self._pod_index = None
            self.changes.record_all(range(self.size))

    def _recount_images(self) -> None:
        """Count the images of all nodes anew, since a wrong cell leaves all counts in doubt."""
        images = ImageStates()
        for row, info in enumerate(self.infos):
            self._node_state.image_set[row] = self.image_sets.code(
                images.replace(NO_IMAGES, info.node)
            )
        self.images.num_nodes = images.num_nodes
        self.images.version += 1

    def rebuild_rows(self) -> None:
        """Derive the rows of all names from ``infos``."""
        self.rows = ReadOnlyDict({info.name: row for row, info in enumerate(self.infos)})
        for row, info in enumerate(self.infos):
            if info.row != row:
                info.row = row
                self.changes.record(row)
                self.node_changes.record(row)

    def _clear_row(self, row: int) -> None:
        # The cells beyond the size are 0, for the next node's pods: it mostly has none. It would
        # also take the code of an image set for images that it had before, and subtract them.
        for columns in (self.allocatable, self.requested, self.nonzero_requested):
            columns.clear(row)
        self._node_state.clear(row)

    def _put_node(self, row: int) -> None:
        info = self.infos[row]
        node = info.node
        assert node is not None
        self.allocatable.put(row, info.allocatable)
        self._node_state.allowed_pods[row] = min(info.allowed_pod_number, MAX_INT64)
        self._node_state.unschedulable[row] = node.spec.unschedulable
        self._node_state.taint_set[row] = self.taint_sets.code(node.spec.taints)
        old = self.image_sets.values[self._node_state.image_set[row]]
        images = self.images.replace(old, node)
        if images is not old:
            self._node_state.image_set[row] = self.image_sets.code(images)
        self._labels.put(row, info.labels, self.size, self._max_sets)
        self.nodes_generation += 1
        self.changes.record(row)
        self.node_changes.record(row)

    def _grow(self, capacity: int) -> None:
        self.capacity = capacity
        self.changes.reserve(capacity)
        self.node_changes.reserve(capacity)
        for columns in (self.allocatable, self.requested, self.nonzero_requested):
            columns.grow(capacity)
        # Arrays are replaced, not resized: a reader that still holds one keeps what it was reading.
        self._node_state.grow(capacity)
        self._readable = self._node_state.read_only()
        self._labels.grow(capacity)
        if self._pod_index is not None:
            self._pod_index.grow(capacity)

    def _move(self, source: int, target: int) -> None:
        for columns in (self.allocatable, self.requested, self.nonzero_requested):
            columns.move(source, target)
        self._node_state.move(source, target)
        self._labels.move(source, target)
        info = self.infos[source]
        # The index finds pods by ``info.row``: out at the old number, in at the new one.
        if self._pod_index is not None:
            self._pod_index.remove_row(info)
        info.row = target
        self.infos[target] = info
        dict.__setitem__(self.rows, info.name, target)
        if self._pod_index is not None:
            self._pod_index.add_row(info)
