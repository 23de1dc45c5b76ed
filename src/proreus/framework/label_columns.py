"""Node labels as columns of codes, one column for each label key that a pod has referred to.

Whoever may create pods chooses these keys. A key that no node has gets no column, and a requirement
on it is evaluated without looking at any node.

Example: ``zone in (a, b)`` over 5,000 nodes. The column ``zone`` has codes by row; "a" and "b" are
codes 0 and 2, and the mask is one ``np.isin`` over 5,000 small integers, not 5,000 dict look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from proreus.base.bounded_cache import BoundedCache
from proreus.framework.columns import compacted, grown, read_only
from proreus.framework.interning import ABSENT, Interner
from proreus.framework.node_info import NodeInfo
from proreus.framework.verdicts import BoolArray, CodeArray, IntArray
from proreus.objects.selectors import Requirement, Selector, parse_int64

if TYPE_CHECKING:
    from proreus.framework.node_table import NodeTable

_BUDGET_BYTES = 64 * 2**20
_BYTES_A_COLUMN = 32 * 2**10
"""At least, in a small cluster: each column makes an update of a node slower."""


class LabelColumn:
    """The values of one label as codes; -1 where the node does not have it.

    ``readable``: the codes as what may only be read: NumPy refuses writes.
    """

    __slots__ = ("codes", "readable", "values")

    def __init__(self, capacity: int, values: Interner[str] | None = None) -> None:
        self.codes: CodeArray = np.full(capacity, ABSENT, dtype=np.int32)
        self.readable: CodeArray = read_only(self.codes[:])
        self.values: Interner[str] = Interner() if values is None else values

    def grow(self, capacity: int) -> None:
        """Extend the column to ``capacity`` rows."""
        self.codes = grown(self.codes, capacity)
        self.readable = read_only(self.codes[:])


class LabelColumns:
    """The columns of one table, each created at its first use and dropped when it is not used."""

    def __init__(self) -> None:
        self._columns: BoundedCache[str, LabelColumn] = BoundedCache(_BUDGET_BYTES)
        # Weak: whoever works with codes holds the interner that they are from. If a column is
        # created again meanwhile, its codes are of the same interner.
        self._values: WeakValueDictionary[str, Interner[str]] = WeakValueDictionary()
        self._keys: set[str] = set()
        """Every key that a node has, and some that nodes had earlier."""
        self._absent = LabelColumn(0)
        """The column of every key that no node has."""

    def __contains__(self, key: str) -> bool:
        """Return whether a node may have a label."""
        return key in self._keys

    def column(self, key: str, infos: Iterable[NodeInfo], capacity: int) -> LabelColumn:
        """Return the column of a label, filled from the rows ``infos`` at its first use.

        The column of a key that no node has is not kept.
        """
        column = self._columns.get(key)
        if column is None:
            # A pod may name thousands of keys that no node has; a column of 5,000 cells for each of
            # them would be memory that pods can claim at will.
            if key not in self._keys:
                return self._absent_column(capacity)
            column = LabelColumn(capacity, self._values.get(key))
            self._columns.put(key, column, _size_bytes(capacity))
            self._values[key] = column.values
            codes, code = column.codes, column.values.code
            for row, info in enumerate(infos):
                value = info.labels.get(key)
                if value is not None:
                    codes[row] = code(value)
        return column

    def _absent_column(self, capacity: int) -> LabelColumn:
        if len(self._absent.codes) != capacity:
            self._absent = LabelColumn(capacity)
        return self._absent

    @property
    def column_count(self) -> int:
        """The number of columns that exist."""
        return len(self._columns)

    def forget_unused_keys(self, infos: Iterable[NodeInfo]) -> None:
        """Forget the keys that neither a row nor a column has."""
        self._keys = {key for key, _ in self._columns.items()}.union(*(i.labels for i in infos))

    def put(self, row: int, labels: Mapping[str, str], size: int, most_values: int) -> None:
        """Update a row; a column with more than ``most_values`` values forgets unused ones."""
        # Only columns that exist are written: a label that no pod has referred to costs its key in
        # a set, however many nodes have it.
        self._keys.update(labels)
        if not self._columns:
            return
        for key, column in self._columns.items():
            value = labels.get(key)
            column.codes[row] = ABSENT if value is None else column.values.code(value)
            if len(column.values) > most_values:
                # Nodes come and go for months, each with a hostname of its own.
                column.values = compacted(column.codes[:size], column.values)
                self._values[key] = column.values

    def grow(self, capacity: int) -> None:
        """Extend the columns to ``capacity`` rows."""
        columns = self._columns.items()
        self._columns.clear()
        for key, column in columns:
            column.grow(capacity)
            self._columns.put(key, column, _size_bytes(capacity))

    def move(self, source: int, target: int) -> None:
        """Copy the cells of a row over those of another."""
        for _, column in self._columns.items():
            column.codes[target] = column.codes[source]

    def difference(self, row: int, labels: Mapping[str, str]) -> str:
        """Return the key of a label whose column disagrees with a row's labels; "" if none."""
        for key, column in self._columns.items():
            expected = labels.get(key)
            code = ABSENT if expected is None else column.values.find(expected)
            if column.codes[row] != code or (code == ABSENT and expected is not None):
                return key
        return next((key for key in labels if key not in self._keys), "")


def _size_bytes(capacity: int) -> int:
    return max(_BYTES_A_COLUMN, capacity * np.dtype(np.int32).itemsize)


def selector_mask(nodes: NodeTable, selector: Selector) -> BoolArray:
    """Return the mask of nodes whose labels a selector selects."""
    mask = mask_of(nodes, selector)
    if isinstance(mask, bool):
        return np.full(nodes.size, mask, dtype=np.bool_)
    return mask


def mask_of(nodes: NodeTable, selector: Selector) -> BoolArray | bool:
    """Return the mask of nodes whose labels a selector selects, as a bool if all are alike."""
    if selector.nothing:
        return False
    mask: BoolArray | bool = True
    # Requirements are ANDed: the first one that no node matches ends it.
    for requirement in selector.requirements:
        # No node has the key: ``NotIn`` and ``DoesNotExist`` hold everywhere, the rest nowhere.
        if not nodes.has_label(requirement.key):
            if not requirement.matches_value(None):
                return False
            continue
        matching = _requirement_mask(nodes, requirement)
        if matching is False:
            return False
        if mask is True:
            mask = matching
        elif matching is not True:
            mask = mask & matching
    return mask


def _requirement_mask(nodes: NodeTable, requirement: Requirement) -> BoolArray | bool:
    codes, values = nodes.label(requirement.key), nodes.label_values(requirement.key)
    match requirement.operator:
        case "Exists":
            return np.not_equal(codes, ABSENT)
        case "DoesNotExist":
            return np.equal(codes, ABSENT)
        case "In" | "NotIn":
            # Values that no node has cannot match; if none is left, no row needs to be looked at.
            wanted = [c for c in map(values.find, requirement.values) if c != ABSENT]
            inside = requirement.operator == "In"
            if not wanted:
                return not inside
            if len(wanted) == 1:
                compare = np.equal if inside else np.not_equal
                return compare(codes, wanted[0])
            return np.isin(codes, wanted, invert=not inside)
    (bound,) = requirement.values
    numbers, numeric = _numbers.of(values)
    if not numeric.any():
        return False
    holds = numbers > int(bound) if requirement.operator == "Gt" else numbers < int(bound)
    # Compared once for each distinct value, then gathered; code -1 indexes the last entry, absent.
    matching: BoolArray = (holds & numeric).take(codes)
    return matching


class _Numbers:
    """The values of labels as int64, by code, and which of them are numbers.

    One more entry at the end, not a number, is for nodes without the label.
    """

    def __init__(self) -> None:
        # Weak: a column that forgets its values has a new interner, and the old one goes.
        self._known: WeakKeyDictionary[Interner[str], tuple[IntArray, BoolArray]] = (
            WeakKeyDictionary()
        )

    def of(self, values: Interner[str]) -> tuple[IntArray, BoolArray]:
        known = self._known.get(values)
        if known is None or len(known[0]) != len(values) + 1:
            parsed = [*map(parse_int64, values.values), None]
            numbers = np.array([number or 0 for number in parsed], dtype=np.int64)
            numeric = np.array([number is not None for number in parsed], dtype=np.bool_)
            known = self._known[values] = numbers, numeric
        return known


_numbers = _Numbers()
