"""Memory for columns that are kept by the thousand, one after another in large blocks.

Kept among the short-lived arrays of attempts, small columns would lie in the holes that these leave
and reuse: every following attempt would then work in memory that is new to it, which costs more
than the copies themselves. A block lives as long as one of its columns, so only what is given up in
about the order in which it was made should be put here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_BLOCK_BYTES = 4 * 2**20


class ColumnArena:
    """Copies columns into blocks. ``budget_bytes``: what all of them are to take, roughly."""

    def __init__(self, budget_bytes: int) -> None:
        self._block_bytes = min(_BLOCK_BYTES, budget_bytes // 16)
        self._block = np.empty(0, dtype=np.uint8)
        self._used = 0

    def copy(self, column: npt.NDArray[Any], kind: type[np.generic]) -> npt.NDArray[Any]:
        """Return a copy of a column with elements of another type, which have to hold its values.

        A column that is large for a block, or of more than a byte an element, gets its own memory.
        """
        size = len(column)
        if kind is not np.uint8 or 4 * size > self._block_bytes:
            return column.astype(kind)
        end = self._used + size
        if end > len(self._block):
            self._block, self._used, end = np.empty(self._block_bytes, dtype=np.uint8), 0, size
        copied = self._block[self._used : end]
        self._used = end
        copied[:] = column
        return copied
