"""A bounded set of columns of counts by row, updated incrementally.

A column is filled from sparse counts ``{row: count}`` at its first use and updated cell by cell
from then on. Memory is bounded: the least recently used column is evicted, and so is one that was
not used between two calls of ``age``.

Example: the first pod with a spread constraint over ``app=web`` fills a column from the pods that
match. Each ``app=web`` pod bound later adds 1 to one cell, and the next such pod reads the column.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from proreus.base.bounded_cache import register
from proreus.framework.columns import grown
from proreus.framework.verdicts import IntArray

_MEMORY_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 8
_FEWEST, _MOST = 16, 512


class CountColumn:
    """Counts by row. ``on_evicted(column)`` is called when the column is evicted."""

    __slots__ = ("counts", "on_evicted")

    def __init__(self, capacity: int, on_evicted: Callable[[CountColumn], None]) -> None:
        self.counts: IntArray = np.zeros(capacity, dtype=np.int64)
        self.on_evicted = on_evicted

    def add_all(self, by_row: Mapping[int, int], times: int = 1) -> None:
        """Add sparse counts by row, ``times`` over."""
        add_by_row(self.counts, by_row, times)


def add_by_row(counts: npt.NDArray[Any], by_row: Mapping[int, int], times: int = 1) -> None:
    """Add sparse counts by row, ``times`` over, to an array of integers."""
    # An indexed ``+=`` counts a repeated row once only; the keys of a mapping do not repeat.
    if by_row:
        rows = np.fromiter(by_row.keys(), dtype=np.intp, count=len(by_row))
        counts[rows] += times * np.fromiter(by_row.values(), counts.dtype, count=len(by_row))


class CountColumns:
    """The columns in use, by the key of their counts."""

    __slots__ = ("__weakref__", "_columns", "_unused", "_zeros", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._columns: OrderedDict[Hashable, CountColumn] = OrderedDict()
        self._unused: set[Hashable] = set()
        """Keys of columns that were not used since ``age`` was called last."""
        self._zeros: IntArray = np.empty(0, dtype=np.int64)
        register(self)

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, key: Hashable) -> CountColumn:
        return self._columns[key]

    def items(self) -> Iterable[tuple[Hashable, CountColumn]]:
        """Return all keys with their columns."""
        return self._columns.items()

    def get(self, key: Hashable) -> CountColumn | None:
        """Return a column, or None, and mark it as recently used."""
        column = self._columns.get(key)
        # By use, not by age: a column that every replica of a Deployment reads must not be evicted
        # by selectors that single pods bring once.
        if column is not None:
            self._columns.move_to_end(key)
            if self._unused:
                self._unused.discard(key)
        return column

    def new(self, key: Hashable, on_evicted: Callable[[CountColumn], None]) -> CountColumn:
        """Return a new column of zeros; evicts the least recently used one at the limit."""
        while len(self._columns) >= self.limit:
            oldest = next(iter(self._columns))
            self._unused.discard(oldest)
            self._evict(oldest)
        column = self._columns[key] = CountColumn(self.capacity, on_evicted)
        return column

    def zeros(self) -> IntArray:
        """Return read-only counts of 0."""
        if len(self._zeros) != self.capacity:
            self._zeros = np.zeros(self.capacity, dtype=np.int64)
            self._zeros.flags.writeable = False
        return self._zeros

    def discard(self, key: Hashable) -> None:
        """Drop a column that counts something that no longer exists."""
        self._columns.pop(key, None)
        self._unused.discard(key)

    def age(self) -> None:
        """Evict the columns that were not used since the last call."""
        for key in self._unused:
            self._evict(key)
        self._unused = set(self._columns)

    def _evict(self, key: Hashable) -> None:
        # The owner must stop updating an evicted column, and drop its own reference to it: a
        # column that nobody updates would be silently wrong when it is found again.
        column = self._columns.pop(key)
        column.on_evicted(column)

    @property
    def limit(self) -> int:
        """The maximum number of columns, by memory."""
        affordable = _MEMORY_BUDGET_BYTES // (_BYTES_A_ROW * self.capacity)
        return max(_FEWEST, min(_MOST, affordable))

    def grow(self, capacity: int) -> None:
        """Extend the columns to ``capacity`` rows."""
        self.capacity = capacity
        for column in self._columns.values():
            column.counts = grown(column.counts, capacity)
