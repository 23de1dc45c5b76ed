"""Which rows of a table changed, in order, for whoever looks now and then."""

from __future__ import annotations

from collections.abc import Iterable

_SHORTEST = 4096


class ChangeLog:
    """The rows that changed lately; what is older than the table is long is forgotten.

    ``position``: where the record ends now, to be handed to ``since`` later.
    """

    __slots__ = ("_answer", "_asked", "_forgotten", "_rows", "limit", "position")

    def __init__(self) -> None:
        self.position = 0
        self.limit = _SHORTEST
        self._rows: list[int] = []
        self._forgotten = 0
        self._asked = (-1, -1)
        self._answer: list[int] = []

    def note(self, row: int) -> None:
        """Note that a row changed."""
        self._rows.append(row)
        self.position += 1
        if len(self._rows) > self.limit:
            self._forget()

    def note_all(self, rows: Iterable[int]) -> None:
        """Note that rows changed."""
        self._rows.extend(rows)
        self.position = self._forgotten + len(self._rows)
        if len(self._rows) > self.limit:
            self._forget()

    def make_room(self, rows: int) -> None:
        """Remember enough for a table of so many rows."""
        self.limit = _SHORTEST + 2 * rows

    def since(self, position: int, size: int) -> list[int] | None:
        """Return the rows below ``size`` that changed since, each once; None when not known.

        The list is not to be changed: whoever asks from the same position is given the same one.
        """
        asked = position, self.position
        if asked != self._asked:
            start = position - self._forgotten
            if start < 0:
                return None
            self._asked, self._answer = asked, list(dict.fromkeys(self._rows[start:]))
        answer = self._answer
        if answer and max(answer) >= size:
            # A row that changed and then went away with its node is nobody's concern any more.
            return [row for row in answer if row < size]
        return answer

    def _forget(self) -> None:
        half = len(self._rows) // 2
        del self._rows[:half]
        self._forgotten += half
