"""The stuff that a node table is woven from: resource columns, image counts.

Columns have spare capacity; what readers get is cut to the number of rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from proreus.framework.interning import Interner
from proreus.framework.verdicts import CodeArray, IntArray, Rows
from proreus.objects.node import Node

MAX_INT64 = 2**63 - 1

H = TypeVar("H", bound=Hashable)


class Sized(Protocol):
    """What columns must know of their table."""

    size: int
    capacity: int


class ImageSet(dict[str, int]):
    """The images of a node: bytes by name, under all their names.

    Hashable, hence not to be changed. Where a node lists a name twice, the last entry counts.
    """

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


NO_IMAGES = ImageSet()


class Images:
    """Which images there are: ``nodes_with[name]`` counts nodes.

    ``version`` moves with every change.
    """

    __slots__ = ("nodes_with", "version")

    def __init__(self) -> None:
        self.nodes_with: dict[str, int] = {}
        self.version = 0

    def replace(self, old: ImageSet, node: Node | None) -> ImageSet:
        """Count a node's images in place of those that it had; return the new ones."""
        new = ImageSet(
            (name, image.size_bytes)
            for image in (node.status.images if node is not None else ())
            for name in image.names
        )
        if new == old:
            return old
        self.version += 1
        counts = self.nodes_with
        for name in old.keys() - new.keys():
            counts[name] -= 1
            if not counts[name]:
                del counts[name]
        for name in new.keys() - old.keys():
            counts[name] = counts.get(name, 0) + 1
        return new


class ResourceColumns:
    """One int64 column a resource; a resource that no node has reads as zeros."""

    __slots__ = ("_table", "arrays")

    def __init__(self, table: Sized) -> None:
        self._table = table
        self.arrays: dict[str, IntArray] = {}

    def __getitem__(self, resource: str) -> IntArray:
        """Return the column, shape ``(len(table),)``; not to be written to."""
        array = self.arrays.get(resource)
        size = self._table.size
        return np.zeros(size, dtype=np.int64) if array is None else array[:size]

    def __contains__(self, resource: str) -> bool:
        return resource in self.arrays

    def put(self, row: int, amounts: dict[str, int]) -> None:
        """Set the cells of a row; resources that it does not name become 0."""
        for resource in amounts:
            if resource not in self.arrays:
                self.arrays[resource] = np.zeros(self._table.capacity, dtype=np.int64)
        for resource, array in self.arrays.items():
            array[row] = min(amounts.get(resource, 0), MAX_INT64)

    def put_some(self, row: int, resources: Sequence[str], amounts: dict[str, int]) -> None:
        """Set the cells of the named resources only."""
        arrays = self.arrays
        for resource in resources:
            array = arrays.get(resource)
            if array is None:
                array = arrays[resource] = np.zeros(self._table.capacity, dtype=np.int64)
            array[row] = min(amounts[resource], MAX_INT64)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self.arrays = {name: grown(array, capacity) for name, array in self.arrays.items()}

    def move(self, source: int, target: int) -> None:
        """Copy the cells of a row over those of another."""
        for array in self.arrays.values():
            array[target] = array[source]

    def gather(self, table: Sized, rows: Rows) -> ResourceColumns:
        """Return the columns of some rows, as a fork's own."""
        other = ResourceColumns(table)
        other.arrays = {name: array[rows] for name, array in self.arrays.items()}
        return other


def grown(array: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    """Return a copy with room for ``capacity`` rows; new cells are zero."""
    wider = np.zeros(capacity, dtype=array.dtype)
    wider[: len(array)] = array
    return wider


def compacted(codes: CodeArray, interner: Interner[H]) -> Interner[H]:
    """Return an interner that knows only values that have a row; ``codes`` are rewritten to it.

    The first value keeps its code 0. Who holds the old interner holds copies of the old codes.
    """
    fresh = Interner(interner.values[0])
    present, where = np.unique(codes, return_inverse=True)
    renamed = [fresh.code(interner.values[code]) for code in present.tolist()]
    codes[:] = np.array(renamed, dtype=codes.dtype)[where]
    return fresh
