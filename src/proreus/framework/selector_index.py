"""An index from labels to the selectors that may select them.

A selector with an ``In`` requirement is indexed under each of its values: only objects with one of
these labels can match. All other selectors are candidates for every object.

Example: 500 Services select ``app in (name)``. For a pod with ``app=web`` and 5 more labels,
``candidates`` makes 6 look-ups and yields one Service, instead of evaluating 500 selectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from proreus.objects.selectors import Selector

T = TypeVar("T")

LabelPair = tuple[str, str]
"""A label: key and value."""


def indexable_labels(selector: Selector) -> tuple[LabelPair, ...]:
    """Return labels of which every selected object has one; () if there is no such list."""
    # Requirements are ANDed, so one of them is enough to narrow the candidates. ``Exists`` would
    # need an index by key alone and hardly narrows anything.
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return tuple((requirement.key, value) for value in requirement.values)
    return ()


class SelectorIndex(Generic[T]):
    """Values with a selector each, found by the labels of an object."""

    __slots__ = ("_by_label", "_unindexed")

    def __init__(self) -> None:
        self._by_label: dict[LabelPair, dict[T, None]] = {}
        self._unindexed: dict[T, None] = {}

    def add(self, selector: Selector, thing: T) -> None:
        """Add a value with its selector."""
        labels = indexable_labels(selector)
        for label in labels:
            self._by_label.setdefault(label, {})[thing] = None
        if not labels:
            self._unindexed[thing] = None

    def discard(self, selector: Selector, thing: T) -> None:
        """Remove a value that was added with this selector."""
        for label in indexable_labels(selector):
            things = self._by_label[label]
            del things[thing]
            if not things:
                del self._by_label[label]
        self._unindexed.pop(thing, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield every value whose selector may select these labels, each once."""
        # No value twice: a selector is indexed under values of one key, and an object has one value
        # for it. Dicts instead of sets keep the order the same from run to run.
        yield from self._unindexed
        if self._by_label:
            for label in labels.items():
                things = self._by_label.get(label)
                if things is not None:
                    yield from things
