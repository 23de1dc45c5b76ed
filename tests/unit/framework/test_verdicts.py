"""Verdicts: the first rejection of a row stays, and nothing is made before it."""

from __future__ import annotations

import numpy as np
import pytest

from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts


def mask(*flags: int) -> np.ndarray:
    return np.array(flags, dtype=np.bool_)


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.intp)


def messages(verdicts: Verdicts) -> list[str | None]:
    statuses = [verdicts.status(row) for row in range(verdicts.size)]
    return [None if status is None else status.message for status in statuses]


def test_nothing_is_allocated_before_the_first_rejection() -> None:
    verdicts = Verdicts(3, "P")

    verdicts.reject(mask(0, 0, 0), "no")
    verdicts.reject(rows(), "no")

    assert verdicts.ids is None
    assert verdicts.passed().tolist() == [True] * 3
    assert verdicts.passed_rows().tolist() == [0, 1, 2]
    assert verdicts.counts() == {}
    assert verdicts.rows_with(Code.UNSCHEDULABLE).tolist() == []


def test_the_first_rejection_stays() -> None:
    verdicts = Verdicts(4, "P")

    verdicts.reject(mask(1, 0, 1, 0), "first")
    verdicts.reject(rows(0, 1), "second", unresolvable=True)
    verdicts.reject_row(2, Status.pending("third"))

    assert messages(verdicts) == ["first", "second", "first", None]
    assert verdicts.passed().tolist() == [False, False, False, True]
    assert verdicts.rows_with(Code.UNSCHEDULABLE).tolist() == [0, 2]
    assert verdicts.rows_with(Code.UNSCHEDULABLE, Code.UNRESOLVABLE).tolist() == [0, 1, 2]


def test_the_plugin_is_filled_in() -> None:
    verdicts = Verdicts(2, "P")
    verdicts.reject(mask(1, 0), "no")
    verdicts.reject_row(1, Status.unschedulable("no").with_plugin("Other"))

    assert verdicts.counts() == {
        Status(Code.UNSCHEDULABLE, ("no",), "P"): 1,
        Status(Code.UNSCHEDULABLE, ("no",), "Other"): 1,
    }


def test_equal_statuses_share_a_number() -> None:
    verdicts = Verdicts(2, "P")
    verdicts.reject(mask(1, 0), "a", "b")
    verdicts.reject(mask(0, 1), "a", "b")

    assert len(verdicts.statuses) == 2
    assert list(verdicts.counts().values()) == [2]


def test_merge_keeps_what_came_first() -> None:
    one, other = Verdicts(3, "One"), Verdicts(3, "Other")
    one.reject(mask(0, 1, 0), "one")
    other.reject(mask(1, 1, 0), "other")
    merged = Verdicts(3)

    for plugin in (one, other, Verdicts(3, "Silent")):
        merged.merge(plugin)

    assert messages(merged) == ["other", "one", None]
    assert one.statuses[1] is not None
    assert one.statuses[1].plugin == "One"
    assert messages(other) == ["other", "other", None]


def test_merging_into_nothing_copies() -> None:
    one, merged = Verdicts(2, "One"), Verdicts(2)
    one.reject(mask(1, 0), "one")
    merged.merge(one)

    merged.reject(mask(1, 1), "more")

    assert messages(one) == ["one", None]
    assert messages(merged) == ["one", "more"]


def test_take_and_copy() -> None:
    verdicts = Verdicts(3, "P")
    verdicts.reject(mask(1, 0, 1), "no")

    assert messages(verdicts.take(rows(2, 1))) == ["no", None]
    copy = verdicts.copy()
    copy.reject_row(1, Status.unschedulable("new"))
    assert messages(verdicts) == ["no", None, "no"]
    assert messages(copy) == ["no", "new", "no"]
    assert len(verdicts.statuses) == 2


def test_only_a_status_rejects() -> None:
    with pytest.raises(TypeError, match="a rejection must be a Status"):
        Verdicts(1).reject_row(0, Status)  # type: ignore[arg-type]
