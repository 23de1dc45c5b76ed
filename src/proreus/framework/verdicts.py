"""Verdicts: the result of Filter for every row, as an array of small numbers.

Each number stands for a status. Nothing is allocated until the first rejection, and never an object
for each node: "0/5000 nodes are available: …" is a histogram over the numbers.

Example: rows 1 and 2 of four have too little cpu, row 3 a taint. ``statuses`` is [None,
Insufficient cpu, untolerated taint] and ``ids`` is [0, 1, 1, 2].
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from proreus.framework.status import Code, Status, checked

IntArray = npt.NDArray[np.int64]
"""Amounts, counts or scores, one for each row."""
CodeArray = npt.NDArray[np.int32]
"""Codes of values, one for each row."""
BoolArray = npt.NDArray[np.bool_]
"""A mask of rows."""
FloatArray = npt.NDArray[np.float64]
"""Fractions or points, one for each row."""
Rows = npt.NDArray[np.intp]
"""Numbers of rows, ascending unless said otherwise."""

PASSED = 0
"""The number of a row that no plugin rejected."""


class Verdicts:
    """The first rejection of each row of a table.

    ``size`` is the number of rows. ``ids[row]`` is an index into ``statuses``; 0 means passed.
    ``ids`` is None while every row passes. The first rejection of a row stays: later ones of the
    same row are ignored, as kube-scheduler's Filter stops at the first plugin that rejects a node.
    """

    __slots__ = ("_id_by_status", "ids", "plugin", "size", "statuses")

    def __init__(self, size: int, plugin: str = "") -> None:
        self.size: int = size
        self.plugin = plugin
        self.ids: CodeArray | None = None
        self.statuses: list[Status | None] = [None]
        self._id_by_status: dict[Status, int] = {}

    def reject(self, where: BoolArray | Rows, *reasons: str, unresolvable: bool = False) -> None:
        """Reject the rows of a mask, or of an array of row numbers, for the given reasons.

        ``unresolvable``: preemption would not help there.
        """
        code = Code.UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE
        self.reject_with(where, Status(code, reasons, self.plugin))

    def reject_with(self, where: BoolArray | Rows, status: Status) -> None:
        """Reject rows with a status; rows that are rejected already keep theirs.

        Raises ``ValueError`` for a mask of the wrong length.
        """
        if where.dtype == np.bool_:
            # NumPy would broadcast a mask of one element: a plugin's bug would reject all nodes.
            if where.shape != (self.size,):
                raise ValueError(f"the mask has the shape {where.shape}, not ({self.size},)")
            if not where.any():
                return
            # The usual case, a plugin's first rejection, takes a third of the time without a merge.
            if self.ids is None:
                self.ids = np.multiply(where, self.id_of(status), dtype=np.int32)
            else:
                np.copyto(self.ids, self.id_of(status), where=where & (self.ids == PASSED))
        elif len(where):
            ids = self._ensure_ids()
            ids[where[ids[where] == PASSED]] = self.id_of(status)

    def reject_row(self, row: int, status: Status) -> None:
        """Reject one row with a status, unless it is rejected already."""
        ids = self._ensure_ids()
        if ids[row] == PASSED:
            ids[row] = self.id_of(status)

    def id_of(self, status: Status) -> int:
        """Return the number of a status, a new one if it is new; sets its plugin."""
        if not status.plugin and self.plugin:
            status = status.with_plugin(self.plugin)
        # By value: a per-node plugin creates an equal status for every node that it rejects.
        number = self._id_by_status.get(status)
        if number is None:
            if not isinstance(status, Status):
                raise TypeError(f"a rejection must be a Status, not {status!r}")
            status = checked(status)
            number = self._id_by_status[status] = len(self.statuses)
            self.statuses.append(status)
        return number

    def status(self, row: int) -> Status | None:
        """Return the status of a row; None if it passed."""
        return None if self.ids is None else self.statuses[self.ids[row]]

    def passed(self) -> BoolArray:
        """Return the mask of rows that no plugin rejected."""
        if self.ids is None:
            return np.ones(self.size, dtype=np.bool_)
        passed: BoolArray = self.ids == PASSED
        return passed

    def passed_rows(self) -> Rows:
        """Return the rows that no plugin rejected, ascending."""
        if self.ids is None:
            return np.arange(self.size)
        rows: Rows = (self.ids == PASSED).nonzero()[0]
        return rows

    def counts(self) -> Mapping[Status, int]:
        """Return the number of rejected rows by status."""
        if self.ids is None:
            return {}
        numbers = np.bincount(self.ids, minlength=len(self.statuses))
        return {
            status: int(count)
            for status, count in zip(self.statuses, numbers.tolist(), strict=True)
            if status is not None and count
        }

    def rows_with(self, *codes: Code) -> Rows:
        """Return the rows that were rejected with one of the codes."""
        if self.ids is None:
            return np.empty(0, dtype=np.intp)
        # One look at each status, then a gather: there are few statuses and thousands of rows.
        wanted = [s is not None and s.code in codes for s in self.statuses]
        return np.flatnonzero(np.array(wanted, dtype=np.bool_)[self.ids])

    def merge(self, other: Verdicts) -> None:
        """Add the rejections of a later plugin; rows rejected already keep theirs."""
        if other.ids is None:
            return
        # The two number their statuses differently: a table from one to the other renumbers all
        # rows in one gather.
        numbers = np.array(
            [PASSED, *(self.id_of(s) for s in other.statuses[1:] if s is not None)], dtype=np.int32
        )
        if self.ids is None:
            self.ids = numbers[other.ids]
        else:
            np.copyto(self.ids, numbers[other.ids], where=self.ids == PASSED)

    def take(self, rows: Rows) -> Verdicts:
        """Return the verdicts of some rows, in the order given; shares the statuses."""
        # The list of statuses is shared and only ever grows, so the numbers of both stay valid.
        part = Verdicts(len(rows), self.plugin)
        part.statuses = self.statuses
        part._id_by_status = self._id_by_status
        if self.ids is not None:
            part.ids = self.ids[rows]
        return part

    def scatter(self, rows: Rows, size: int) -> Verdicts:
        """Return independent verdicts of ``size`` rows: these ones at ``rows``, the others pass."""
        whole = Verdicts(size, self.plugin)
        whole.statuses = list(self.statuses)
        whole._id_by_status = dict(self._id_by_status)
        if self.ids is not None:
            whole.ids = np.zeros(size, dtype=np.int32)
            whole.ids[rows] = self.ids
        return whole

    def copy(self) -> Verdicts:
        """Return an independent copy, of no plugin: anybody may reject further rows in it."""
        other = Verdicts(self.size)
        other.statuses = list(self.statuses)
        other._id_by_status = dict(self._id_by_status)
        other.ids = None if self.ids is None else self.ids.copy()
        return other

    def _ensure_ids(self) -> CodeArray:
        if self.ids is None:
            self.ids = np.zeros(self.size, dtype=np.int32)
        return self.ids
