"""once_per_value: each value is evaluated once, and values without a row not at all."""

from __future__ import annotations

import numpy as np

from proreus.framework.interning import once_per_value


def codes(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int32)


def test_answers_are_gathered() -> None:
    evaluated = []

    def length(value: str) -> int:
        evaluated.append(value)
        return len(value)

    found = once_per_value(codes(2, 0, 2, 1), ["", "a", "bb"], length)

    assert found is not None
    assert found.tolist() == [2, 0, 2, 1]
    assert found.dtype == np.int64
    assert evaluated == ["", "a", "bb"]


def test_masks_are_masks() -> None:
    found = once_per_value(codes(1, 0), ["a", "b"], lambda value: value == "b")

    assert found is not None
    assert found.dtype == np.bool_
    assert found.tolist() == [True, False]


def test_nothing_is_made_where_nothing_is_said() -> None:
    assert once_per_value(codes(0, 1), ["a", "b"], lambda value: 0) is None
    assert once_per_value(codes(), [""], bool) is None


def test_of_many_values_only_those_that_are_there_are_asked_about() -> None:
    values = [str(number) for number in range(1000)]
    evaluated = []

    def number(value: str) -> int:
        evaluated.append(value)
        return int(value)

    found = once_per_value(codes(7, 999, 7), values, number)

    assert found is not None
    assert found.tolist() == [7, 999, 7]
    assert found.dtype == np.int64
    assert evaluated == ["7", "999"]


def test_of_many_values_masks_are_masks() -> None:
    values = [str(number) for number in range(1000)]

    found = once_per_value(codes(7, 999), values, lambda value: value == "7")

    assert found is not None
    assert found.dtype == np.bool_
