"""An index from labels to the selectors that may select them.

A selector with an ``In`` requirement is indexed under each of its values: only objects with one of
these labels can match. One with ``Exists`` is indexed under the key. All other selectors are
candidates for every object.

Example: 500 Services select ``app in (name)``. For a pod with ``app=web`` and 5 more labels,
``candidates`` makes 6 look-ups and yields one Service, instead of evaluating 500 selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import Generic, NamedTuple, TypeVar

from proreus.objects.selectors import Selector

T = TypeVar("T")

LabelPair = tuple[str, str]
"""A label: key and value."""


class LabelNeeds(NamedTuple):
    """The needs of every selected object: one of ``labels``, or else a label with the key.

    With neither it may be any object.
    """

    labels: tuple[LabelPair, ...] = ()
    key: str | None = None

    @property
    def any(self) -> bool:
        """Whether an object needs a label to be selected."""
        return bool(self.labels) or self.key is not None


def needs_of(selector: Selector) -> LabelNeeds:
    """Return the needs of every object that a selector selects."""
    # Requirements are ANDed, so one of them is enough to narrow the candidates.
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return LabelNeeds(tuple(zip(repeat(requirement.key), requirement.values, strict=False)))
    for requirement in selector.requirements:
        if requirement.operator == "Exists":
            return LabelNeeds(key=requirement.key)
    return LabelNeeds()


def needs_of_any(selectors: Iterable[Selector]) -> LabelNeeds:
    """Return the needs of every object that one of the selectors selects."""
    every = list(map(needs_of, selectors))
    keys = {one.labels[0][0] if one.labels else one.key for one in every}
    if None in keys:
        return LabelNeeds()
    if all(one.labels for one in every):
        return LabelNeeds(tuple(dict.fromkeys(chain.from_iterable(one.labels for one in every))))
    return LabelNeeds(key=keys.pop()) if len(keys) == 1 else LabelNeeds()


class SelectorIndex(Generic[T]):
    """Values with the needs of selected objects, found by the labels of an object."""

    __slots__ = ("_by_key", "_by_label", "_unindexed")

    def __init__(self) -> None:
        self._by_label: dict[LabelPair, dict[T, None]] = {}
        self._by_key: dict[str, dict[T, None]] = {}
        self._unindexed: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self._by_label) + len(self._by_key) + len(self._unindexed)

    def add(self, needs: LabelNeeds, value: T) -> None:
        """Add a value."""
        for label in needs.labels:
            self._by_label.setdefault(label, {})[value] = None
        if not needs.labels:
            key = needs.key
            values = self._unindexed if key is None else self._by_key.setdefault(key, {})
            values[value] = None

    def discard(self, needs: LabelNeeds, value: T) -> None:
        """Remove a value that was added with these needs."""
        for label in needs.labels:
            del self._by_label[label][value]
            if not self._by_label[label]:
                del self._by_label[label]
        if not needs.labels:
            key = needs.key
            if key is None:
                del self._unindexed[value]
                return
            del self._by_key[key][value]
            if not self._by_key[key]:
                del self._by_key[key]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield every value that may select an object with these labels, each once."""
        # Dicts instead of sets keep the order the same from run to run.
        return iter(dict.fromkeys(self._found(labels)))

    def _found(self, labels: Mapping[str, str]) -> Iterator[T]:
        yield from self._unindexed
        # The fewer are looked up among the more: an object may have 100,000 labels.
        if len(labels) <= len(self._by_label):
            for label in labels.items():
                yield from self._by_label.get(label, ())
        else:
            for (key, value), found in self._by_label.items():
                if labels.get(key) == value:
                    yield from found
        for key in labels if len(labels) <= len(self._by_key) else self._by_key:
            if key in labels and key in self._by_key:
                yield from self._by_key[key]
