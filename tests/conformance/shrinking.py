"""Reduce a case: objects and steps are removed first, then fields, as long as it shows the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

JsonObject = dict[str, Any]

Place = tuple[str | int, ...]
"""Keys and indices that lead to a part of a case."""

_KEPT = frozenset(
    {"apiVersion", "kind", "metadata", "name", "namespace", "uid", "spec", "status", "startTime"}
)
_ROUNDS = 20


class Shrinking:
    """A case that is being reduced. ``hold``: which cases still show what is looked for."""

    def __init__(
        self, case: JsonObject, hold: Callable[[Sequence[JsonObject]], list[bool]]
    ) -> None:
        self._case = case
        self._hold = hold

    def small(self) -> JsonObject:
        """Return the case without all parts that can be removed."""
        if not self._hold([self._case])[0]:
            return self._case
        for part in ("objects", "steps"):
            self._halve(part)
        for _ in range(_ROUNDS):
            places = list(_places(self._case))
            spare = [p for p, one in zip(places, self._tried(places), strict=True) if one]
            if not spare:
                break
            self._leave_out(spare)
        return self._case

    def _halve(self, part: str) -> None:
        """Remove items of a list, many at a time while that works."""
        size = len(self._case.get(part) or ())
        while size:
            items = self._case[part]
            starts = range(0, len(items), size)
            chunks = [[(part, n) for n in range(s, min(s + size, len(items)))] for s in starts]
            spare = [
                chunk
                for chunk, one in zip(
                    chunks, self._hold([_without(self._case, c) for c in chunks]), strict=True
                )
                if one
            ]
            if spare:
                self._leave_out_most([place for chunk in spare for place in chunk], spare[0])
            size = size if spare and size > 1 else size // 2

    def _leave_out(self, places: Sequence[Place]) -> None:
        """Remove independent parts together if that works, else one."""
        chosen: list[Place] = []
        for place in sorted(places, key=len):
            if not any(place[: len(above)] == above for above in chosen):
                chosen.append(place)
        self._leave_out_most(chosen, chosen[:1])

    def _leave_out_most(self, many: Sequence[Place], few: Sequence[Place]) -> None:
        while len(many) > len(few):
            smaller = _without(self._case, many)
            if self._hold([smaller])[0]:
                self._case = smaller
                return
            many = many[: len(many) // 2]
        self._case = _without(self._case, few)

    def _tried(self, places: Sequence[Place]) -> list[bool]:
        return self._hold([_without(self._case, [place]) for place in places])


def _places(case: JsonObject) -> Iterator[Place]:
    for part in ("features", "config", "objects", "pod", "steps"):
        if case.get(part):
            yield from _within(case[part], (part,))
    if case.get("config"):
        yield ("config",)


def _within(value: Any, place: Place) -> Iterator[Place]:
    if not isinstance(value, dict | list):
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if key not in _KEPT and not (len(place) == 2 and place[0] == "steps"):
            yield (*place, key)
        yield from _within(part, (*place, key))


def _without(case: JsonObject, places: Sequence[Place]) -> JsonObject:
    """Return the case without these parts; a case always has a configuration, if only null."""
    smaller = copy.deepcopy(case)
    # from the end of a list, so that the other indices remain valid
    for place in sorted(places, key=_order, reverse=True):
        if place == ("config",):
            smaller["config"] = None
            continue
        holder: Any = smaller
        for key in place[:-1]:
            holder = holder[key]
        del holder[place[-1]]
    return smaller


def _order(place: Place) -> tuple[tuple[int, str], ...]:
    return tuple((key, "") if isinstance(key, int) else (0, key) for key in place)
