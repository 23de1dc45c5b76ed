from __future__ import annotations

from proreus.engine.queue.in_flight import POD_POPPED, InFlightPods
from proreus.framework.events import NODE_ADD, NODE_DELETE


def seen(in_flight: InFlightPods, uid: str) -> list[int]:
    return [happened.new for happened in in_flight.events_since_pop(uid)]


def test_each_pod_sees_what_came_after_its_pop(pod):
    in_flight = InFlightPods()
    in_flight.record(NODE_ADD, None, 0)
    in_flight.begin(pod("a"))
    in_flight.record(NODE_ADD, None, 1)
    in_flight.begin(pod("b"))
    in_flight.record(NODE_DELETE, None, 2)
    in_flight.validate()
    assert seen(in_flight, "uid-a") == [1, 2]
    assert seen(in_flight, "uid-b") == [2]
    assert seen(in_flight, "uid-c") == []
    assert in_flight.counts() == {"NodeAdd": 1, "NodeDelete": 1, POD_POPPED: 2}


def test_events_go_with_the_last_pod_that_could_want_them(pod):
    in_flight = InFlightPods()
    for index, name in enumerate("abc"):
        in_flight.begin(pod(name))
        in_flight.record(NODE_ADD, None, index)
    in_flight.done("uid-b")
    in_flight.validate()
    assert seen(in_flight, "uid-a") == [0, 1, 2]
    in_flight.done("uid-a")
    in_flight.validate()
    assert seen(in_flight, "uid-c") == [2]
    assert in_flight.counts()["NodeAdd"] == 1
    in_flight.done("uid-c")
    in_flight.done("uid-c")
    in_flight.validate()
    assert in_flight.counts() == {"NodeAdd": 0, POD_POPPED: 0}
    assert in_flight._events == []


def test_a_pod_is_in_flight_once(pod):
    in_flight = InFlightPods()
    assert in_flight.begin(pod("a"))
    assert not in_flight.begin(pod("a"))
    assert "uid-a" in in_flight
    assert list(in_flight.by_key()) == ["default/a"]
