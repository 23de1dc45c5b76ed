"""The node columns that a process has been sent, and the updates that it needs.

The columns that the plugin requested are sent whole once, and then only rows in which one of them
changed. A copy of the sent values shows which those are: a new pod on a node does not concern a
plugin that reads only labels.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray, Rows
from proreus.remote import wire
from proreus.remote.columns import NAME, Values, is_numeric, numbers, values


class Snapshot:
    """The columns of one process. ``id`` and ``version`` identify the last update.

    ``changed_at``: by row, the version in which it last changed. Invariant: once all updates that
    ``next_update`` returned have arrived, the process has the columns that are kept here.
    """

    def __init__(self, columns: tuple[str, ...], arrays: wire.Arrays) -> None:
        # The name is always sent: without it a row cannot be related to a node.
        self._names = (NAME, *(name for name in columns if name != NAME))
        self._arrays: wire.Arrays = arrays
        self._numbers: dict[str, IntArray] = {}
        self._values: dict[str, Values] = {}
        self._table: NodeTable | None = None
        self._position = -1
        self.id = uuid4().hex
        self.version = 0
        self.size = 0
        self.changed_at: IntArray = np.zeros(0, dtype=np.int64)

    def next_update(self, table: NodeTable) -> dict[str, Any] | None:
        """Return the next update, taken as sent from now on; None if nothing changed."""
        if table is not self._table:
            return self._whole(table)
        if table.position == self._position and table.size == self.size:
            return None
        rows = self._resized(table.size)
        changes = table.changes_since(self._position)
        candidates = np.arange(table.size) if changes is None else np.array(changes, dtype=np.intp)
        self._position = table.position
        changed = np.union1d(rows, self._take_over(table, candidates)).astype(np.intp)
        if not len(changed) and table.size == self.size:
            return None
        self.size = table.size
        return self._message(changed, whole=False)

    def _whole(self, table: NodeTable) -> dict[str, Any]:
        self._table, self._position = table, table.position
        self._resized(table.size)
        everything = np.arange(table.size)
        self._take_over(table, everything)
        self.size = table.size
        return self._message(everything, whole=True)

    def _resized(self, size: int) -> Rows:
        """Resize all columns; return the new rows."""
        old = len(self.changed_at)
        self.changed_at = resized(self.changed_at, size)
        for name in self._names:
            if is_numeric(name):
                known = self._numbers.get(name, np.zeros(0, dtype=np.int64))
                self._numbers[name] = resized(known, size)
            else:
                texts = self._values.setdefault(name, [])
                del texts[size:]
                texts.extend([None] * (size - len(texts)))
        return np.arange(old, size)

    def _take_over(self, table: NodeTable, rows: Rows) -> Rows:
        """Copy rows from the table; return the rows with a changed value."""
        different = np.zeros(len(rows), dtype=np.bool_)
        for name in self._names:
            if is_numeric(name):
                column, fresh = self._numbers[name], numbers(table, name, rows)
                different |= column[rows] != fresh
                column[rows] = fresh
            else:
                texts = self._values[name]
                for index, (row, value) in enumerate(
                    zip(rows.tolist(), values(table, name, rows), strict=True)
                ):
                    if texts[row] != value:
                        texts[row] = value
                        different[index] = True
        return rows[different]

    def _message(self, rows: Rows, *, whole: bool) -> dict[str, Any]:
        base, self.version = self.version, self.version + 1
        self.changed_at[rows] = self.version
        return {
            "snapshot": self.id,
            "version": self.version,
            "base": None if whole else base,
            "size": self.size,
            "rows": None if whole else wire.array(rows, self._arrays),
            "columns": {name: self._column(name, rows, whole) for name in self._names},
        }

    def _column(self, name: str, rows: Rows, whole: bool) -> Any:
        if is_numeric(name):
            column = self._numbers[name]
            return wire.array(column if whole else column[rows], self._arrays)
        texts = self._values[name]
        sent = texts if whole else [texts[row] for row in rows.tolist()]
        return sent if name == NAME else _coded(sent, self._arrays)


def _coded(column: Values, arrays: wire.Arrays) -> dict[str, Any]:
    """Return a column as its distinct values and one index per row; -1 = none."""
    codes: dict[Any, int] = {}
    each = [-1 if value is None else codes.setdefault(value, len(codes)) for value in column]
    return {"values": list(codes), "codes": wire.array(np.array(each, dtype=np.int64), arrays)}


def resized(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return an array with the first entries of another one, and zeros after them."""
    found = np.zeros(size, dtype=array.dtype)
    kept = min(size, len(array))
    found[:kept] = array[:kept]
    return found
