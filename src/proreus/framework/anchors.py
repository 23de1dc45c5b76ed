"""A quick way from labels to the selectors that may select them.

A selector that asks for a label to be one of some values is *anchored* at each of these values:
only objects that carry one of them need be held against it, and only such selectors against an
object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from proreus.objects.selectors import Selector

T = TypeVar("T")

Anchor = tuple[str, str]
"""A label: key and value."""


def anchors_of(selector: Selector) -> tuple[Anchor, ...]:
    """Return labels of which every selected object carries one; () when there is no such list."""
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return tuple((requirement.key, value) for value in requirement.values)
    return ()


class Anchored(Generic[T]):
    """Things that select by label, to be found by the labels of an object."""

    __slots__ = ("_anywhere", "_at")

    def __init__(self) -> None:
        self._at: dict[Anchor, dict[T, None]] = {}
        self._anywhere: dict[T, None] = {}

    def add(self, selector: Selector, thing: T) -> None:
        """Add a thing with the selector that it selects by."""
        anchors = anchors_of(selector)
        for anchor in anchors:
            self._at.setdefault(anchor, {})[thing] = None
        if not anchors:
            self._anywhere[thing] = None

    def discard(self, selector: Selector, thing: T) -> None:
        """Take a thing away that was added with this selector."""
        for anchor in anchors_of(selector):
            things = self._at[anchor]
            del things[thing]
            if not things:
                del self._at[anchor]
        self._anywhere.pop(thing, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield everything that may select these labels, each once."""
        yield from self._anywhere
        if self._at:
            for label in labels.items():
                things = self._at.get(label)
                if things is not None:
                    yield from things
