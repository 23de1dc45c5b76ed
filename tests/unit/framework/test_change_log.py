from __future__ import annotations

from proreus.framework.change_log import ChangeLog


def test_each_row_once_in_the_order_of_its_first_change() -> None:
    log = ChangeLog()
    log.record(3)
    seen = log.position
    log.record_all([5, 1, 5])
    assert log.since(seen, 10) == [5, 1]
    assert log.since(0, 10) == [3, 5, 1]
    assert log.since(log.position, 10) == []


def test_rows_that_are_gone_are_nobodys_concern() -> None:
    log = ChangeLog()
    log.record_all([2, 7])
    assert log.since(0, 7) == [2]
    assert log.since(0, 8) == [2, 7]


def test_what_is_too_long_ago_is_not_known() -> None:
    log = ChangeLog()
    log.reserve(0)
    for row in range(log.limit + 1):
        log.record(row)
    assert log.since(0, 10**6) is None
    assert log.since(log.position - 2, 10**6) == [log.limit - 1, log.limit]


def test_more_room_remembers_more() -> None:
    log = ChangeLog()
    log.reserve(10_000)
    log.record_all(range(20_000))
    assert log.since(0, 10**6) == list(range(20_000))
