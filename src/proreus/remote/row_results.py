"""Cached results of a remote plugin, by row.

A result is valid until one of the plugin's columns changes in its row. Results of ``row_local``
plugins are valid for all equivalent pods, those of other plugins only within one attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proreus.base.bounded_cache import BoundedCache
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.remote.snapshot import Snapshot, resized

_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 28
_BYTES_AN_ENTRY = 16 * 2**10
_SPARE_STATUSES = 1024

_NO_RESULT = Status.error("has no result for this node")


class RowVersions:
    """The snapshot version of each row's result; 0 = no result.

    All results are invalid once the process got a new snapshot or reports another epoch.
    """

    def __init__(self) -> None:
        self.at: IntArray = np.zeros(0, dtype=np.int64)
        self._origin = ("", "")

    def outdated(self, snapshot: Snapshot, epoch: str) -> bool:
        """Return whether all results are invalid; adopt the snapshot and epoch."""
        origin = (snapshot.id, epoch)
        void = origin != self._origin
        if void or len(self.at) != snapshot.size:
            self.at = resized(self.at if not void else self.at[:0], snapshot.size)
        self._origin = origin
        return void

    def stale(self, snapshot: Snapshot, rows: Rows) -> Rows:
        """Return the rows without a valid result."""
        return rows[self.at[rows] < snapshot.changed_at[rows]]


class RowResults:
    """The results for equivalent pods: one verdict and one raw score per row."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._filtered, self._scored = RowVersions(), RowVersions()
        self._verdicts = Verdicts(0, plugin)
        self._scores: IntArray = np.zeros(0, dtype=np.int64)

    # ---- filter --------------------------------------------------------------------------------

    def rows_without_verdict(self, snapshot: Snapshot, epoch: str, rows: Rows) -> Rows:
        """Return the rows without a valid verdict."""
        size, verdicts = snapshot.size, self._verdicts
        many = len(verdicts.statuses) > _SPARE_STATUSES + 2 * size
        if self._filtered.outdated(snapshot, epoch) or many:
            self._filtered.at[:] = 0
            verdicts = self._verdicts = Verdicts(size, self._plugin)
            verdicts.ids = np.zeros(size, dtype=np.int32)
        elif verdicts.size != size:
            assert verdicts.ids is not None
            verdicts.ids = resized(verdicts.ids, size)
            verdicts.size = size
        return self._filtered.stale(snapshot, rows)

    def set_verdicts(
        self, rows: Rows, rejected: Rows, by: Sequence[Status], which: IntArray, version: int
    ) -> None:
        """Set the verdicts of ``rows``, of which the plugin rejected ``rejected``.

        ``which`` has, for each rejected row, the index of its status in ``by``.
        """
        ids = self._verdicts.ids
        assert ids is not None
        numbers = np.array([self._verdicts.id_of(status) for status in by], dtype=np.int32)
        ids[rows] = 0
        ids[rejected] = numbers[which]
        self._filtered.at[rows] = version

    def verdicts(self, rows: Rows) -> Verdicts:
        """Return the verdicts of some rows; Error for rows without one."""
        part = self._verdicts.take(rows)
        missing = np.flatnonzero(self._filtered.at[rows] == 0)
        if len(missing):
            part = part.copy()
            part.reject_with(missing, _NO_RESULT)
        return part

    # ---- score ---------------------------------------------------------------------------------

    def rows_without_score(self, snapshot: Snapshot, epoch: str, rows: Rows) -> Rows:
        """Return the rows without a valid score."""
        self._scored.outdated(snapshot, epoch)
        if len(self._scores) != snapshot.size:
            self._scores = resized(self._scores, snapshot.size)
        return self._scored.stale(snapshot, rows)

    def set_scores(self, rows: Rows, scores: IntArray, version: int) -> None:
        """Set the scores of some rows."""
        self._scores[rows] = scores
        self._scored.at[rows] = version

    def scores(self, rows: Rows) -> IntArray:
        """Return the scores of some rows, 0 for rows without one."""
        return self._scores[rows]


class RowResultsCache:
    """``RowResults`` by pod signature; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._entries: BoundedCache[bytes, RowResults] = BoundedCache(_BUDGET_BYTES)

    def of(self, signature: bytes, plugin: str, size: int) -> RowResults:
        """Return the results for pods with a signature; ``size`` is the number of rows."""
        known = self._entries.get(signature)
        if known is None:
            known = RowResults(plugin)
            size_bytes = max(_BYTES_A_ROW * size, _BYTES_AN_ENTRY) + len(signature)
            self._entries.put(signature, known, size_bytes)
        return known

    def clear(self) -> None:
        """Drop everything: it can be megabytes, and a replaced plugin may live on for a while."""
        self._entries.clear()
