"""The names of the nodes by row, as of many attempts.

Every node that comes or goes changes the name of a row or two. A list of all names for each of
these would be most of the record's memory in a cluster whose nodes come and go, so what is kept is
such a list now and then, and how others differ from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, count
from operator import ne

_MAX_CHANGES = 64
"""From how many differences on a whole list is made."""
_BYTES_A_ROW = 8
_BYTES_A_CHANGE = 200
_BYTES = 300


class NodeNames:
    """The name of each row's node at one time; ``len`` is the number of rows.

    ``users``: how many records refer to it, and how many other names are kept as differences from
    it.
    """

    __slots__ = ("_base", "_changed", "_names", "_size", "users")

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._size = len(names)
        self._base: NodeNames | None = None
        self._changed: dict[int, str] = {}
        """The rows with other names than in ``_names``."""
        self.users = 0

    def followed_by(self, names: list[str]) -> NodeNames:
        """Return the names of a later time; this object where they are the same."""
        before = self._names
        # After most updates of nodes: a comparison of whole lists takes a third of the time.
        if not self._changed and names == before and len(names) == self._size:
            return self
        changed = {row: names[row] for row in compress(count(), map(ne, before, names))}
        changed |= {row: names[row] for row in range(len(before), len(names))}
        if changed == self._changed and len(names) == self._size:
            return self
        if max(len(changed), len(before) - len(names)) > _MAX_CHANGES:
            return NodeNames(names)
        following = NodeNames(before)
        following._base = self if self._base is None else self._base
        following._changed, following._size = changed, len(names)
        return following

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, row: int) -> str:
        changed = self._changed.get(row)
        return self._names[row] if changed is None else changed

    def of(self, rows: Iterable[int]) -> list[str]:
        """Return the names of some rows."""
        return [self[row] for row in rows]

    def row_of(self, name: str) -> int | None:
        """Return a node's row; None: it is not there."""
        for row, changed in self._changed.items():
            if changed == name:
                return row
        try:
            row = self._names.index(name)
        except ValueError:
            return None
        return None if row in self._changed or row >= self._size else row

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes, besides that of the names from which it differs."""
        if self._base is None:
            return _BYTES + _BYTES_A_ROW * self._size
        return _BYTES + _BYTES_A_CHANGE * len(self._changed)

    def retain(self) -> int:
        """Count another user; return how many bytes are in use now that were not before."""
        self.users += 1
        if self.users > 1:
            return 0
        return self.size_bytes + (0 if self._base is None else self._base.retain())

    def release(self) -> int:
        """Count a user less; return how many bytes nobody uses any more."""
        self.users -= 1
        if self.users:
            return 0
        return self.size_bytes + (0 if self._base is None else self._base.release())

    def held(self) -> list[NodeNames]:
        """Return the objects that a user keeps in memory: this one, and its base if there is
        one.
        """
        return [self] if self._base is None else [self, self._base]
