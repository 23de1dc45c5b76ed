"""What a plugin's process has answered, by row, and which of it still holds.

An answer about a row holds until one of the columns that the plugin looks at changes there. For
plugins that are ``row_local`` it holds for every pod that looks alike to them; for others only
within one attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.remote.snapshot import Snapshot

_MEMORY_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 28
_MOST_ENTRIES = 256
_SPARE_STATUSES = 1024

_NOT_ASKED = Status.error("was not asked about this node")


class RowVersions:
    """When each row was answered about, by the snapshot's versions; 0 = not yet.

    Nothing holds any more once the process was told anew, or speaks of another epoch.
    """

    def __init__(self) -> None:
        self.at: IntArray = np.zeros(0, dtype=np.int64)
        self._origin = ("", "")

    def outdated(self, snapshot: Snapshot, epoch: str) -> bool:
        """Tell whether all of it is void; from now on it is about this snapshot and epoch."""
        origin = (snapshot.id, epoch)
        void = origin != self._origin
        if void or len(self.at) != snapshot.size:
            self.at = _resized(self.at if not void else self.at[:0], snapshot.size)
        self._origin = origin
        return void

    def stale(self, snapshot: Snapshot, rows: Rows) -> Rows:
        """Return those of the rows that have to be asked about."""
        return rows[self.at[rows] < snapshot.changed_at[rows]]


class RowResults:
    """What is known about pods that look alike: a verdict and a raw score a row."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._judged, self._scored = RowVersions(), RowVersions()
        self._verdicts = Verdicts(0, plugin)
        self._scores: IntArray = np.zeros(0, dtype=np.int64)

    # ---- filter --------------------------------------------------------------------------------

    def rows_without_verdict(self, snapshot: Snapshot, epoch: str, rows: Rows) -> Rows:
        """Return the rows whose verdicts are not known."""
        size, verdicts = snapshot.size, self._verdicts
        many = len(verdicts.statuses) > _SPARE_STATUSES + 2 * size
        if self._judged.outdated(snapshot, epoch) or many:
            self._judged.at[:] = 0
            verdicts = self._verdicts = Verdicts(size, self._plugin)
            verdicts.ids = np.zeros(size, dtype=np.int32)
        elif verdicts.size != size:
            assert verdicts.ids is not None
            verdicts.ids = _resized(verdicts.ids, size)
            verdicts.size = size
        return self._judged.stale(snapshot, rows)

    def set_verdicts(
        self, rows: Rows, rejected: Rows, by: Sequence[Status], which: IntArray, version: int
    ) -> None:
        """Note verdicts: ``rows`` were asked about, of which ``rejected`` cannot do.

        ``which`` has the index in ``by`` for each of the latter.
        """
        ids = self._verdicts.ids
        assert ids is not None
        numbers = np.array([self._verdicts.id_of(status) for status in by], dtype=np.int32)
        ids[rows] = 0
        ids[rejected] = numbers[which]
        self._judged.at[rows] = version

    def verdicts(self, rows: Rows) -> Verdicts:
        """Return the verdicts of some rows; an Error where the row was not asked about."""
        part = self._verdicts.take(rows)
        unasked = np.flatnonzero(self._judged.at[rows] == 0)
        if len(unasked):
            part = part.copy()
            part.reject_with(unasked, _NOT_ASKED)
        return part

    # ---- score ---------------------------------------------------------------------------------

    def rows_without_score(self, snapshot: Snapshot, epoch: str, rows: Rows) -> Rows:
        """Return the rows whose scores are not known."""
        self._scored.outdated(snapshot, epoch)
        if len(self._scores) != snapshot.size:
            self._scores = _resized(self._scores, snapshot.size)
        return self._scored.stale(snapshot, rows)

    def set_scores(self, rows: Rows, scores: IntArray, version: int) -> None:
        """Note scores of some rows."""
        self._scores[rows] = scores
        self._scored.at[rows] = version

    def scores(self, rows: Rows) -> IntArray:
        """Return the scores of rows that were asked about."""
        return self._scores[rows]


class RowResultsCache:
    """What is known by signature; the least recently used goes first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, RowResults] = OrderedDict()

    def of(self, signature: bytes, plugin: str, size: int) -> RowResults:
        """Return what is known about pods with a signature; ``size``: how many rows there are."""
        known = self._entries.get(signature)
        if known is None:
            known = self._entries[signature] = RowResults(plugin)
            most = _MEMORY_BUDGET_BYTES // (_BYTES_A_ROW * max(size, 1))
            while len(self._entries) > max(4, min(_MOST_ENTRIES, most)):
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(signature)
        return known

    def clear(self) -> None:
        """Forget everything: these can be megabytes, and who holds them may be slow to go."""
        self._entries.clear()


def _resized(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    resized = np.zeros(size, dtype=array.dtype)
    kept = min(size, len(array))
    resized[:kept] = array[:kept]
    return resized
