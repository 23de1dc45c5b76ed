"""Columns of counts that are kept up to date while somebody uses them.

A column is filled from a sparse ``{row: count}`` when it is first asked for, and changes cell by
cell from then on. Memory is bounded: the least recently used column goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np

from proreus.framework.columns import grown
from proreus.framework.verdicts import CodeArray

_MEMORY_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 4
_FEWEST, _MOST = 16, 512


class CountColumn:
    """Counts by row. ``on_evicted`` is called when nobody keeps it up to date any more."""

    __slots__ = ("counts", "on_evicted")

    def __init__(self, capacity: int, on_evicted: Callable[[CountColumn], None]) -> None:
        self.counts: CodeArray = np.zeros(capacity, dtype=np.int32)
        self.on_evicted = on_evicted

    def add_all(self, by_row: Mapping[int, int]) -> None:
        """Add counts by row."""
        if by_row:
            rows = np.fromiter(by_row.keys(), dtype=np.intp, count=len(by_row))
            self.counts[rows] += np.fromiter(by_row.values(), dtype=np.int32, count=len(by_row))


class CountColumns:
    """All columns in use, by what they count."""

    __slots__ = ("_columns", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._columns: OrderedDict[Hashable, CountColumn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, key: Hashable) -> CountColumn:
        return self._columns[key]

    def items(self) -> Iterable[tuple[Hashable, CountColumn]]:
        """Return every column with what it counts."""
        return self._columns.items()

    def get(self, key: Hashable) -> CountColumn | None:
        """Return a column, and remember that it is in use."""
        column = self._columns.get(key)
        if column is not None:
            self._columns.move_to_end(key)
        return column

    def new(self, key: Hashable, on_evicted: Callable[[CountColumn], None]) -> CountColumn:
        """Return a new column of zeros; where there are too many, the oldest is let go."""
        while len(self._columns) >= self.limit:
            _, oldest = self._columns.popitem(last=False)
            oldest.on_evicted(oldest)
        column = self._columns[key] = CountColumn(self.capacity, on_evicted)
        return column

    def discard(self, key: Hashable) -> None:
        """Drop a column whose subject is gone."""
        self._columns.pop(key, None)

    @property
    def limit(self) -> int:
        """How many columns there may be."""
        affordable = _MEMORY_BUDGET_BYTES // (_BYTES_A_ROW * self.capacity)
        return max(_FEWEST, min(_MOST, affordable))

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self.capacity = capacity
        for column in self._columns.values():
            column.counts = grown(column.counts, capacity)
