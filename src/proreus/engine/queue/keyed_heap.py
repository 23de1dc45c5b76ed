"""A heap whose items can be found, re-sorted and removed by key.

``heapq`` with lazy deletion: a removed or re-sorted entry stays in the list, without its item,
until it is popped and skipped, or until removed entries are the majority. Equal sort keys come out
first in, first out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_ITEM = 3
"""Where the item is in an entry."""
_SMALL = 64
"""So few removed entries are not worth a clean-up."""


class KeyedHeap(Generic[T]):
    """Items by key, smallest ``sort_key`` first.

    A sort key is computed when an item is put; after a change the caller puts the item again.
    """

    # Invariant: an entry of _heap, [sort key, number, key, item], is alive if and only if it is the
    # very one in _entries; others have no item. The number is unique, so that items are never
    # compared.

    def __init__(self, sort_key: Callable[[T], Any]) -> None:
        self._sort_key: Callable[[T], Any] = sort_key
        self._heap: list[list[Any]] = []
        self._entries: dict[str, list[Any]] = {}
        self._puts = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: str) -> T | None:
        """Return the item of a key, if it is there."""
        entry = self._entries.get(key)
        return None if entry is None else entry[_ITEM]

    def put(self, key: str, item: T) -> None:
        """Add an item, or replace and re-sort the one of the same key: O(log n)."""
        sort_key = self._sort_key(item)
        # A pod is put at every update, most of which change nothing that it is sorted by.
        present = self._entries.get(key)
        if present is not None and present[_ITEM] is item and present[0] == sort_key:
            return
        self._puts += 1
        entry = [sort_key, self._puts, key, item]
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)
        if present is not None:
            present[_ITEM] = None
            self._shrink()

    def discard(self, key: str) -> T | None:
        """Remove and return the item of a key, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        # A standby pops nothing: its heap would keep pods that are gone, of megabytes each.
        item: T = entry[_ITEM]
        entry[_ITEM] = None
        self._shrink()
        return item

    def peek(self) -> T | None:
        """Return the smallest item and leave it there."""
        heap, alive = self._heap, self._entries
        while heap:
            entry = heap[0]
            if alive.get(entry[2]) is entry:
                smallest: T = entry[_ITEM]
                return smallest
            heapq.heappop(heap)
        return None

    def pop(self) -> T | None:
        """Remove and return the smallest item."""
        heap, alive = self._heap, self._entries
        while heap:
            entry = heapq.heappop(heap)
            key = entry[2]
            if alive.get(key) is entry:
                del alive[key]
                smallest: T = entry[_ITEM]
                return smallest
        return None

    def keys(self) -> Iterable[str]:
        """Return the keys of all items, in no particular order."""
        return self._entries.keys()

    def items(self) -> list[T]:
        """Return all items in the order in which they would come out: O(n log n)."""
        return [entry[_ITEM] for entry in sorted(self._entries.values())]

    def set_sort_key(self, sort_key: Callable[[T], Any]) -> None:
        """Order all items by another sort key; equal ones keep their order."""
        self._sort_key = sort_key
        for _, number, key, item in self._entries.values():
            self._entries[key] = [sort_key(item), number, key, item]
        self._rebuild()

    def _shrink(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SMALL:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = list(self._entries.values())
        heapq.heapify(self._heap)

    def validate(self) -> None:
        """Assert that the list holds every present entry once, in heap order, and little else."""
        heap = self._heap
        alive = [entry for entry in heap if self._entries.get(entry[2]) is entry]
        assert len(alive) == len(self._entries), "an item is missing from the heap, or there twice"
        dead = [entry for entry in heap if self._entries.get(entry[2]) is not entry]
        assert all(entry[_ITEM] is None for entry in dead), "an item that was removed is kept"
        assert len(heap) <= 2 * len(self._entries) + _SMALL + 1, "dead entries pile up"
        for index in range(1, len(heap)):
            assert not heap[index] < heap[(index - 1) // 2], "the heap is out of order"
        for key, entry in self._entries.items():
            assert entry[2] == key, f"{key} is kept under another key"
            assert entry[0] == self._sort_key(entry[_ITEM]), f"{key} changed and was not put again"
