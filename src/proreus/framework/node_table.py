"""NodeTable: the nodes as NumPy columns, one row for each node.

Columns are updated cell by cell, together with the ``NodeInfo`` objects, as events come in. Every
change records its row, so that cached results can be updated row by row (``changes_since``).

A plugin may get the whole table, a view of some rows (``take``) or a copy for a dry run (``fork``);
all have this interface.

Example: a pod that requests 500m is bound to row 7. ``infos[7].requested["cpu"]`` and
``requested["cpu"][7]`` grow by 500, ``pod_count[7]`` by 1, and ``changes`` gets a 7;
``nodes_generation`` stays, since the node object did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from proreus.base.int64 import MAX_INT64
from proreus.framework.attribute_hints import AttributeHints
from proreus.framework.change_log import ChangeLog
from proreus.framework.columns import (
    NO_IMAGES,
    ImageSet,
    ImageStates,
    NodeStateColumns,
    ResourceColumns,
    compacted,
    read_only,
)
from proreus.framework.existing_terms import WeightedCounts
from proreus.framework.interning import Interner
from proreus.framework.label_columns import LabelColumns, selector_mask
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_index import PodIndex
from proreus.framework.pod_info import HostPort, PodInfo
from proreus.framework.pod_label_groups import PodQuery
from proreus.framework.read_only import ReadOnlyDict
from proreus.framework.term_set import Column, TermsInNamespaces
from proreus.framework.verdicts import BoolArray, CodeArray, IntArray, Rows
from proreus.objects.selectors import Selector
from proreus.objects.taints import Taint

H = TypeVar("H", bound=Hashable)

_FIRST_CAPACITY = 64
_SPARE_SETS = 1024
_MANY_PORTS = 1000


class NodeTable(AttributeHints):
    """Columns over nodes, and their ``NodeInfo`` rows.

    ``len(table)`` is the number of nodes, ``table[row]`` a node's ``NodeInfo``, ``for node in
    table`` yields all; ``"name" in table`` says whether there is such a node.

    Invariants: ``infos[row].row == row`` for every row; ``rows[name]`` is the row of a node; all
    columns agree with the infos (``validate`` checks).
    """

    def __init__(self) -> None:
        self.size = 0
        self.capacity = _FIRST_CAPACITY
        self.infos: list[NodeInfo] = []
        self.rows: ReadOnlyDict[str, int] = ReadOnlyDict()
        """The row of each node, by name."""
        self.images = ImageStates()
        self.allocatable: ResourceColumns = ResourceColumns(self, read_only=True)
        """``allocatable[resource]``: an int64 column; zeros for a resource that no node has."""
        self.requested: ResourceColumns = ResourceColumns(self, read_only=True)
        """``requested[resource]``: the sum of the pods on each node."""
        self.nonzero_requested: ResourceColumns = ResourceColumns(self, read_only=True)
        """``nonzero_requested["cpu"]`` and ``["memory"]``: with defaults for pods without any."""
        self._node_state = NodeStateColumns(self.capacity)
        # To make each cut read-only when it is read would take as long as the cut.
        self._readable = self._node_state.read_only()
        self.taint_sets: Interner[tuple[Taint, ...]] = Interner(())
        """``taint_sets.values[code]``: the taints behind a code of ``taint_set``."""
        self.port_sets: Interner[frozenset[HostPort]] = Interner(frozenset())
        """``port_sets.values[code]``: the ports behind a code of ``port_set``."""
        self.image_sets: Interner[ImageSet] = Interner(NO_IMAGES)
        self._labels = LabelColumns()
        self._pod_index: PodIndex | None = None
        self.changes = ChangeLog()
        """Rows that changed, be it the node or its pods."""
        self.node_changes = ChangeLog()
        """Rows whose node object changed, not only its pods."""
        self.nodes_generation: int = 0
        """Incremented when a node is added, removed or updated; not when only its pods change."""

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: int) -> NodeInfo:
        try:
            return self.infos[row]
        except TypeError:
            raise TypeError(f"{row!r} is no row; write nodes[nodes.rows[name]]") from None

    def __iter__(self) -> Iterator[NodeInfo]:
        return iter(self.infos)

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    # ---- columns, read-only for plugins: what they write would count for all pods to come -------

    @property
    def pod_count(self) -> IntArray:
        """Number of pods on each node, shape ``(len(table),)``."""
        return self._readable.pod_count[: self.size]

    @property
    def allowed_pods(self) -> IntArray:
        """Allocatable ``pods`` of each node."""
        return self._readable.allowed_pods[: self.size]

    @property
    def unschedulable(self) -> BoolArray:
        """Whether a node is cordoned."""
        return self._readable.unschedulable[: self.size]

    @property
    def taint_set(self) -> CodeArray:
        """Code of a node's taints in ``taint_sets``; 0 = none."""
        return self._readable.taint_set[: self.size]

    @property
    def port_set(self) -> CodeArray:
        """Code of the host ports in use in ``port_sets``; 0 = none."""
        return self._readable.port_set[: self.size]

    @property
    def image_set(self) -> CodeArray:
        """Code of a node's images, with their sizes, in ``image_sets``; 0 = none."""
        return self._readable.image_set[: self.size]

    def has_label(self, key: str) -> bool:
        """Return whether a node may have a label; False is certain."""
        return key in self._labels

    def label(self, key: str) -> CodeArray:
        """Return each node's code of a label; -1 where it is absent."""
        return self._labels.column(key, self.infos, self.capacity).readable[: self.size]

    def label_values(self, key: str) -> Interner[str]:
        """Return the values of a label by code, ``label_values(key).values[code]``."""
        return self._labels.column(key, self.infos, self.capacity).values

    def matches(self, selector: Selector) -> BoolArray:
        """Return the mask of nodes whose labels a selector selects."""
        return selector_mask(self, selector)

    @property
    def pod_index(self) -> PodIndex:
        """The pods of these nodes, counted by labels and affinity terms; created at first use."""
        if self._pod_index is None:
            self._pod_index = PodIndex(self.infos, self.capacity)
        return self._pod_index

    def count_pods(self, query: PodQuery) -> IntArray:
        """Return the number of pods on each node that match a query."""
        return read_only(self.pod_index.count(query)[: self.size])

    def count_selected(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> Iterator[tuple[Column, IntArray]]:
        """Yield by topology key and sign the count on each node of the pods that terms select."""
        for column, counts in self.pod_index.count_selected(terms, self.has_label, check):
            yield column, read_only(counts[: self.size])

    def count_selected_by_all(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> IntArray:
        """Return the number of pods on each node that all of the terms select."""
        return read_only(self.pod_index.count_selected_by_all(terms, check)[: self.size])

    def count_terms(self, terms: WeightedCounts) -> IntArray:
        """Return the sum of the counts of existing terms, at least one, on each node."""
        return read_only(self.pod_index.count_terms(terms)[: self.size])

    def rows_of(self, names: Iterable[str]) -> Rows:
        """Return the rows of the named nodes, ascending; unknown names are ignored."""
        rows = np.fromiter((self.rows.get(name, -1) for name in names), dtype=np.intp)
        rows = rows[rows >= 0]
        rows.sort()
        return rows

    # ---- other tables --------------------------------------------------------------------------

    def take(self, rows: Rows) -> NodeTable:
        """Return some rows as a read-only table."""
        raise NotImplementedError

    def fork(self, rows: Rows) -> NodeTable:
        """Return a copy of some rows to add pods to and remove pods from."""
        raise NotImplementedError

    # ---- changes -------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The end of the change log, to be passed to ``changes_since`` later."""
        return self.changes.position

    def changes_since(self, position: int) -> list[int] | None:
        """Return the rows that changed since a position, each once; None if that is forgotten."""
        return self.changes.since(position, self.size)

    def record_change(self, node_name: str) -> None:
        """Record that results for a node, if there is one of this name, do not hold any more."""
        row = self.rows.get(node_name)
        if row is not None:
            self.changes.record(row)
            self.node_changes.record(row)

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Add a pod to a row, in ``NodeInfo`` and columns."""
        self.infos[row].add_pod(pod)
        self._put_pod(row, pod)
        if self._pod_index is not None:
            self._pod_index.add(row, pod)

    def remove_pod(self, row: int, uid: str) -> PodInfo:
        """Remove a pod from a row, in ``NodeInfo`` and columns, and return it."""
        pod = self.infos[row].remove_pod(uid)
        self._put_pod(row, pod)
        if self._pod_index is not None:
            self._pod_index.remove(row, pod)
        return pod

    def update_pod(self, row: int, new: PodInfo) -> None:
        """Replace a pod of a row by its new version: as if removed and added."""
        old = self.infos[row].remove_pod(new.uid)
        self.infos[row].add_pod(new)
        self._put_pod(row, old)
        self._put_pod(row, new)
        if self._pod_index is not None:
            self._pod_index.update(row, old, new)

    def _put_pod(self, row: int, pod: PodInfo) -> None:
        # Only the cells that this pod can have changed: a pod names two or three resources of the
        # dozens that a cluster may have.
        info = self.infos[row]
        self.requested.put_some(row, tuple(pod.accounted_requests.amounts), info.requested)
        self.nonzero_requested.put_some(row, ("cpu", "memory"), info.nonzero_requested)
        self._node_state.pod_count[row] = len(info.pods)
        # Interning the set of ports costs a frozenset; most pods have none.
        if pod.host_ports:
            self._node_state.port_set[row] = self.port_sets.code(frozenset(info.used_ports))
            # A pod may have 30,000 ports: a set of megabytes, for each pod with a port that comes.
            most_ports = max(len(pod.host_ports), len(info.used_ports))
            if len(self.port_sets) > self._max_sets or most_ports > _MANY_PORTS:
                self.port_sets = compacted(self._node_state.port_set[: self.size], self.port_sets)
        self.changes.record(row)

    def _put_pods(self, row: int) -> None:
        info = self.infos[row]
        self.requested.put(row, info.requested)
        self.nonzero_requested.put(row, info.nonzero_requested)
        self._node_state.pod_count[row] = len(info.pods)
        self._node_state.port_set[row] = self.port_sets.code(frozenset(info.used_ports))
        self.changes.record(row)

    @property
    def _max_sets(self) -> int:
        """How many sets of ports, or values of a label, are interned before unused ones go."""
        # Nodes, images and pods with ports come and go for months. Twice the size, so that each
        # compaction, which costs a pass over the rows, is paid for by as many new values.
        return _SPARE_SETS + 2 * self.size

    def validate(self) -> None:
        """Derive every column anew and raise ``AssertionError`` if one differs."""
        assert len(self.infos) == len(self.rows) == self.size <= self.capacity
        for row, info in enumerate(self.infos):
            assert self.rows[info.name] == row, info
            assert info.node is not None
            assert not (column := self.row_difference(row)), (info, column)
        if self._pod_index is not None:
            self._pod_index.validate()

    def row_difference(self, row: int) -> str:
        """Return the name of a column that disagrees with the row's ``NodeInfo``; "" if none."""
        info = self.infos[row]
        cells = (
            ("row", info.row, row),
            ("pod_count", self._node_state.pod_count[row], len(info.pods)),
            (
                "allowed_pods",
                self._node_state.allowed_pods[row],
                min(info.allowed_pod_number, MAX_INT64),
            ),
            ("unschedulable", self._node_state.unschedulable[row], info.unschedulable),
            ("taint_set", _value_of(self.taint_sets, self._node_state.taint_set[row]), info.taints),
            (
                "port_set",
                _value_of(self.port_sets, self._node_state.port_set[row]),
                info.used_ports,
            ),
        )
        for name, cell, expected in cells:
            if cell != expected:
                return name
        for name, columns, amounts in (
            ("allocatable", self.allocatable, info.allocatable),
            ("requested", self.requested, info.requested),
            ("nonzero_requested", self.nonzero_requested, info.nonzero_requested),
        ):
            if columns.row(row) != {key: min(a, MAX_INT64) for key, a in amounts.items() if a}:
                return name
        if self._image_set_differs(row):
            return "image_set"
        if key := self._labels.difference(row, info.labels):
            return f"label {key}"
        return info.difference() or self._pod_index_difference(info)

    def _image_set_differs(self, row: int) -> bool:
        images = _value_of(self.image_sets, self._node_state.image_set[row])
        return images != ImageStates().replace(NO_IMAGES, self.infos[row].node)

    def _pod_index_difference(self, info: NodeInfo) -> str:
        index = self._pod_index
        return "" if index is None or not index.row_differs(info) else "pod_index"


def _value_of(interner: Interner[H], code: int) -> H | None:
    """Return the value of a code; None for a code that no value has."""
    return interner.values[code] if 0 <= code < len(interner.values) else None
