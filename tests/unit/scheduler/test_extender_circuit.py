"""How often an extender is asked that does not answer."""

import pytest

from proreus.clock import FakeClock
from proreus.scheduler.extender_circuit import Circuits


@pytest.fixture
def clock():
    return FakeClock(1000.0)


@pytest.fixture
def circuits(clock):
    return Circuits(["filter", "prioritize", "bind"], clock, timeout_seconds=5.0)


def test_who_answers_is_asked(circuits):
    for _ in range(3):
        assert circuits.may_ask("filter")
        assert circuits.answered("filter") is False


def test_pauses_double_and_end(circuits, clock):
    pauses = []
    for _ in range(6):
        assert circuits.may_ask("filter")
        pauses.append(circuits.failed("filter", hung=True))
        assert not circuits.may_ask("filter")
        clock.advance(pauses[-1] - 0.1)
        assert not circuits.may_ask("filter")
        clock.advance(0.2)
    assert pauses == [20, 40, 80, 160, 300, 300]
    assert circuits.may_ask("filter")
    assert circuits.answered("filter") is True
    assert circuits.may_ask("filter")
    assert circuits.failed("filter", hung=True) == 20


def test_a_refused_connection_is_tried_soon(circuits, clock):
    pauses = []
    for _ in range(7):
        pauses.append(circuits.failed("filter", hung=False))
        clock.advance(pauses[-1])
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_at_the_end_of_a_pause_one_caller_tries(circuits, clock):
    circuits.failed("bind", hung=True)
    clock.advance(20)
    assert circuits.may_ask("bind")
    assert not circuits.may_ask("bind")
    clock.advance(5)
    assert circuits.may_ask("bind"), "the one that tried never came back"


def test_a_dead_extender_is_not_asked_for_its_other_verbs(circuits, clock):
    circuits.answered("prioritize")
    circuits.failed("filter", hung=True)
    assert not circuits.may_ask("prioritize")
    assert not circuits.may_ask("bind")


def test_a_verb_that_hangs_alone_does_not_silence_the_others(circuits, clock):
    circuits.failed("prioritize", hung=True)
    clock.advance(20)
    assert circuits.may_ask("filter")
    circuits.answered("filter")
    assert circuits.may_ask("prioritize")
    assert circuits.failed("prioritize", hung=True) == 40
    assert circuits.may_ask("filter")
    assert circuits.may_ask("bind")
    assert not circuits.may_ask("prioritize")
