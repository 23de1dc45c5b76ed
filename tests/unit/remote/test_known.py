"""Which answers hold, and until when."""

from __future__ import annotations

import numpy as np

from proreus.cache.cache import Cache
from proreus.clock import FakeClock
from proreus.framework.status import Code, Status
from proreus.remote.known import Known, Memory
from proreus.remote.snapshot import Snapshot
from proreus.testing.builders import make_node, make_pod

HOT = Status.unschedulable("hot")


def world(nodes: int = 4) -> tuple[Cache, Snapshot]:
    cache = Cache(FakeClock())
    for number in range(nodes):
        cache.add_node(make_node(f"n{number}"))
    snapshot = Snapshot(("podCount",), "json")
    snapshot.news(cache.table)
    return cache, snapshot


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.intp)


def judge(known: Known, snapshot: Snapshot, asked: np.ndarray, rejected: np.ndarray) -> None:
    which = np.zeros(len(rejected), dtype=np.int64)
    known.judge(asked, rejected, [HOT], which, snapshot.version)


def test_only_changed_rows_are_stale() -> None:
    cache, snapshot = world()
    known, everything = Known("P"), np.arange(4)
    assert known.to_judge(snapshot, "", everything).tolist() == [0, 1, 2, 3]
    judge(known, snapshot, everything, rows(1))
    assert known.to_judge(snapshot, "", everything).tolist() == []
    cache.assume(make_pod("p"), "n2")
    snapshot.news(cache.table)
    assert known.to_judge(snapshot, "", everything).tolist() == [2]
    judge(known, snapshot, rows(2), rows(2))
    assert known.verdicts(everything).counts() == {HOT.of("P"): 2}
    judge(known, snapshot, rows(1, 2), rows())
    assert known.verdicts(everything).passed().all()


def test_a_new_epoch_or_snapshot_voids_everything() -> None:
    cache, snapshot = world()
    known, everything = Known("P"), np.arange(4)
    known.to_judge(snapshot, "1", everything)
    judge(known, snapshot, everything, rows(0))
    assert known.to_judge(snapshot, "2", everything).tolist() == [0, 1, 2, 3]
    known.to_score(snapshot, "2", everything)
    known.score(everything, np.arange(4), snapshot.version)
    assert known.to_score(snapshot, "2", everything).tolist() == []
    other = Snapshot(("podCount",), "json")
    other.news(cache.table)
    assert known.to_score(other, "2", everything).tolist() == [0, 1, 2, 3]


def test_nodes_that_come_and_go() -> None:
    cache, snapshot = world()
    known = Known("P")
    known.to_judge(snapshot, "", np.arange(4))
    judge(known, snapshot, np.arange(4), rows(3))
    cache.remove_node("n0")
    snapshot.news(cache.table)
    assert known.to_judge(snapshot, "", np.arange(3)).tolist() == [0], "n3 has moved there"
    cache.add_node(make_node("late"))
    snapshot.news(cache.table)
    assert known.to_judge(snapshot, "", np.arange(4)).tolist() == [0, 3]


def test_a_row_that_was_not_asked_about_does_not_pass() -> None:
    _, snapshot = world()
    known = Known("P")
    known.to_judge(snapshot, "", rows(0, 1))
    judge(known, snapshot, rows(0, 1), rows())
    verdicts = known.verdicts(np.arange(4))
    assert verdicts.passed().tolist() == [True, True, False, False]
    assert [status.code for status in verdicts.counts()] == [Code.ERROR]
    assert known.verdicts(rows(0, 1)).passed().all()


def test_reasons_of_their_own_do_not_pile_up() -> None:
    _, snapshot = world()
    known, everything = Known("P"), np.arange(4)
    for number in range(2000):
        known.to_judge(snapshot, str(number // 10), everything)
        status = Status.unschedulable(f"{number} degrees")
        known.judge(everything, rows(0), [status], np.zeros(1, dtype=np.int64), snapshot.version)
    assert len(known.verdicts(everything).statuses) < 1100


def test_the_least_recently_used_goes_first() -> None:
    memory = Memory()
    first = memory.of(b"first", "P", 10)
    second = memory.of(b"second", "P", 10)
    for number in range(254):
        memory.of(str(number).encode(), "P", 10)
    assert memory.of(b"first", "P", 10) is first
    memory.of(b"one more", "P", 10)
    assert memory.of(b"first", "P", 10) is first
    assert memory.of(b"second", "P", 10) is not second
    huge = Memory()
    kept = huge.of(b"a", "P", 10_000_000)
    for name in (b"b", b"c", b"d", b"e"):
        huge.of(name, "P", 10_000_000)
    assert huge.of(b"a", "P", 10_000_000) is not kept
