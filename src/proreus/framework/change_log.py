"""What changed, in order, for whoever looks now and then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

_SHORTEST = 4096

T = TypeVar("T")


class Changes(Generic[T]):
    """What changed lately; beyond ``limit`` changes the older half is forgotten.

    ``position``: where the record ends now, to be handed to ``since`` later.
    """

    __slots__ = ("_changed", "_forgotten", "limit", "position")

    def __init__(self, limit: int) -> None:
        self.position = 0
        self.limit = limit
        self._changed: list[T] = []
        self._forgotten = 0

    def record(self, changed: T) -> None:
        """Note that something changed."""
        self._changed.append(changed)
        self.position += 1
        if len(self._changed) > self.limit:
            self._forget()

    def record_all(self, changed: Iterable[T]) -> None:
        """Note that several things changed."""
        self._changed.extend(changed)
        self.position = self._forgotten + len(self._changed)
        if len(self._changed) > self.limit:
            self._forget()

    def changed_since(self, position: int) -> list[T] | None:
        """Return what changed since, each once; None when that is no longer known."""
        start = position - self._forgotten
        return None if start < 0 else list(dict.fromkeys(self._changed[start:]))

    def _forget(self) -> None:
        half = len(self._changed) // 2
        del self._changed[:half]
        self._forgotten += half


class ChangeLog(Changes[int]):
    """The rows of a table that changed; what is older than the table is long is forgotten."""

    __slots__ = ("_answer", "_asked")

    def __init__(self) -> None:
        super().__init__(_SHORTEST)
        self._asked = (-1, -1)
        self._answer: list[int] = []

    def reserve(self, rows: int) -> None:
        """Remember enough for a table of so many rows."""
        self.limit = _SHORTEST + 2 * rows

    def since(self, position: int, size: int) -> list[int] | None:
        """Return the rows below ``size`` that changed since, each once; None when not known.

        The list is not to be changed: whoever asks from the same position is given the same one.
        """
        asked = position, self.position
        if asked != self._asked:
            rows = self.changed_since(position)
            if rows is None:
                return None
            self._asked, self._answer = asked, rows
        answer = self._answer
        if answer and max(answer) >= size:
            # A row that changed and then went away with its node is nobody's concern any more.
            return [row for row in answer if row < size]
        return answer
