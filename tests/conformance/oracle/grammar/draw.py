"""Random choices in the words of a grammar; the same seed makes the same choices."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

JsonObject = dict[str, Any]


class Draw(random.Random):
    """A source of chance."""

    def chance(self, share: float) -> bool:
        """Return True in this share of the cases."""
        return self.random() < share

    def some(self, items: Sequence[T], least: int = 0) -> list[T]:
        """Return a few of the items, at least so many, in any order."""
        return self.sample(items, self.randint(least, len(items)))

    def fields(self, share: float, **fields: Any) -> JsonObject:
        """Return this share of the fields."""
        return {name: value for name, value in fields.items() if self.chance(share)}

    def weighted(self, weights: Mapping[T, float]) -> T:
        """Return a key, as often as its weight says."""
        return self.choices(list(weights), list(weights.values()))[0]
