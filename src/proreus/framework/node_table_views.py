"""Tables derived from other tables: views of some rows, and forks that may be changed.

Example: ``table.take([3, 7])`` has two rows and gathers ``column[[3, 7]]`` whenever a column is
read; ``table.fork([3, 7])`` copies both rows, and a pod added to its row 1 is not on the table's 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from proreus.framework.change_log import ChangeLog
from proreus.framework.columns import NodeStateColumns, ResourceColumns
from proreus.framework.existing_terms import WeightedCounts
from proreus.framework.interning import Interner
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_index import PodIndex
from proreus.framework.pod_label_groups import PodQuery
from proreus.framework.read_only import ReadOnlyDict
from proreus.framework.term_set import Column, TermsInNamespaces
from proreus.framework.verdicts import CodeArray, IntArray, Rows


class _ViewColumns(ResourceColumns):
    """Resource columns of a view, gathered when they are read."""

    __slots__ = ("_columns", "_part")

    def __init__(self, columns: ResourceColumns, part: NodeTableView) -> None:
        self._columns = columns
        self._part = part

    def __getitem__(self, resource: str) -> IntArray:
        return self._columns[resource][self._part.parent_rows]

    def __contains__(self, resource: str) -> bool:
        return resource in self._columns

    def gather(self, table: NodeTable, rows: Rows) -> ResourceColumns:
        """Return a copy of the columns of some of these rows, for a fork."""
        return self._columns.gather(table, self._part.parent_rows[rows])


def _column(name: str) -> Any:
    """Return the property of a view for a column of its parent."""
    return property(lambda view: getattr(view._parent, name)[view.parent_rows])


def _resources(name: str) -> Any:
    """Return the property of a view for the resource columns of its parent."""
    return property(lambda view: _ViewColumns(getattr(view._parent, name), view))


class NodeTableView(NodeTable):
    """Some rows of another table, read-only; columns are gathered when they are read."""

    def __init__(self, parent: NodeTable, rows: Rows) -> None:
        self._parent = parent
        # ``super().__init__`` would allocate a table's arrays; a view is made for every handful of
        # rows and usually reads one or two columns.
        self._parent_rows_array = rows
        self.size = len(rows)
        self.images = parent.images
        self.taint_sets = parent.taint_sets
        self.port_sets = parent.port_sets
        self.image_sets = parent.image_sets
        self.nodes_generation = parent.nodes_generation

    allocatable = _resources("allocatable")
    requested = _resources("requested")
    nonzero_requested = _resources("nonzero_requested")

    @property
    def parent(self) -> NodeTable:
        """The table that the view is of."""
        return self._parent

    @property
    def parent_rows(self) -> Rows:
        """The rows of the parent, in the order of this table's rows."""
        return self._parent_rows_array

    def __getitem__(self, row: int) -> NodeInfo:
        return self._parent.infos[int(self.parent_rows[row])]

    def __iter__(self) -> Iterator[NodeInfo]:
        infos = self._parent.infos
        return (infos[row] for row in self.parent_rows.tolist())

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    @property
    def infos(self) -> list[NodeInfo]:  # type: ignore[override]
        """The nodes of these rows."""
        return list(self)

    @property
    def rows(self) -> dict[str, int]:  # type: ignore[override]
        """Row in this view by node name; built at each call."""
        return {info.name: row for row, info in enumerate(self)}

    pod_count = _column("pod_count")
    allowed_pods = _column("allowed_pods")
    unschedulable = _column("unschedulable")
    taint_set = _column("taint_set")
    port_set = _column("port_set")
    image_set = _column("image_set")

    def has_label(self, key: str) -> bool:
        """Return whether a node may have a label."""
        return self._parent.has_label(key)

    def label(self, key: str) -> CodeArray:
        """Return a label's values as codes."""
        return self._parent.label(key)[self.parent_rows]

    def label_values(self, key: str) -> Interner[str]:
        """Return the values behind the codes of a label."""
        return self._parent.label_values(key)

    @property
    def pod_index(self) -> PodIndex:
        """The parent's index: its counts are by row of the parent."""
        return self._parent.pod_index

    def count_pods(self, query: PodQuery) -> IntArray:
        """Return the number of pods on each node that match a query."""
        return self._parent.count_pods(query)[self.parent_rows]

    def count_selected(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> Iterator[tuple[Column, IntArray]]:
        """Yield by topology key and sign the count on each node of the pods that terms select."""
        for column, counts in self._parent.count_selected(terms, check):
            yield column, counts[self.parent_rows]

    def count_selected_by_all(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> IntArray:
        """Return the number of pods on each node that all of the terms select."""
        return self._parent.count_selected_by_all(terms, check)[self.parent_rows]

    def count_terms(self, terms: WeightedCounts) -> IntArray:
        """Return the sum of the terms' counts on each node."""
        return self._parent.count_terms(terms)[self.parent_rows]

    def take(self, rows: Rows) -> NodeTable:
        """Return some of these rows."""
        # Of the parent, not of this view: each level would gather every column once more.
        return self._parent.take(self.parent_rows[rows])

    def fork(self, rows: Rows) -> NodeTable:
        """Return a copy of some of these rows for a dry run."""
        return self._parent.fork(self.parent_rows[rows])


class Fork(NodeTable):
    """A copy of some rows and of their ``NodeInfo``, to add pods to and remove pods from."""

    def __init__(self, parent: NodeTable, rows: Rows) -> None:
        self.size = self.capacity = len(rows)
        self.infos = self._copy_infos(parent, rows)
        self.rows = ReadOnlyDict()
        for row, info in enumerate(self.infos):
            info.row = row
            dict.__setitem__(self.rows, info.name, row)
        self.images = parent.images
        self.taint_sets = parent.taint_sets
        self.port_sets = parent.port_sets
        self.image_sets = parent.image_sets
        self.nodes_generation = parent.nodes_generation
        for name in ("allocatable", "requested", "nonzero_requested"):
            setattr(self, name, getattr(parent, name).gather(self, rows))
        # Indexing by an array of rows copies: writes to the fork do not reach the parent.
        self._node_state = self._readable = NodeStateColumns(0)
        for name in NodeStateColumns.__slots__:
            setattr(self._node_state, name, getattr(parent, name)[rows])
        self._parent = parent
        self._parent_rows = rows
        # An index of its own, built if a plugin reads it: the parent's counts know nothing of the
        # pods that are added here.
        self._pod_index = None
        self.changes = ChangeLog()
        self.node_changes = ChangeLog()

    def take(self, rows: Rows) -> NodeTable:
        """Return some of these rows."""
        return NodeTableView(self, rows)

    def fork(self, rows: Rows) -> NodeTable:
        """Return a copy of some of these rows."""
        return Fork(self, rows)

    def _copy_infos(self, parent: NodeTable, rows: Rows) -> list[NodeInfo]:
        return [parent[row].clone() for row in rows.tolist()]

    def has_label(self, key: str) -> bool:
        """Return whether a node may have a label."""
        return self._parent.has_label(key)

    def label(self, key: str) -> CodeArray:
        """Return a label's values as codes; labels do not change in a fork."""
        return self._parent.label(key)[self._parent_rows]

    def label_values(self, key: str) -> Interner[str]:
        """Return the values behind the codes of a label."""
        return self._parent.label_values(key)


def rows_in(table: NodeTable, nodes: NodeTable) -> Rows:
    """Return the rows of a table that have the nodes of a part or a fork of it."""
    if nodes is table:
        return np.arange(len(table))
    if isinstance(nodes, NodeTableView) and nodes.parent is table:
        return nodes.parent_rows
    return np.array([table.rows[node.name] for node in nodes], dtype=np.intp)
