"""The results of Filter for every node in one attempt, as a column of small numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from proreus.base.logs import shortened
from proreus.framework.diagnosis import Diagnosis
from proreus.framework.status import Status
from proreus.framework.verdicts import CodeArray, IntArray, Rows, Verdicts

Numbers = np.ndarray[tuple[Any, ...], np.dtype[np.uint8]] | CodeArray
"""A number for each row, see ``VerdictColumn``."""

_BYTES_A_STATUS = 200
_BYTES_A_REASON = 100
_MOST_REASONS = 20
"""Of a status: one node may lack thousands of resources that a pod requests."""


def recorded_status(status: Status) -> Status:
    """Return a status as it is recorded: with its first reasons, where they are many."""
    more = len(status.reasons) - _MOST_REASONS
    if more <= 0:
        return status
    reasons = (*status.reasons[:_MOST_REASONS], f"and {more} more reasons")
    return replace(status, reasons=tuple(map(shortened, reasons)))


class VerdictColumn:
    """The rejection of each row, which never changes again.

    ``numbers[row]`` is an index into ``statuses``, 0 = passed; None: all passed. ``evaluated``: the
    rows that were filtered, None = all; every other row has ``absent_status``.
    """

    __slots__ = ("absent_status", "evaluated", "numbers", "statuses")

    def __init__(
        self,
        numbers: Numbers | None,
        statuses: Sequence[Status | None],
        evaluated: Rows | None = None,
        absent_status: Status | None = None,
    ) -> None:
        self.numbers = numbers
        self.statuses = statuses
        self.evaluated = evaluated
        self.absent_status = absent_status

    @classmethod
    def of(cls, verdicts: Verdicts, evaluated: Rows | None = None) -> VerdictColumn:
        """Return a copy of verdicts as they are now."""
        statuses = [one and recorded_status(one) for one in verdicts.statuses]
        return cls(copied_numbers(verdicts), statuses, evaluated)

    @classmethod
    def of_diagnosis(cls, diagnosis: Diagnosis) -> VerdictColumn:
        """Return a copy of the verdicts of a failed attempt."""
        column = cls.of(diagnosis.verdicts, diagnosis.evaluated)
        if diagnosis.evaluated is not None and diagnosis.absent_nodes_status.reasons:
            column.absent_status = recorded_status(diagnosis.absent_nodes_status)
        return column

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        size = _BYTES_A_STATUS * len(self.statuses)
        size += _BYTES_A_REASON * sum(len(one.reasons) for one in self.statuses if one is not None)
        for array in (self.numbers, self.evaluated):
            size += 0 if array is None else array.nbytes
        return size

    def status(self, row: int) -> Status | None:
        """Return why a row was rejected; None if it passed, or was not filtered."""
        numbers, evaluated = self.numbers, self.evaluated
        if evaluated is not None and row not in evaluated:
            return self.absent_status
        return None if numbers is None else self.statuses[int(numbers[row])]

    def passed_rows(self, size: int) -> Rows:
        """Return the rows that were filtered and passed, ascending, of a table of ``size`` rows."""
        numbers, evaluated = self.numbers, self.evaluated
        rows = np.arange(size) if evaluated is None else np.sort(evaluated)
        return rows if numbers is None else rows[numbers[rows] == 0]

    def rejections(self, size: int) -> Iterator[tuple[Status, Rows]]:
        """Yield each status with its rows, ascending, of a table of ``size`` rows."""
        numbers, evaluated = self.numbers, self.evaluated
        if numbers is not None:
            rows = np.flatnonzero(numbers)
            if evaluated is not None:
                rows = np.intersect1d(rows, evaluated, assume_unique=True)
            numbers = numbers[rows]
            for number in np.unique(numbers).tolist():
                status = self.statuses[number]
                assert status is not None
                yield status, rows[numbers == number]
        if evaluated is not None and self.absent_status is not None:
            absent = np.setdiff1d(np.arange(size), evaluated)
            if len(absent):
                yield self.absent_status, absent

    def changed(self, rows: Rows, numbers: IntArray, size: int) -> VerdictColumn:
        """Return the column with other numbers in some rows, of a table of ``size`` rows."""
        if self.numbers is None and not numbers.any():
            return self
        wide = np.zeros(size, np.int32) if self.numbers is None else self.numbers.astype(np.int32)
        wide[rows] = numbers
        return VerdictColumn(wide, self.statuses, self.evaluated, self.absent_status)

    def counts(self, size: int) -> VerdictCounts:
        """Return how many rows each status rejected."""
        return {status: len(rows) for status, rows in self.rejections(size)}

    def same_as(self, other: VerdictColumn) -> bool:
        """Return whether both have the same verdict of each row."""
        return (
            self.absent_status == other.absent_status
            and _same(self.evaluated, other.evaluated)
            and _same(self.numbers, other.numbers)
            # Statuses are only ever added, and a number that no row has decides nothing.
            and all(a == b for a, b in zip(self.statuses, other.statuses, strict=False))
        )


VerdictCounts = dict[Status, int]
"""The number of nodes that each status rejected."""


def copied_numbers(verdicts: Verdicts) -> Numbers | None:
    """Return a copy of the numbers of verdicts, in a byte each where that is enough."""
    if verdicts.ids is None:
        return None
    if len(verdicts.statuses) <= np.iinfo(np.uint8).max:
        return verdicts.ids.astype(np.uint8)
    return verdicts.ids.copy()


def _same(one: Rows | Numbers | None, other: Rows | Numbers | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
