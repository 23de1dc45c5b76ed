"""How long what fails again and again has to wait, and how much it may log."""

from proreus.base.clock import FakeClock
from proreus.base.repeated_failures import FailureBackoff, LineLimit


def test_the_pause_doubles_up_to_a_limit_and_a_success_ends_it():
    clock = FakeClock()
    failures = FailureBackoff(1.0, 10.0, clock.monotonic)
    seconds = []
    for number in range(1, 7):
        assert not failures.is_backing_off("a")
        count, pause = failures.failed("a")
        assert count == number
        seconds.append(pause)
        assert failures.is_backing_off("a")
        assert not failures.is_backing_off("b")
        clock.advance(pause)
    assert seconds == [1, 2, 4, 8, 10, 10]
    failures.succeeded("a")
    assert failures.failed("a") == (1, 1.0)


def test_a_failure_long_after_the_last_one_is_a_new_one():
    clock = FakeClock()
    failures = FailureBackoff(1.0, 10.0, clock.monotonic)
    failures.failed("a")
    clock.advance(22)
    assert failures.failed("a") == (1, 1.0)


def test_only_the_latest_failures_are_remembered():
    failures = FailureBackoff(1.0, 10.0, FakeClock().monotonic)
    for number in range(20_000):
        failures.failed(number)
    assert len(failures) == 10_000
    assert failures.is_backing_off(19_999)
    assert not failures.is_backing_off(0)


def test_lines_are_limited_by_period_and_those_left_out_are_counted():
    clock = FakeClock()
    limit = LineLimit(2, 60.0, clock.monotonic)
    assert [limit.allows() for _ in range(5)] == [True, True, False, False, False]
    clock.advance(60)
    assert limit.allows()
    assert limit.take_suppressed() == 3
    assert limit.take_suppressed() == 0
