"""Copies of what is kept for long, made when large objects are gone."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest

from proreus import reallocation
from proreus.reallocation import Reallocator, reallocate_all, reallocated


class Shared:
    """Stays as it is."""


def test_everything_but_shared_objects_is_copied() -> None:
    shared = Shared()
    text, numbers = "a text", [1.5, 2**70]
    copy = reallocated((text, numbers, text, shared), (Shared,))
    assert copy == (text, numbers, text, shared)
    assert copy[0] is not text
    assert copy[2] is copy[0], "what was one object is one"
    assert copy[1] is not numbers
    assert copy[3] is shared


def test_equal_texts_in_all_copies_are_one_object() -> None:
    texts = [f"a text of {number}" for number in (1, 1, 2)]
    reallocator = Reallocator()
    first, second = (
        reallocator.copy({texts[0]: texts[2]}),
        reallocator.copy((texts[1], "", "\udc80")),
    )
    assert first == {texts[0]: texts[2]}
    assert second == (texts[1], "", "\udc80")
    (key,) = first
    assert key is second[0]
    assert key is not texts[0]


class Owner:
    """Counts its steps."""

    def __init__(self, steps: int, fails: bool = False) -> None:
        self.steps, self.left, self.fails = steps, steps, fails
        reallocation.register(self)

    def reallocate(self) -> Iterator[None]:
        for _ in range(self.steps):
            self.left -= 1
            yield
        if self.fails:
            raise TypeError("a plugin's object")


@pytest.fixture(autouse=True)
def nothing_else_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reallocation, "_registered", type(reallocation._registered)())


def test_each_owner_takes_its_steps_whatever_others_do() -> None:
    owners = [Owner(2), Owner(1, fails=True), Owner(3)]
    assert len(list(reallocate_all())) == 6
    assert [one.left for one in owners] == [0, 0, 0]


def test_an_owner_that_is_gone_takes_no_steps() -> None:
    owners = [Owner(2), Owner(3)]
    del owners[0]
    assert len(list(reallocate_all())) == 3


def test_keys_that_msgspec_keeps_are_forgotten() -> None:
    tracemalloc.start()
    try:
        for number in range(5_000):
            msgspec.json.decode(b'{"a key of large objects %d": null}' % number)
        kept, _ = tracemalloc.get_traced_memory()
        list(reallocate_all())
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept - left > 400 * 70
