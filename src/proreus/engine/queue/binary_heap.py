"""A heap in the layout of Go's ``container/heap``, for sort keys that change while items wait.

With fixed keys every heap pops in the same order, and ``KeyedHeap`` is several times as fast. Where
a key may change without the item being put again, the order of pops depends on which items are
compared with which: this one compares as kube-scheduler's queue does (``backend/heap``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from proreus.engine.queue.keyed_heap import KeyedHeap

T = TypeVar("T")


class BinaryHeap(Generic[T]):
    """Items by key, smallest ``sort_key`` first; keys are compared as they are at each comparison.

    The same operations as ``KeyedHeap``.
    """

    # Invariant: _positions has the index in _heap of each item's key.

    def __init__(self, sort_key: Callable[[T], Any]) -> None:
        self._sort_key: Callable[[T], Any] = sort_key
        self._heap: list[tuple[str, T]] = []
        self._positions: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, key: object) -> bool:
        return key in self._positions

    def get(self, key: str) -> T | None:
        """Return the item of a key, if it is there."""
        index = self._positions.get(key)
        return None if index is None else self._heap[index][1]

    def put(self, key: str, item: T) -> None:
        """Add an item, or replace and re-sort the one of the same key: O(log n)."""
        index = self._positions.get(key)
        if index is None:
            self._positions[key] = len(self._heap)
            self._heap.append((key, item))
            self._move_up(len(self._heap) - 1)
        else:
            self._heap[index] = (key, item)
            self._sort_anew(index)

    def discard(self, key: str) -> T | None:
        """Remove and return the item of a key, if it is there."""
        index = self._positions.get(key)
        if index is None:
            return None
        last = len(self._heap) - 1
        if index != last:
            self._swap(index, last)
            self._sort_anew(index, last)
        del self._positions[key]
        return self._heap.pop()[1]

    def peek(self) -> T | None:
        """Return the first item and leave it there."""
        return self._heap[0][1] if self._heap else None

    def pop(self) -> T | None:
        """Remove and return the first item."""
        return self.discard(self._heap[0][0]) if self._heap else None

    def keys(self) -> Iterable[str]:
        """Return the keys of all items, in no particular order."""
        return self._positions.keys()

    def items(self) -> list[T]:
        """Return all items in the order of their sort keys: O(n log n)."""
        return sorted((item for _, item in self._heap), key=self._sort_key)

    def set_sort_key(self, sort_key: Callable[[T], Any]) -> None:
        """Order all items by another sort key."""
        self._sort_key = sort_key
        for index in reversed(range(len(self._heap) // 2)):
            self._move_down(index, len(self._heap))

    def _sort_anew(self, index: int, size: int | None = None) -> None:
        if not self._move_down(index, len(self._heap) if size is None else size):
            self._move_up(index)

    def _less(self, one: int, other: int) -> bool:
        sort_key = self._sort_key
        return bool(sort_key(self._heap[one][1]) < sort_key(self._heap[other][1]))

    def _swap(self, one: int, other: int) -> None:
        heap = self._heap
        heap[one], heap[other] = heap[other], heap[one]
        self._positions[heap[one][0]] = one
        self._positions[heap[other][0]] = other

    def _move_up(self, index: int) -> None:
        while index:
            parent = (index - 1) // 2
            if not self._less(index, parent):
                break
            self._swap(index, parent)
            index = parent

    def _move_down(self, start: int, size: int) -> bool:
        """Move an item down among the first ``size``; return whether it moved."""
        index = start
        while (child := 2 * index + 1) < size:
            if child + 1 < size and self._less(child + 1, child):
                child += 1
            if not self._less(child, index):
                break
            self._swap(index, child)
            index = child
        return index > start

    def validate(self) -> None:
        """Assert that each item is where ``_positions`` says; the order may be out of date."""
        assert len(self._positions) == len(self._heap), "an item is missing, or there twice"
        for index, (key, _) in enumerate(self._heap):
            assert self._positions[key] == index, f"{key} is elsewhere"


def resorted(
    heap: KeyedHeap[T] | BinaryHeap[T], sort_key: Callable[[T], Any], changing: bool
) -> KeyedHeap[T] | BinaryHeap[T]:
    """Return a heap with another sort key; ``changing``: whether its keys may change later."""
    if isinstance(heap, BinaryHeap if changing else KeyedHeap):
        heap.set_sort_key(sort_key)
        return heap
    found: KeyedHeap[T] | BinaryHeap[T] = (BinaryHeap if changing else KeyedHeap)(sort_key)
    for key in list(heap.keys()):
        item = heap.get(key)
        assert item is not None
        found.put(key, item)
    return found
