from __future__ import annotations

import random

import pytest

from proreus.engine.queue.binary_heap import BinaryHeap, resorted
from proreus.engine.queue.keyed_heap import KeyedHeap


def heap_of(*names: str, keys: dict[str, int]) -> BinaryHeap[str]:
    heap: BinaryHeap[str] = BinaryHeap(lambda name: keys[name])
    for name in names:
        heap.put(name, name)
    return heap


@pytest.mark.parametrize("seed", range(20))
def test_with_fixed_keys_it_behaves_as_the_keyed_heap(seed: int) -> None:
    rng = random.Random(seed)
    binary: BinaryHeap[tuple[int, int]] = BinaryHeap(lambda item: item)
    keyed: KeyedHeap[tuple[int, int]] = KeyedHeap(lambda item: item)
    for step in range(300):
        key = f"p{rng.randrange(40)}"
        match rng.randrange(4):
            case 0 | 1:
                item = (rng.randrange(50), step)
                binary.put(key, item)
                keyed.put(key, item)
            case 2:
                assert binary.discard(key) == keyed.discard(key)
            case _:
                assert binary.peek() == keyed.peek()
                assert binary.pop() == keyed.pop()
        binary.validate()
        assert len(binary) == len(keyed)
        assert sorted(binary.keys()) == sorted(keyed.keys())
        assert (key in binary) == (key in keyed)
        assert binary.get(key) == keyed.get(key)
    assert binary.items() == keyed.items()


def test_keys_are_compared_as_they_are_at_the_comparison() -> None:
    keys = {"a": 1, "b": 2, "c": 3, "d": 4}
    heap = heap_of("a", "b", "c", "d", keys=keys)
    # As container/heap: the root stays the root until something is compared with it.
    keys["a"] = 9
    assert heap.pop() == "a"
    keys["c"] = 0
    assert heap.pop() == "b"
    assert [heap.pop(), heap.pop(), heap.pop()] == ["c", "d", None]


def test_another_sort_key_reorders() -> None:
    heap = heap_of("a", "b", "c", keys={"a": 1, "b": 2, "c": 3})
    heap.set_sort_key({"a": 3, "b": 2, "c": 1}.__getitem__)
    assert [heap.pop(), heap.pop(), heap.pop()] == ["c", "b", "a"]


def test_a_heap_is_exchanged_when_its_keys_begin_or_cease_to_change() -> None:
    keyed: KeyedHeap[str] = KeyedHeap(lambda name: name)
    for name in "bca":
        keyed.put(name, name)
    assert resorted(keyed, lambda name: name, changing=False) is keyed
    binary = resorted(keyed, lambda name: name, changing=True)
    assert isinstance(binary, BinaryHeap)
    assert binary.items() == ["a", "b", "c"]
    assert isinstance(resorted(binary, lambda name: name, changing=False), KeyedHeap)
