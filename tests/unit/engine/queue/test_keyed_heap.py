from __future__ import annotations

import weakref

from hypothesis import given
from hypothesis import strategies as st

from proreus.engine.queue.keyed_heap import KeyedHeap


class Item:
    def __init__(self, prioritize_nodes: int) -> None:
        self.prioritize_nodes = prioritize_nodes


def heap_of(*ranks: tuple[str, int]) -> KeyedHeap[Item]:
    heap: KeyedHeap[Item] = KeyedHeap(lambda item: item.prioritize_nodes)
    for key, prioritize_nodes in ranks:
        heap.put(key, Item(prioritize_nodes))
    return heap


def drain(heap: KeyedHeap[Item]) -> list[int]:
    return [item.prioritize_nodes for item in iter(heap.pop, None)]


def test_smallest_comes_first_and_ties_in_order_of_arrival():
    heap = heap_of(("b", 2), ("a", 1), ("c", 2), ("d", 1))
    order = [next(k for k in "abcd" if heap.get(k) is item) for item in heap.items()]
    assert order == ["a", "d", "b", "c"]
    first = heap.peek()
    assert first is heap.get("a")
    assert heap.pop() is first
    assert "a" not in heap
    assert len(heap) == 3


class Rank:
    """A sort key that knows ``<`` alone, as those of plugins do."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __lt__(self, other: Rank) -> bool:
        return self._rank < other._rank


def test_sort_keys_need_nothing_but_less_than():
    heap: KeyedHeap[int] = KeyedHeap(dict(enumerate(map(Rank, (3, 1, 2, 1)))).__getitem__)
    for number in range(4):
        heap.put(str(number), number)
    heap.validate()
    assert [heap.pop() for _ in range(4)] == [1, 3, 2, 0]


def test_empty():
    heap = heap_of()
    assert heap.pop() is None
    assert heap.peek() is None
    assert heap.discard("a") is None
    assert heap.get("a") is None


def test_item_that_changed_is_sorted_anew_when_put_again():
    heap = heap_of(("a", 1), ("b", 2), ("c", 3))
    item = heap.get("c")
    assert item is not None
    item.prioritize_nodes = 0
    heap.put("c", item)
    heap.validate()
    assert drain(heap) == [0, 1, 2]


def test_item_of_the_same_key_is_replaced():
    heap = heap_of(("a", 1), ("a", 1))
    heap.put("a", replacement := Item(1))
    assert len(heap) == 1
    assert heap.pop() is replacement
    assert heap.pop() is None


def test_resort():
    heap = heap_of(("a", 1), ("b", 2), ("c", 3))
    heap.discard("b")
    heap.set_sort_key(lambda item: -item.prioritize_nodes)
    heap.validate()
    assert drain(heap) == [3, 1]


def test_memory_stays_bounded_when_items_are_put_again_and_again():
    heap = heap_of(("a", 0), ("b", 0))
    item = heap.get("a")
    assert item is not None
    for prioritize_nodes in range(10_000):
        item.prioritize_nodes = prioritize_nodes
        heap.put("a", item)
        heap.put("c", Item(prioritize_nodes))
        heap.discard("c")
    heap.validate()
    assert len(heap._heap) < 200


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "discard", "pop"]),
            st.sampled_from("abcdefgh"),
            st.integers(0, 5),
        )
    )
)
def test_agrees_with_a_sorted_list(steps: list[tuple[str, str, int]]):
    heap: KeyedHeap[Item] = KeyedHeap(lambda item: item.prioritize_nodes)
    model: dict[str, Item] = {}
    for step, key, prioritize_nodes in steps:
        if step == "put":
            model.pop(key, None)
            model[key] = Item(prioritize_nodes)
            heap.put(key, model[key])
        elif step == "discard":
            assert heap.discard(key) is model.pop(key, None)
        else:
            expected = min(model, key=lambda k: model[k].prioritize_nodes, default=None)
            assert heap.pop() is (None if expected is None else model.pop(expected))
        heap.validate()
    assert heap.items() == sorted(model.values(), key=lambda item: item.prioritize_nodes)


def test_removed_and_replaced_items_are_not_kept():
    first, second = Item(2), Item(2)
    gone = [weakref.ref(first), weakref.ref(second)]
    heap = heap_of(("a", 1))
    heap.put("b", first)
    heap.put("b", second)
    del first
    assert gone[0]() is None
    heap.discard("b")
    del second
    assert gone[1]() is None
    heap.validate()
