"""Small numbers for values that repeat: labels, taint sets, port sets, image sets."""

from collections.abc import Hashable
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)

ABSENT = -1


class Interner(Generic[H]):
    """Gives each distinct value a code: 0, 1, 2 … in order of first appearance.

    Codes stay valid for the life of the interner; ``values[code]`` is the way back.
    """

    __slots__ = ("__weakref__", "_codes", "values")

    def __init__(self, *first: H) -> None:
        self._codes: dict[H, int] = {}
        self.values: list[H] = []
        for value in first:
            self.code(value)

    def __len__(self) -> int:
        return len(self.values)

    def code(self, value: H) -> int:
        """Return the code of a value, a new one where it is new."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def find(self, value: H) -> int:
        """Return the code of a value, or ``ABSENT``."""
        return self._codes.get(value, ABSENT)
