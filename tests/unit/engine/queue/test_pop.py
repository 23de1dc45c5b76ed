"""Popping: order, popping from back-off, in flight, counts."""

from __future__ import annotations

from proreus.base.kubernetes_version import V1_36
from proreus.framework.events import NODE_ADD


def test_priority_first_then_time_of_arrival(harness, pod):
    harness.add(pod("a"), pod("b"))
    harness.clock.advance(1)
    harness.add(pod("c", priority=5))
    assert [harness.pop().info.name for _ in range(3)] == ["c", "a", "b"]
    assert harness.queue.pop() is None


def test_pop_counts_attempts_and_cycles_and_keeps_the_rejectors(harness, pod):
    queued = harness.rejected(pod("a"), "Fit", pending=("Claims",))
    assert harness.per_plugin() == {"Fit": 1, "Claims": 1}
    assert (queued.attempts, harness.queue.scheduling_cycle) == (1, 1)
    harness.queue.activate(["default/a"])
    assert harness.pop() is queued
    assert (queued.attempts, harness.queue.scheduling_cycle) == (2, 2)
    assert queued.rejectors == {"Fit", "Claims"}
    assert harness.per_plugin() == {}
    assert harness.queue.in_flight_count == 1


def test_backoff_is_popped_from_when_nothing_is_active(harness, pod):
    harness.profile.register("Fit", "Node", 1)
    harness.rejected(pod("a"), "Fit")
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.add(pod("b"))
    assert harness.places() == {"active": ["b"], "backoff": ["a"]}
    assert [harness.pop().info.name for _ in range(2)] == ["b", "a"]
    assert harness.incoming()["active", "PopFromBackoffQ"] == 1


def test_errors_are_not_popped_early(harness, pod):
    harness.rejected(pod("a"))
    assert harness.places() == {"backoff": ["a"]}
    assert harness.queue.pop() is None


def test_without_the_gate_nothing_is_popped_from_backoff(make_harness, pod):
    harness = make_harness(pop_from_backoff=False)
    harness.profile.register("Fit", "Node", 1)
    harness.rejected(pod("a"), "Fit")
    harness.wakes = 0
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"backoff": ["a"]}
    assert harness.wakes == 0
    assert harness.queue.pop() is None


def test_a_pod_already_in_flight_is_discarded(harness, pod, caplog):
    harness.add(pod("a"))
    harness.pop()
    harness.add(pod("a"))
    harness.clock.advance(1)
    harness.add(pod("b"))
    assert harness.pop().info.name == "b"
    assert "discarded" in caplog.text
    assert harness.queue.scheduling_cycle == 2


def test_waker_is_called_when_something_can_be_popped(harness, pod):
    harness.add(pod("gated", pre_enqueue_plugins=("g",)))
    assert harness.wakes == 0
    harness.add(pod("a"))
    assert harness.wakes == 1
    queued = harness.pop()
    harness.reject(queued)
    assert harness.wakes == 1, "an error that backs off cannot be popped"
    harness.clock.advance_to(1002)
    harness.queue.flush()
    assert harness.wakes == 2


def test_gauges_are_counted_at_the_scrape(make_harness, pod):
    harness = make_harness(version=V1_36)
    harness.profile.register("Fit", "Node", 1)
    harness.rejected(pod("held"), "Fit")
    harness.rejected(pod("error"))
    harness.add(pod("gated", pre_enqueue_plugins=("g",)), pod("active"), pod("tried", priority=1))
    harness.pop()
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    pending = {labels[0]: n for labels, n in harness.metrics.pending_pods.values()}
    assert pending == {"active": 1, "backoff": 2, "unschedulable": 0, "gated": 1}
    in_flight = {labels[0]: n for labels, n in harness.metrics.inflight_events.values()}
    assert in_flight == {"NodeAdd": 1, "PodPopped": 1}


def test_a_pod_can_be_popped_out_of_turn(harness, pod):
    harness.add(pod("a"), pod("b"))
    taken = harness.queue.pop_specific("default/b")
    assert (taken.info.name, taken.attempts, harness.queue.scheduling_cycle) == ("b", 1, 1)
    assert harness.queue.in_flight_count == 1
    assert harness.queue.pop_specific("default/b") is None
    assert [harness.pop().info.name, harness.queue.pop()] == ["a", None]


def test_out_of_turn_pods_come_from_anywhere_but_gates(harness, pod):
    harness.profile.register("Fit", "Node", 1)
    for name in ("waiting", "backing-off", "error"):
        harness.rejected(pod(name), *(() if name == "error" else ("Fit",)))
    harness.queue.move_all_to_active_or_backoff(
        NODE_ADD, None, None, lambda queued: queued.info.name == "backing-off"
    )
    assert harness.places() == {"unschedulable": ["waiting"], "backoff": ["backing-off", "error"]}
    harness.add(pod("gated", pre_enqueue_plugins=("wait",)))
    names = ("waiting", "backing-off", "error", "gated", "unknown")
    taken = [harness.queue.pop_specific(f"default/{name}") for name in names]
    assert [queued and queued.info.name for queued in taken] == [*names[:3], None, None]
    assert harness.places() == {"gated": ["gated"]}
