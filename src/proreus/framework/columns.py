"""The columns of a node table: resources, dense or sparse, and counts of images.

Arrays have spare capacity; readers get them cut to the number of rows.

Example: 5,000 nodes, of which 20 have ``nvidia.com/gpu``. ``cpu`` is an array; the 20 GPU cells are
in ``_sparse``, row by row. With the 257th node that has one (more than 1/32 of the capacity, 8,192)
the resource becomes an array, and stays one as long as any node has one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.ma
import numpy.typing as npt

from proreus.base.int64 import MAX_INT64
from proreus.framework.interning import ABSENT, Interner
from proreus.framework.verdicts import BoolArray, CodeArray, IntArray, Rows
from proreus.objects.node import Node

if TYPE_CHECKING:
    from proreus.framework.node_table import NodeTable

_SPARSE_SHARE = 32
"""A resource is sparse while at most one row in so many has it: a cell in a dict takes about ten
times the memory of one in an array, and is slower to read."""

_ALWAYS_DENSE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Never sparse, also in an empty cluster: nearly every plugin reads these."""

H = TypeVar("H", bound=Hashable)
A = TypeVar("A", bound="npt.NDArray[Any]")


class ImageSet(dict[str, int]):
    """The images of a node: bytes by name, under all their names.

    Hashable, so it must not be changed. If a node lists a name twice, the last entry counts.
    """

    __slots__ = ("_hash",)

    def __hash__(self) -> int:  # type: ignore[override]
        # Kept: a node may have 40,000 images.
        try:
            return self._hash
        except AttributeError:
            self._hash: int = hash(frozenset(self.items()))
            return self._hash


NO_IMAGES = ImageSet()


class ImageStates:
    """How many nodes have each image, in ``num_nodes[name]``; ``version`` counts changes."""

    __slots__ = ("num_nodes", "version")

    def __init__(self) -> None:
        self.num_nodes: dict[str, int] = {}
        self.version = 0

    def replace(self, old: ImageSet, node: Node | None) -> ImageSet:
        """Count a node's images in place of its former ones; return them."""
        if not old and (node is None or not node.status.images):
            return NO_IMAGES
        new = ImageSet(
            (name, image.size_bytes)
            for image in (node.status.images if node is not None else ())
            for name in image.names
        )
        # Most node updates repeat the same list of images, and nothing has to be counted then.
        if new == old:
            return old
        self.version += 1
        counts = self.num_nodes
        for name in old.keys() - new.keys():
            counts[name] -= 1
            if not counts[name]:
                del counts[name]
        for name in new.keys() - old.keys():
            counts[name] = counts.get(name, 0) + 1
        return new


class ResourceColumns:
    """An int64 column for each resource, zeros for a resource that no node has.

    A resource that few nodes have is stored cell by cell, and becomes an array only for the reader:
    if each node had a resource of its own, dense columns would take memory by the square of nodes.

    Invariants: ``_sparse[row]`` has the cells of a row that are in no array, without zeros and
    unless it has none; ``_rows_with[resource]`` is the row that has a sparse resource, or the set
    of rows if there are more; a resource is in ``arrays`` or in ``_rows_with``, not in both;
    ``_readable`` has the same arrays as ``arrays``, as what readers may do with them.
    """

    # By row, and a number instead of a set of one: a node may have 45,000 resources that no other
    # has, and they come and go with it.

    __slots__ = ("_readable", "_rows_with", "_sparse", "_table", "arrays")

    def __init__(self, table: NodeTable, *, read_only: bool = False) -> None:
        """``read_only``: NumPy refuses writes of readers: plugins read the scheduler's own table.

        To make each cut read-only when it is read would take as long as the cut.
        """
        self._table = table
        self.arrays: dict[str, IntArray] = {}
        self._readable: dict[str, IntArray] = {} if read_only else self.arrays
        self._sparse: dict[int, dict[str, int]] = {}
        self._rows_with: dict[str, int | set[int]] = {}

    def __getitem__(self, resource: str) -> IntArray:
        """Return the column, shape ``(len(table),)``; not to be written to."""
        array = self._readable.get(resource)
        size = self._table.size
        return self._column(resource, size) if array is None else array[:size]

    def __contains__(self, resource: str) -> bool:
        return resource in self.arrays or resource in self._rows_with

    def __iter__(self) -> Iterator[str]:
        return chain(self.arrays, self._rows_with)

    def row(self, row: int) -> dict[str, int]:
        """Return the amounts of a row, without zeros."""
        amounts = {name: int(array[row]) for name, array in self.arrays.items() if array[row]}
        return amounts | self._sparse.get(row, {})

    def put(self, row: int, amounts: dict[str, int]) -> None:
        """Set the cells of a row; resources that it does not name become 0."""
        for resource, array in self.arrays.items():
            # Sums are Python ints; NumPy raises for one beyond int64, so absurd amounts saturate.
            amount = amounts.get(resource, 0)
            array[row] = amount if amount <= MAX_INT64 else MAX_INT64
        # A row with cells may have lost them: a node's device plugin stops reporting a resource.
        if row in self._sparse or not amounts.keys() <= self.arrays.keys():
            self._put_sparse_cells(row, amounts)

    def put_some(self, row: int, resources: Sequence[str], amounts: dict[str, int]) -> None:
        """Set the cells of the named resources only."""
        arrays = self.arrays
        for resource in resources:
            array = arrays.get(resource)
            if array is None:
                self._put_sparse(row, resource, amounts[resource])
            else:
                array[row] = min(amounts[resource], MAX_INT64)

    def clear(self, row: int) -> None:
        """Set all cells of a row to 0."""
        self.put(row, {})

    def shrink(self) -> None:
        """Drop the arrays of resources that no row has any more."""
        for resource, array in tuple(self.arrays.items()):
            if resource not in _ALWAYS_DENSE and not array[: self._table.size].any():
                del self.arrays[resource]
                self._readable.pop(resource, None)

    def grow(self, capacity: int) -> None:
        """Extend the arrays to ``capacity`` rows."""
        for name, array in self.arrays.items():
            self._put_array(name, grown(array, capacity))

    def move(self, source: int, target: int) -> None:
        """Copy the cells of a row over those of another."""
        for array in self.arrays.values():
            array[target] = array[source]
        self._put_sparse_cells(target, self._sparse.get(source, {}))

    def gather(self, table: NodeTable, rows: Rows) -> ResourceColumns:
        """Return a copy of the columns of some rows, for a fork."""
        other = ResourceColumns(table)
        other.arrays.update((name, array[rows]) for name, array in self.arrays.items())
        if self._sparse:
            for target, source in enumerate(rows.tolist()):
                cells = self._sparse.get(source, {})
                other.put_some(target, tuple(cells), cells)
        return other

    def densify(self) -> None:
        """Turn every sparse resource into an array."""
        for resource in tuple(self._rows_with):
            self._make_dense(resource)

    def _put_sparse_cells(self, row: int, amounts: dict[str, int]) -> None:
        """Replace the sparse cells of a row by those of ``amounts`` that are in no array."""
        arrays, before = self.arrays, self._sparse.pop(row, {})
        cells = {
            resource: amount if amount <= MAX_INT64 else MAX_INT64
            for resource, amount in amounts.items()
            if amount and resource not in arrays
        }
        for resource in before.keys() - cells.keys():
            self._forget_row_with(resource, row)
        if not cells:
            return
        self._sparse[row] = cells
        added = cells.keys() - before.keys()
        if added.isdisjoint(self._rows_with) and added.isdisjoint(_ALWAYS_DENSE):
            self._rows_with.update(dict.fromkeys(added, row))
        else:
            for resource in added:
                self._note_row_with(resource, row)

    def _put_sparse(self, row: int, resource: str, amount: int) -> None:
        cells = self._sparse.get(row, {})
        known = resource in cells
        if amount:
            cells[resource] = min(amount, MAX_INT64)
            self._sparse[row] = cells
            if not known:
                self._note_row_with(resource, row)
        elif known:
            self._forget_row_with(resource, row)
            del cells[resource]
            if not cells:
                del self._sparse[row]

    def _note_row_with(self, resource: str, row: int) -> None:
        rows = self._rows_with.setdefault(resource, row)
        if rows != row:
            if isinstance(rows, int):
                rows = self._rows_with[resource] = {rows}
            rows.add(row)
        number = 1 if isinstance(rows, int) else len(rows)
        # One way only, until no row has any: a resource that was common may become so again, and a
        # column that goes back and forth at the limit would cost a copy each time.
        if resource in _ALWAYS_DENSE or number > self._table.capacity // _SPARSE_SHARE:
            self._make_dense(resource)

    def _forget_row_with(self, resource: str, row: int) -> None:
        rows = self._rows_with[resource]
        if not isinstance(rows, int):
            rows.discard(row)
            if rows:
                return
        del self._rows_with[resource]

    def _make_dense(self, resource: str) -> None:
        array = self._column(resource, self._table.capacity)
        for row in self._rows_of(resource):
            cells = self._sparse[row]
            del cells[resource]
            if not cells:
                del self._sparse[row]
        del self._rows_with[resource]
        self._put_array(resource, array)

    def _rows_of(self, resource: str) -> Iterable[int]:
        rows = self._rows_with.get(resource, ())
        return (rows,) if isinstance(rows, int) else rows

    def _put_array(self, resource: str, array: IntArray) -> None:
        self.arrays[resource] = array
        if self._readable is not self.arrays:
            self._readable[resource] = read_only(array[:])

    def _column(self, resource: str, size: int) -> IntArray:
        column = np.zeros(size, dtype=np.int64)
        for row in self._rows_of(resource):
            column[row] = self._sparse[row][resource]
        return column


class NodeStateColumns:
    """The columns of a table that are neither of resources nor of labels, with spare capacity."""

    __slots__ = (
        "allowed_pods",
        "image_set",
        "pod_count",
        "port_set",
        "taint_set",
        "unschedulable",
    )

    def __init__(self, capacity: int) -> None:
        self.pod_count: IntArray = np.zeros(capacity, dtype=np.int64)
        self.allowed_pods: IntArray = np.zeros(capacity, dtype=np.int64)
        self.unschedulable: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.taint_set: CodeArray = np.zeros(capacity, dtype=np.int32)
        self.port_set: CodeArray = np.zeros(capacity, dtype=np.int32)
        self.image_set: CodeArray = np.zeros(capacity, dtype=np.int32)

    def read_only(self) -> NodeStateColumns:
        """Return views of the columns to which NumPy refuses writes."""
        readable = NodeStateColumns(0)
        for name in self.__slots__:
            setattr(readable, name, read_only(getattr(self, name)[:]))
        return readable

    def grow(self, capacity: int) -> None:
        """Extend the columns to ``capacity`` rows."""
        for name in self.__slots__:
            setattr(self, name, grown(getattr(self, name), capacity))

    def move(self, source: int, target: int) -> None:
        """Copy the cells of a row over those of another."""
        for name in self.__slots__:
            column = getattr(self, name)
            column[target] = column[source]

    def clear(self, row: int) -> None:
        """Set all cells of a row to 0."""
        for name in self.__slots__:
            getattr(self, name)[row] = 0


def read_only(view: A) -> A:
    """Make a view of an array read-only, and return it."""
    view.flags.writeable = False
    return view


def grown(array: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    """Return a copy of length ``capacity``; new cells are zero."""
    wider = np.zeros(capacity, dtype=array.dtype)
    wider[: len(array)] = array
    return wider


def compacted(codes: CodeArray, interner: Interner[H]) -> Interner[H]:
    """Return a new interner with the values in use; ``codes`` are rewritten in place.

    The first value keeps its code 0, and ``ABSENT`` stays.
    """
    # A new object, not a cleaned one: forks hold copies of the old codes, which must go on meaning
    # the same values in the interner that they hold.
    fresh = Interner(interner.values[0])
    present, where = np.unique(codes, return_inverse=True)
    renamed = [
        ABSENT if code == ABSENT else fresh.code(interner.values[code]) for code in present.tolist()
    ]
    codes[:] = np.array(renamed, dtype=codes.dtype)[where]
    return fresh
