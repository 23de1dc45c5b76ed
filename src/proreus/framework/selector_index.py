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

LabelPair = tuple[str, str]
"""A label: key and value."""


def indexable_labels(selector: Selector) -> tuple[LabelPair, ...]:
    """Return labels of which every selected object carries one; () when there is no such list."""
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return tuple((requirement.key, value) for value in requirement.values)
    return ()


class SelectorIndex(Generic[T]):
    """Things that select by label, to be found by the labels of an object."""

    __slots__ = ("_by_label", "_unindexed")

    def __init__(self) -> None:
        self._by_label: dict[LabelPair, dict[T, None]] = {}
        self._unindexed: dict[T, None] = {}

    def add(self, selector: Selector, thing: T) -> None:
        """Add a thing with the selector that it selects by."""
        labels = indexable_labels(selector)
        for label in labels:
            self._by_label.setdefault(label, {})[thing] = None
        if not labels:
            self._unindexed[thing] = None

    def discard(self, selector: Selector, thing: T) -> None:
        """Take a thing away that was added with this selector."""
        for label in indexable_labels(selector):
            things = self._by_label[label]
            del things[thing]
            if not things:
                del self._by_label[label]
        self._unindexed.pop(thing, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield everything that may select these labels, each once."""
        yield from self._unindexed
        if self._by_label:
            for label in labels.items():
                things = self._by_label.get(label)
                if things is not None:
                    yield from things
