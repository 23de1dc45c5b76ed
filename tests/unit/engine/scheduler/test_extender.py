"""How often an extender is asked that does not answer."""

import pytest

from proreus.base.clock import FakeClock
from proreus.engine.extenders.extender import CircuitBreakers


@pytest.fixture
def clock():
    return FakeClock(1000.0)


@pytest.fixture
def circuits(clock):
    return CircuitBreakers(["filter", "prioritize", "bind"], clock, timeout_seconds=5.0)


def test_who_answers_is_asked(circuits):
    for _ in range(3):
        assert circuits.allows("filter")
        assert circuits.answered("filter") is False


def test_pauses_double_and_end(circuits, clock):
    pauses = []
    for _ in range(6):
        assert circuits.allows("filter")
        pauses.append(circuits.failed("filter", timed_out=True))
        assert not circuits.allows("filter")
        clock.advance(pauses[-1] - 0.1)
        assert not circuits.allows("filter")
        clock.advance(0.2)
    assert pauses == [20, 40, 80, 160, 300, 300]
    assert circuits.allows("filter")
    assert circuits.answered("filter") is True
    assert circuits.allows("filter")
    assert circuits.failed("filter", timed_out=True) == 20


def test_a_refused_connection_is_tried_soon(circuits, clock):
    pauses = []
    for _ in range(7):
        pauses.append(circuits.failed("filter", timed_out=False))
        clock.advance(pauses[-1])
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_at_the_end_of_a_pause_one_caller_tries(circuits, clock):
    circuits.failed("bind", timed_out=True)
    clock.advance(20)
    assert circuits.allows("bind")
    assert not circuits.allows("bind")
    clock.advance(5)
    assert circuits.allows("bind"), "the one that tried never came back"


def test_a_dead_extender_is_not_asked_for_its_other_verbs(circuits, clock):
    circuits.answered("prioritize")
    circuits.failed("filter", timed_out=True)
    assert not circuits.allows("prioritize")
    assert not circuits.allows("bind")


def test_a_verb_that_hangs_alone_does_not_silence_the_others(circuits, clock):
    circuits.failed("prioritize", timed_out=True)
    clock.advance(20)
    assert circuits.allows("filter")
    circuits.answered("filter")
    assert circuits.allows("prioritize")
    assert circuits.failed("prioritize", timed_out=True) == 40
    assert circuits.allows("filter")
    assert circuits.allows("bind")
    assert not circuits.allows("prioritize")
