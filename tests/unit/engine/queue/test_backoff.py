"""core behaviour: back-off durations, whole seconds, two heaps, flush."""

from __future__ import annotations

import pytest

from proreus.base.clock import FakeClock
from proreus.engine.queue.backoff import NO_BACKOFF, BackoffQueue, whole_second
from proreus.framework.pod_info import QueuedPodInfo


def failed(pod, *, errors: int = 0, rejections: int = 0, at: float = 1000.0) -> QueuedPodInfo:
    queued = QueuedPodInfo(pod, at)
    queued.consecutive_errors_count = errors
    queued.unschedulable_count = rejections
    if rejections and not errors:
        queued.unschedulable_plugins = {"NodeResourcesFit"}
    return queued


def backoff(clock: FakeClock, initial: float = 1, most: float = 10, whole: bool = True):
    return BackoffQueue(clock, lambda q: (-q.info.priority, q.timestamp), initial, most, whole)


@pytest.mark.parametrize(
    ("rejections", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (500, 10)]
)
def test_duration_doubles_up_to_the_limit(pod, rejections, seconds):
    queue = backoff(FakeClock(1000.0))
    assert queue.expiration(failed(pod(), rejections=rejections)) == 1000 + seconds


def test_errors_in_a_row_count_before_rejections(pod):
    queue = backoff(FakeClock(1000.0))
    assert queue.expiration(failed(pod(), errors=1, rejections=4)) == 1001
    assert queue.expiration(failed(pod(), errors=3)) == 1004


def test_no_backoff_without_failure_or_with_limit_zero(pod):
    clock = FakeClock(1000.0)
    untried = failed(pod())
    assert backoff(clock).expiration(untried) == NO_BACKOFF
    assert not backoff(clock).is_backing_off(untried)
    assert backoff(clock, 1, 0).expiration(failed(pod(), errors=3)) == NO_BACKOFF


def test_initial_above_the_limit_is_cut(pod):
    queue = backoff(FakeClock(1000.0), 20, 7)
    assert queue.expiration(failed(pod(), rejections=1)) == 1007


def test_expiration_is_cut_to_the_second_and_outlasts_it(pod):
    clock = FakeClock(1000.7)
    queue = backoff(clock)
    queued = failed(pod(), rejections=1, at=1000.7)
    assert queue.expiration(queued) == 1001
    clock.advance_to(1001.99)
    assert queue.is_backing_off(queued)
    clock.advance_to(1002.0)
    assert not queue.is_backing_off(queued)


def test_exact_instants_without_pop_from_backoff(pod):
    clock = FakeClock(1000.7)
    queue = backoff(clock, whole=False)
    queued = failed(pod(), rejections=1, at=1000.75)
    assert queue.expiration(queued) == 1001.75
    clock.advance_to(1001.75)
    assert queue.is_backing_off(queued)
    clock.advance_to(1001.76)
    assert not queue.is_backing_off(queued)


def test_expiration_is_cached_until_the_next_failure(pod):
    queue = backoff(FakeClock(1000.0))
    queued = failed(pod(), rejections=1)
    assert queue.expiration(queued) == 1001
    queued.unschedulable_count = 4
    assert queue.expiration(queued) == 1001
    queued.backoff_expiration = None
    assert queue.expiration(queued) == 1008


def test_within_a_second_the_active_order_decides(pod):
    queue = backoff(FakeClock(1000.0))
    queue.put(failed(pod("later"), rejections=2, at=1000.0))
    queue.put(failed(pod("low", priority=1), rejections=1, at=1000.1))
    queue.put(failed(pod("high", priority=9), rejections=1, at=1000.8))
    queue.validate()
    assert [queue.pop().info.name for _ in range(3)] == ["high", "low", "later"]


def test_errors_are_kept_apart_and_never_popped_early(pod):
    queue = backoff(FakeClock(1000.0))
    queue.put(failed(pod("error"), errors=1))
    assert len(queue) == 1
    assert queue.poppable == 0
    assert queue.pop() is None
    assert "default/error" in queue
    assert queue.get("default/error").info.name == "error"


def test_completed_pods_rejected_ones_first(pod):
    clock = FakeClock(1000.0)
    queue = backoff(clock)
    queue.put(failed(pod("error"), errors=1))
    queue.put(failed(pod("rejected"), rejections=1))
    queue.put(failed(pod("long"), rejections=3))
    clock.advance_to(1001.9)
    assert queue.pop_completed() == []
    clock.advance_to(1002.0)
    assert [queued.info.name for queued in queue.pop_completed()] == ["rejected", "error"]
    assert queue.discard("default/long").info.name == "long"


def test_whole_second_forgives_a_float_clock():
    instant = 1_700_000_000.0
    for _ in range(100):
        instant += 0.01
    assert whole_second(instant) == 1_700_000_001
    assert whole_second(1000.99) == 1000
