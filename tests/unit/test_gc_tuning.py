"""When the garbage collector runs."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from proreus import gc_tuning
from proreus.gc_tuning import CollectionAfterPeak, _mallopt, collect_between_cycles


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations that were collected; nothing is collected of its own accord."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.disable()
    gc.collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.enable()


@pytest.fixture
def few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs tests has more of them than a scheduler."""
    monkeypatch.setattr(gc_tuning, "_MANY_OBJECTS", 10**9)


def test_a_few_young_objects_are_left_where_they_are(collections: list[int]) -> None:
    gc.collect(0)
    collect_between_cycles()
    assert collections == [0]


def test_many_young_objects_are_collected_between_cycles(collections: list[int]) -> None:
    for _ in range(4):
        gc.collect(0)
    collect_between_cycles()
    assert collections == [0, 0, 0, 0, 1]
    collect_between_cycles()
    assert collections == [0, 0, 0, 0, 1]


@pytest.mark.usefixtures("few_objects")
def test_everything_is_collected_once_memory_has_fallen_from_a_peak(
    collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    resident, now = 0, 1_000.0
    monkeypatch.setattr(gc_tuning, "resident_bytes", lambda: resident)
    monkeypatch.setattr(gc_tuning, "perf_counter", lambda: now)
    collection = CollectionAfterPeak()
    made = []
    for resident in (100, 300, 310, 300, 290, 200, 199, 195, 195, 0, 195):
        before = len(collections)
        collection.collect_if_fallen()
        made += [resident] * (len(collections) - before)
    # 5 % less than at the peak, and 2 % less each time while it falls on
    assert made == [290, 200, 195]
    # and once when it falls no further
    for resident in (195, 195, 194, 194):
        now += gc_tuning._LAST_SECONDS
        before = len(collections)
        collection.collect_if_fallen()
        made += [resident] * (len(collections) - before)
    assert made == [290, 200, 195, 195]
    now += gc_tuning._FALLING_SECONDS
    for resident in (191, 186, 180):
        before = len(collections)
        collection.collect_if_fallen()
        made += [resident] * (len(collections) - before)
    assert made == [290, 200, 195, 195, 180]
    assert set(collections) == {2}


@pytest.mark.parametrize("reason", ["memory has risen", "many objects"])
def test_the_last_collection_is_left_out(
    reason: str, collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    resident, now = 300, 1_000.0
    monkeypatch.setattr(gc_tuning, "resident_bytes", lambda: resident)
    monkeypatch.setattr(gc_tuning, "perf_counter", lambda: now)
    monkeypatch.setattr(gc_tuning, "_MANY_OBJECTS", 10**9)
    collection = CollectionAfterPeak()
    assert not collection.collect_if_fallen()
    resident = 200
    assert collection.collect_if_fallen()
    if reason == "memory has risen":
        resident = 205
    else:
        monkeypatch.setattr(gc_tuning, "_MANY_OBJECTS", 0)
    now += gc_tuning._LAST_SECONDS
    assert not collection.collect_if_fallen()
    resident = 203  # less than 2 % below what it has risen to
    monkeypatch.setattr(gc_tuning, "_MANY_OBJECTS", 10**9)
    assert not collection.collect_if_fallen()
    assert collections == [2]


def test_a_collection_of_many_objects_waits_until_they_are_fewer(
    collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    resident, now, tracked = 300, 1_000.0, 200_000
    monkeypatch.setattr(gc_tuning, "resident_bytes", lambda: resident)
    monkeypatch.setattr(gc_tuning, "perf_counter", lambda: now)
    monkeypatch.setattr(gc, "get_objects", lambda: range(tracked))
    collection = CollectionAfterPeak()
    collection.collect_if_fallen()
    resident = 200
    assert not collection.collect_if_fallen()
    now = 1_020.0
    assert not collection.collect_if_fallen()
    tracked = 50_000
    assert collection.collect_if_fallen()

    resident, tracked = 100, 200_000
    for moment, collects in ((2_000.0, False), (2_300.0, False), (2_601.0, True)):
        now = moment
        assert collection.collect_if_fallen() is collects, "some never have fewer"


@pytest.mark.usefixtures("few_objects")
def test_full_collections_that_take_long_are_rare(
    collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    resident, times = 100, iter((1_000.0, 1_000.0, 1_000.2, 1_060.0, 1_199.0, 1_201.0, 1_201.1))
    monkeypatch.setattr(gc_tuning, "resident_bytes", lambda: resident)
    monkeypatch.setattr(gc_tuning, "perf_counter", lambda: next(times))
    collection = CollectionAfterPeak()
    made = []
    for resident in (100, 80, 70, 60, 50):
        before = len(collections)
        collection.collect_if_fallen()
        made += [resident] * (len(collections) - before)
    assert made == [80, 50]


def test_resident_memory_is_read() -> None:
    assert sys.platform != "linux" or gc_tuning.resident_bytes() > 2**20


_ALLOCATE_IN_A_THREAD = """
import ctypes, sys, threading
from proreus.gc_tuning import use_one_heap

if sys.argv[1] == "one":
    use_one_heap()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_size_t
addresses = []
thread = threading.Thread(target=lambda: addresses.append(malloc(ctypes.c_size_t(1_000))))
thread.start()
thread.join()
(heap,) = [line.split()[0] for line in open("/proc/self/maps") if line.endswith("[heap]\\n")]
start, end = (int(bound, 16) for bound in heap.split("-"))
print(start <= addresses[0] < end)
"""


@pytest.mark.skipif(_mallopt is None, reason="not glibc")
@pytest.mark.parametrize(("heaps", "same_heap"), [("one", "True"), ("several", "False")])
def test_threads_share_one_heap(heaps: str, same_heap: str) -> None:
    command = [sys.executable, "-c", _ALLOCATE_IN_A_THREAD, heaps]
    assert subprocess.check_output(command, text=True).strip() == same_heap
