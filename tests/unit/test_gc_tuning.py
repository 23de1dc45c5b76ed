"""When the garbage collector runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from proreus.gc_tuning import collect_between_cycles


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
