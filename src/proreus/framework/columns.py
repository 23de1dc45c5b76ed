"""The stuff that a node table is woven from: resource columns, label columns, image counts.

Columns have spare capacity; what readers get is cut to the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from proreus.framework.interning import ABSENT, Interner
from proreus.framework.verdicts import CodeArray, IntArray, Rows
from proreus.objects.node import Node

MAX_INT64 = 2**63 - 1

ImageSet = frozenset[str]


class Sized(Protocol):
    """What columns must know of their table."""

    size: int
    capacity: int


class Images:
    """Which nodes have which images.

    ``nodes_with[name]`` counts nodes; ``size_bytes[name]`` is the size that the first node
    reported, kept until no node has the image, as in kube-scheduler's cache. ``version`` moves
    with every change.
    """

    __slots__ = ("nodes_with", "size_bytes", "version")

    def __init__(self) -> None:
        self.nodes_with: dict[str, int] = {}
        self.size_bytes: dict[str, int] = {}
        self.version = 0

    def replace(self, old: ImageSet, node: Node | None) -> ImageSet:
        """Count a node's images in place of those that it had; return the new set of names."""
        sizes = {
            name: image.size_bytes
            for image in (node.status.images if node is not None else ())
            for name in image.names
        }
        new = frozenset(sizes)
        if new == old:
            return old
        self.version += 1
        for name in old - new:
            self.nodes_with[name] -= 1
            if not self.nodes_with[name]:
                del self.nodes_with[name], self.size_bytes[name]
        for name in new - old:
            self.nodes_with[name] = self.nodes_with.get(name, 0) + 1
            self.size_bytes.setdefault(name, sizes[name])
        return new


class ResourceColumns:
    """One int64 column a resource; a resource that no node has reads as zeros."""

    __slots__ = ("_arrays", "_table")

    def __init__(self, table: Sized) -> None:
        self._table = table
        self._arrays: dict[str, IntArray] = {}

    def __getitem__(self, resource: str) -> IntArray:
        """Return the column, shape ``(len(table),)``; not to be written to."""
        array = self._arrays.get(resource)
        size = self._table.size
        return np.zeros(size, dtype=np.int64) if array is None else array[:size]

    def __contains__(self, resource: str) -> bool:
        return resource in self._arrays

    def put(self, row: int, amounts: dict[str, int]) -> None:
        """Set the cells of a row; resources that it does not name become 0."""
        for resource in amounts:
            if resource not in self._arrays:
                self._arrays[resource] = np.zeros(self._table.capacity, dtype=np.int64)
        for resource, array in self._arrays.items():
            array[row] = min(amounts.get(resource, 0), MAX_INT64)

    def put_some(self, row: int, resources: Sequence[str], amounts: dict[str, int]) -> None:
        """Set the cells of the named resources only."""
        arrays = self._arrays
        for resource in resources:
            array = arrays.get(resource)
            if array is None:
                array = arrays[resource] = np.zeros(self._table.capacity, dtype=np.int64)
            array[row] = min(amounts[resource], MAX_INT64)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._arrays = {name: grown(array, capacity) for name, array in self._arrays.items()}

    def move(self, source: int, target: int) -> None:
        """Copy the cells of a row over those of another."""
        for array in self._arrays.values():
            array[target] = array[source]

    def gather(self, table: Sized, rows: Rows) -> ResourceColumns:
        """Return the columns of some rows, as a fork's own."""
        other = ResourceColumns(table)
        other._arrays = {name: array[rows] for name, array in self._arrays.items()}
        return other


class LabelColumn:
    """The values of one label as codes; -1 where the node does not carry it."""

    __slots__ = ("codes", "values")

    def __init__(self, capacity: int, values: Interner[str] | None = None) -> None:
        self.codes: CodeArray = np.full(capacity, ABSENT, dtype=np.int32)
        self.values: Interner[str] = Interner() if values is None else values


def grown(array: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    """Return a copy with room for ``capacity`` rows; new cells are zero."""
    wider = np.zeros(capacity, dtype=array.dtype)
    wider[: len(array)] = array
    return wider
