"""PreEnqueue: when plugins are asked, what their answers lead to."""

from __future__ import annotations

import pytest

from proreus.framework import events as ev
from proreus.framework.events import NODE_ADD, UNSCHEDULABLE_POD_UPDATE, ClusterEvent
from proreus.framework.status import Status

GATES_GONE = ClusterEvent(ev.UNSCHEDULABLE_POD, ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


class Door:
    """A PreEnqueue plugin that can be opened and counts its calls."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.calls = 0

    def __call__(self, pod):
        self.calls += 1
        return self.status


@pytest.fixture
def door(bench):
    bench.profile.pre_enqueue["Door"] = door = Door()
    return door


def test_gated_pod_waits_among_the_unschedulable(bench, pod):
    bench.add(pod("a", gates=("g",)))
    bench.queue.validate()
    assert bench.places() == {"gated": ["a"]}
    (queued,) = bench.queue.gated_pods()
    assert queued.gating_plugin == "SchedulingGates"
    assert queued.unschedulable_plugins == {"SchedulingGates"}
    assert queued.initial_attempt_timestamp is None
    assert bench.per_plugin() == {"SchedulingGates": 1}
    assert bench.incoming() == {("unschedulable", "UnschedulablePodAdd"): 1}
    assert bench.queue.pop() is None


def test_pod_leaves_when_its_gates_are_gone(bench, pod):
    bench.profile.register("SchedulingGates", ev.POD, GATES_GONE.action)
    gated, free = pod("a", gates=("g",)), pod("a")
    bench.add(gated)
    bench.clock.advance(5)
    bench.queue.update(gated, free, [GATES_GONE])
    bench.queue.validate()
    assert bench.places() == {"active": ["a"]}
    queued = bench.pop()
    assert queued.gating_plugin == ""
    assert queued.unschedulable_plugins == {"SchedulingGates"}, "old names stay until a failure"
    assert queued.timestamp == 1000
    assert queued.initial_attempt_timestamp == 1005
    assert bench.per_plugin() == {}


def test_update_that_its_gate_does_not_wait_for_leaves_it_gated(bench, pod, door):
    bench.profile.register("SchedulingGates", ev.POD, GATES_GONE.action)
    gated = pod("a", gates=("g", "h"))
    bench.add(gated)
    calls = door.calls
    bench.queue.update(gated, pod("a", gates=("h",)), [UNSCHEDULABLE_POD_UPDATE])
    assert bench.places() == {"gated": ["a"]}
    assert door.calls == calls
    assert len(bench.queue.gated_pods()[0].pod.spec.scheduling_gates) == 1


def test_the_gating_plugin_is_asked_first_and_others_take_over(bench, pod, door):
    bench.profile.register("Door", ev.NODE, ev.ADD)
    bench.profile.register("SchedulingGates", ev.POD, GATES_GONE.action)
    door.status = Status.unschedulable("shut")
    bench.add(pod("a"))
    (queued,) = bench.queue.gated_pods()
    assert queued.gating_plugin == "Door"
    door.status = None
    gated = pod("a", gates=("g",))
    bench.queue.update(pod("a"), gated, [])
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.queue.validate()
    assert queued.gating_plugin == "SchedulingGates"
    assert bench.per_plugin() == {"Door": 1, "SchedulingGates": 1}
    bench.queue.update(gated, pod("a"), [GATES_GONE])
    assert bench.places() == {"active": ["a"]}


def test_staying_gated_counts_once_for_its_plugin(bench, pod, door):
    bench.profile.register("Door", ev.NODE, ev.ADD)
    door.status = Status.unschedulable("shut")
    bench.add(pod("a"))
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert door.calls == 2
    assert bench.places() == {"gated": ["a"]}
    assert bench.per_plugin() == {"Door": 1}
    assert bench.incoming() == {
        ("unschedulable", "UnschedulablePodAdd"): 1,
        ("unschedulable", "NodeAdd"): 1,
    }


def test_first_no_ends_the_questions(bench, pod, door):
    bench.add(pod("a", gates=("g",)))
    assert door.calls == 0
    bench.add(pod("b"))
    assert door.calls == 1


@pytest.mark.parametrize("code", ["unschedulable", "unresolvable", "pending", "error"])
def test_anything_but_success_gates(bench, pod, door, code):
    door.status = getattr(Status, code)("no")
    bench.add(pod("a"))
    assert bench.places() == {"gated": ["a"]}


def test_a_plugin_that_raises_gates(bench, pod, caplog):
    def broken(pod):
        raise RuntimeError("oh no")

    bench.profile.pre_enqueue["Broken"] = broken
    bench.add(pod("a"))
    assert bench.queue.gated_pods()[0].gating_plugin == "Broken"
    assert "oh no" in caplog.text


def test_events_that_do_not_open_the_gate_pass_it_by(bench, pod, door):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    bench.profile.register("Door", ev.NODE, ev.DELETE)
    queued = bench.rejected(pod("a"), "Fit")
    door.status = Status.unschedulable("shut")
    bench.queue.activate(["default/a"])
    assert bench.places() == {"gated": ["a"]}
    assert queued.unschedulable_plugins == {"Fit", "Door"}
    door.status = None
    calls = door.calls
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert bench.places() == {"gated": ["a"]}
    assert door.calls == calls
    bench.queue.move_all_to_active_or_backoff(ev.NODE_DELETE, None, None)
    assert bench.places() == {"backoff": ["a"]}


def test_asked_on_the_way_to_backoff_and_not_on_the_way_out(bench, pod, door):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    queued = bench.rejected(pod("a"), "Fit")
    before = door.calls
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert bench.places() == {"backoff": ["a"]}
    assert door.calls == before + 1
    door.status = Status.unschedulable("shut")
    bench.clock.advance_to(1002)
    bench.queue.flush_backoff_completed()
    assert bench.places() == {"active": ["a"]}
    assert door.calls == before + 1
    assert not queued.gated


def test_gated_on_the_way_to_backoff(bench, pod, door):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    bench.rejected(pod("a"), "Fit")
    door.status = Status.unschedulable("shut")
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.queue.validate()
    assert bench.places() == {"gated": ["a"]}


def test_gated_after_an_error(bench, pod, door):
    bench.add(pod("a"))
    queued = bench.pop()
    door.status = Status.unschedulable("shut")
    bench.reject(queued)
    assert bench.places() == {"gated": ["a"]}
    assert bench.queue.in_flight_count == 0


def test_without_pop_from_backoff_gates_stand_at_the_exit(make_bench, pod):
    bench = make_bench(pop_from_backoff=False)
    bench.profile.pre_enqueue["Door"] = door = Door()
    bench.add(pod("a"))
    queued = bench.pop()
    door.status = Status.unschedulable("shut")
    bench.reject(queued)
    assert bench.places() == {"backoff": ["a"]}
    bench.clock.advance_to(1002)
    bench.queue.flush_backoff_completed()
    bench.queue.validate()
    assert bench.places() == {"gated": ["a"]}


def test_runs_are_timed_as_successes(bench, pod):
    bench.add(pod("a", gates=("g",)), pod("b"))
    family = bench.metrics.framework_extension_point_duration_seconds
    counts = {labels: child.count for labels, child in family.histograms()}
    assert counts["PreEnqueue", "Success", "default-scheduler"] == 2


def test_unknown_profile_has_no_gates(bench, pod):
    bench.add(pod("a", profile="other", gates=("g",)))
    assert bench.places() == {"active": ["a"]}


# ---- a gate that knows whom it lets in -----------------------------------------------------------


@pytest.fixture
def letting(bench, door):
    """Names of the pods that the Door lets in by the next event."""
    names: list[str] = []

    def lets_in(old, new):
        return [f"default/{name}" for name in names]

    bench.profile.registrations.append(("Door", ClusterEvent(ev.NODE, ev.ADD, lets_in=lets_in)))
    return names


def test_only_pods_that_it_lets_in_are_tried_at_it(bench, pod, door, letting):
    door.status = Status.unschedulable("shut")
    bench.add(pod("a"), pod("b"))
    door.status, calls = None, door.calls
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert bench.places() == {"gated": ["a", "b"]}
    assert door.calls == calls
    letting += ["b", "unknown"]
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.queue.validate()
    assert bench.places() == {"active": ["b"], "gated": ["a"]}
    assert door.calls == calls + 1


def test_hints_have_a_say_about_those_that_it_lets_in(bench, pod, door):
    event = ClusterEvent(ev.NODE, ev.DELETE, lambda *_: False, lets_in=lambda *_: ["default/a"])
    bench.profile.registrations.append(("Door", event))
    bench.rejected(pod("a"), "Volume")
    door.status = Status.unschedulable("shut")
    bench.queue.activate(["default/a"])
    door.status = None
    bench.queue.move_all_to_active_or_backoff(ev.NODE_DELETE, None, None)
    assert bench.places() == {"gated": ["a"]}


def test_pods_of_other_gates_and_free_ones_are_moved_as_ever(bench, pod, door, letting):
    bench.profile.register("SchedulingGates", ev.NODE, ev.ADD)
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    bench.rejected(pod("free"), "Fit")
    bench.add(pod("gated", gates=("g",)))
    letting.append("gated")
    door.status, calls = Status.unschedulable("shut"), door.calls
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert door.calls == calls + 1
    gates = {queued.info.name: queued.gating_plugin for queued in bench.queue.gated_pods()}
    assert gates == {"gated": "SchedulingGates", "free": "Door"}


def test_one_that_cannot_tell_tries_all(bench, pod, door, caplog):
    def broken(old, new):
        raise RuntimeError("who?")

    bench.profile.registrations.append(("Door", ClusterEvent(ev.NODE, ev.ADD, lets_in=broken)))
    door.status = Status.unschedulable("shut")
    bench.add(pod("a"), pod("b"))
    door.status = None
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert bench.places() == {"active": ["a", "b"]}
    assert "who?" in caplog.text


def test_a_second_registration_without_it_tries_all(bench, pod, door, letting):
    bench.profile.register("Door", ev.NODE, ev.ADD)
    door.status = Status.unschedulable("shut")
    bench.add(pod("a"))
    door.status = None
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert bench.places() == {"active": ["a"]}
