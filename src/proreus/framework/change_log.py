"""A bounded log of changes, for readers that each remember how far they have read.

Example: a reader has seen everything up to position 10. Rows 4, 7 and 4 change; the position is 13.
``since(10, size)`` returns [4, 7], and the reader remembers 13.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

_SHORTEST = 4096
_FEW = 64
"""If more rows than that changed, one call over all rows is cheaper than one a row."""

T = TypeVar("T")


class Changes(Generic[T]):
    """The latest changes; beyond ``limit`` of them the older half is forgotten.

    ``position``: the end of the log, to be passed to ``changed_since`` later.
    """

    __slots__ = ("_changed", "_forgotten", "limit", "position")

    def __init__(self, limit: int) -> None:
        self.position = 0
        self.limit = limit
        self._changed: list[T] = []
        self._forgotten = 0

    def record(self, changed: T) -> None:
        """Append a change."""
        self._changed.append(changed)
        self.position += 1
        if len(self._changed) > self.limit:
            self._forget()

    def record_all(self, changed: Iterable[T]) -> None:
        """Append several changes."""
        self._changed.extend(changed)
        self.position = self._forgotten + len(self._changed)
        if len(self._changed) > self.limit:
            self._forget()

    def changed_since(self, position: int) -> list[T] | None:
        """Return the changes since a position, each once; None if they are forgotten."""
        start = position - self._forgotten
        return None if start < 0 else list(dict.fromkeys(self._changed[start:]))

    def _forget(self) -> None:
        # Half at a time, so that deleting from the front of the list is constant-time a change.
        half = len(self._changed) // 2
        del self._changed[:half]
        self._forgotten += half


class ChangeLog(Changes[int]):
    """The rows of a table that changed."""

    __slots__ = ("_last_query", "_last_rows")

    def __init__(self) -> None:
        super().__init__(_SHORTEST)
        # The last query: the dozen plugins of a cycle all read from the position of the last pod.
        self._last_query = (-1, -1)
        self._last_rows: list[int] = []

    def reserve(self, rows: int) -> None:
        """Set the limit for a table of so many rows."""
        # A reader that is further behind than there are rows evaluates all of them anyway.
        self.limit = _SHORTEST + 2 * rows

    def few_since(self, position: int, known_size: int, size: int) -> list[int] | None:
        """Return the rows to evaluate again for results as of a position; None means all rows.

        ``known_size``: the number of rows then, ``size``: that of today.
        """
        # After a node was added or removed, rows have moved and the results have the wrong length.
        if position < 0 or known_size != size:
            return None
        rows = self.since(position, size)
        return rows if rows is not None and len(rows) <= _FEW else None

    def since(self, position: int, size: int) -> list[int] | None:
        """Return the rows below ``size`` that changed since, each once; None if forgotten.

        The caller must not change the list: others get the same one.
        """
        query = position, self.position
        if query != self._last_query:
            changed = self.changed_since(position)
            if changed is None:
                return None
            self._last_query, self._last_rows = query, changed
        rows = self._last_rows
        if rows and max(rows) >= size:
            # The table has shrunk since: these rows do not exist any more.
            return [row for row in rows if row < size]
        return rows
