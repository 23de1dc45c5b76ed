"""Which cached results are valid, and until when."""

from __future__ import annotations

import numpy as np

from proreus.base.clock import FakeClock
from proreus.engine.cache.cache import Cache
from proreus.framework.status import Code, Status
from proreus.remote.row_results import RowResults, RowResultsCache
from proreus.remote.snapshot import Snapshot
from proreus.testing.builders import make_node, make_pod

HOT = Status.unschedulable("hot")


def world(nodes: int = 4) -> tuple[Cache, Snapshot]:
    cache = Cache(FakeClock())
    for number in range(nodes):
        cache.add_node(make_node(f"n{number}"))
    snapshot = Snapshot(("podCount",), "json")
    snapshot.next_update(cache.table)
    return cache, snapshot


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.intp)


def set_verdicts(
    row_results: RowResults, snapshot: Snapshot, asked: np.ndarray, rejected: np.ndarray
) -> None:
    which = np.zeros(len(rejected), dtype=np.int64)
    row_results.set_verdicts(asked, rejected, [HOT], which, snapshot.version)


def test_only_changed_rows_are_stale() -> None:
    cache, snapshot = world()
    row_results, everything = RowResults("P"), np.arange(4)
    assert row_results.rows_without_verdict(snapshot, "", everything).tolist() == [0, 1, 2, 3]
    set_verdicts(row_results, snapshot, everything, rows(1))
    assert row_results.rows_without_verdict(snapshot, "", everything).tolist() == []
    cache.assume(make_pod("p"), "n2")
    snapshot.next_update(cache.table)
    assert row_results.rows_without_verdict(snapshot, "", everything).tolist() == [2]
    set_verdicts(row_results, snapshot, rows(2), rows(2))
    assert row_results.verdicts(everything).counts() == {HOT.with_plugin("P"): 2}
    set_verdicts(row_results, snapshot, rows(1, 2), rows())
    assert row_results.verdicts(everything).passed().all()


def test_a_new_epoch_or_snapshot_voids_everything() -> None:
    cache, snapshot = world()
    row_results, everything = RowResults("P"), np.arange(4)
    row_results.rows_without_verdict(snapshot, "1", everything)
    set_verdicts(row_results, snapshot, everything, rows(0))
    assert row_results.rows_without_verdict(snapshot, "2", everything).tolist() == [0, 1, 2, 3]
    row_results.rows_without_score(snapshot, "2", everything)
    row_results.set_scores(everything, np.arange(4), snapshot.version)
    assert row_results.rows_without_score(snapshot, "2", everything).tolist() == []
    other = Snapshot(("podCount",), "json")
    other.next_update(cache.table)
    assert row_results.rows_without_score(other, "2", everything).tolist() == [0, 1, 2, 3]


def test_nodes_that_come_and_go() -> None:
    cache, snapshot = world()
    row_results = RowResults("P")
    row_results.rows_without_verdict(snapshot, "", np.arange(4))
    set_verdicts(row_results, snapshot, np.arange(4), rows(3))
    cache.remove_node("n0")
    snapshot.next_update(cache.table)
    assert row_results.rows_without_verdict(snapshot, "", np.arange(3)).tolist() == [0], (
        "n3 has moved there"
    )
    cache.add_node(make_node("late"))
    snapshot.next_update(cache.table)
    assert row_results.rows_without_verdict(snapshot, "", np.arange(4)).tolist() == [0, 3]


def test_a_row_that_was_not_asked_about_does_not_pass() -> None:
    _, snapshot = world()
    row_results = RowResults("P")
    row_results.rows_without_verdict(snapshot, "", rows(0, 1))
    set_verdicts(row_results, snapshot, rows(0, 1), rows())
    verdicts = row_results.verdicts(np.arange(4))
    assert verdicts.passed().tolist() == [True, True, False, False]
    assert [status.code for status in verdicts.counts()] == [Code.ERROR]
    assert row_results.verdicts(rows(0, 1)).passed().all()


def test_reasons_of_their_own_do_not_pile_up() -> None:
    _, snapshot = world()
    row_results, everything = RowResults("P"), np.arange(4)
    for number in range(2000):
        row_results.rows_without_verdict(snapshot, str(number // 10), everything)
        status = Status.unschedulable(f"{number} degrees")
        row_results.set_verdicts(
            everything, rows(0), [status], np.zeros(1, dtype=np.int64), snapshot.version
        )
    assert len(row_results.verdicts(everything).statuses) < 1100


def test_the_least_recently_used_goes_first() -> None:
    memory = RowResultsCache()
    first = memory.of(b"first", "P", 10)
    second = memory.of(b"second", "P", 10)
    for number in range(5000):
        memory.of(str(number).encode(), "P", 10)
        assert memory.of(b"first", "P", 10) is first
    assert memory.of(b"second", "P", 10) is not second
    huge = RowResultsCache()
    kept = huge.of(b"a", "P", 10_000_000)
    for name in (b"b", b"c", b"d", b"e"):
        huge.of(name, "P", 10_000_000)
    assert huge.of(b"a", "P", 10_000_000) is not kept
