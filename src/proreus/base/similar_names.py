"""The name that a misspelt one stands for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def similar(name: str, known: Iterable[str], closeness: float = 0.8) -> str:
    """Return the known name that is closest to a misspelt one; "" for none.

    ``closeness``: the least ratio of equal characters, at most 1.
    """
    close = get_close_matches(name, sorted(known), 1, closeness)
    return close[0] if close else ""
