"""Popping: order, popping from back-off, in flight, counts."""

from __future__ import annotations

from proreus.framework.events import NODE_ADD


def test_priority_first_then_time_of_arrival(bench, pod):
    bench.add(pod("a"), pod("b"))
    bench.clock.advance(1)
    bench.add(pod("c", priority=5))
    assert [bench.pop().info.name for _ in range(3)] == ["c", "a", "b"]
    assert bench.queue.pop() is None


def test_pop_counts_attempts_and_cycles_and_keeps_the_rejectors(bench, pod):
    queued = bench.rejected(pod("a"), "Fit", pending=("Claims",))
    assert bench.per_plugin() == {"Fit": 1, "Claims": 1}
    assert (queued.attempts, bench.queue.scheduling_cycle) == (1, 1)
    bench.queue.activate(["default/a"])
    assert bench.pop() is queued
    assert (queued.attempts, bench.queue.scheduling_cycle) == (2, 2)
    assert queued.rejectors == {"Fit", "Claims"}
    assert bench.per_plugin() == {}
    assert bench.queue.in_flight_count == 1


def test_backoff_is_popped_from_when_nothing_is_active(bench, pod):
    bench.profile.register("Fit", "Node", 1)
    bench.rejected(pod("a"), "Fit")
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.add(pod("b"))
    assert bench.places() == {"active": ["b"], "backoff": ["a"]}
    assert [bench.pop().info.name for _ in range(2)] == ["b", "a"]
    assert bench.incoming()["active", "PopFromBackoffQ"] == 1


def test_errors_are_not_popped_early(bench, pod):
    bench.rejected(pod("a"))
    assert bench.places() == {"backoff": ["a"]}
    assert bench.queue.pop() is None


def test_without_the_gate_nothing_is_popped_from_backoff(make_bench, pod):
    bench = make_bench(pop_from_backoff=False)
    bench.profile.register("Fit", "Node", 1)
    bench.rejected(pod("a"), "Fit")
    bench.wakes = 0
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert bench.places() == {"backoff": ["a"]}
    assert bench.wakes == 0
    assert bench.queue.pop() is None


def test_a_pod_already_in_flight_is_discarded(bench, pod, caplog):
    bench.add(pod("a"))
    bench.pop()
    bench.add(pod("a"))
    bench.clock.advance(1)
    bench.add(pod("b"))
    assert bench.pop().info.name == "b"
    assert "discarded" in caplog.text
    assert bench.queue.scheduling_cycle == 2


def test_waker_is_called_when_something_can_be_popped(bench, pod):
    bench.add(pod("gated", gates=("g",)))
    assert bench.wakes == 0
    bench.add(pod("a"))
    assert bench.wakes == 1
    queued = bench.pop()
    bench.reject(queued)
    assert bench.wakes == 1, "an error that backs off cannot be popped"
    bench.clock.advance_to(1002)
    bench.queue.flush()
    assert bench.wakes == 2


def test_gauges_are_counted_at_the_scrape(bench, pod):
    bench.profile.register("Fit", "Node", 1)
    bench.rejected(pod("held"), "Fit")
    bench.rejected(pod("error"))
    bench.add(pod("gated", gates=("g",)), pod("active"), pod("tried", priority=1))
    bench.pop()
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    pending = {labels[0]: n for labels, n in bench.metrics.pending_pods.values()}
    assert pending == {"active": 1, "backoff": 2, "unschedulable": 0, "gated": 1}
    in_flight = {labels[0]: n for labels, n in bench.metrics.inflight_events.values()}
    assert in_flight == {"NodeAdd": 1, "PodPopped": 1}


def test_a_pod_can_be_popped_out_of_turn(bench, pod):
    bench.add(pod("a"), pod("b"))
    taken = bench.queue.pop_specific("default/b")
    assert (taken.info.name, taken.attempts, bench.queue.scheduling_cycle) == ("b", 1, 1)
    assert bench.queue.in_flight_count == 1
    assert bench.queue.pop_specific("default/b") is None
    assert [bench.pop().info.name, bench.queue.pop()] == ["a", None]


def test_out_of_turn_pods_come_from_anywhere_but_gates(bench, pod):
    bench.profile.register("Fit", "Node", 1)
    for name in ("waiting", "backing-off", "error"):
        bench.rejected(pod(name), *(() if name == "error" else ("Fit",)))
    bench.queue.move_all_to_active_or_backoff(
        NODE_ADD, None, None, lambda queued: queued.info.name == "backing-off"
    )
    assert bench.places() == {"unschedulable": ["waiting"], "backoff": ["backing-off", "error"]}
    bench.add(pod("gated", gates=("wait",)))
    names = ("waiting", "backing-off", "error", "gated", "unknown")
    taken = [bench.queue.pop_specific(f"default/{name}") for name in names]
    assert [queued and queued.info.name for queued in taken] == [*names[:3], None, None]
    assert bench.places() == {"gated": ["gated"]}
