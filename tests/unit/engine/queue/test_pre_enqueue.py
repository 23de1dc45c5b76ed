"""PreEnqueue: when plugins are asked, what their answers lead to."""

from __future__ import annotations

import pytest

from proreus.framework import events as ev
from proreus.framework.events import NODE_ADD, ClusterEvent
from proreus.framework.pod_events import DEFAULT_POD_EVENTS
from proreus.framework.status import Status

UPDATED = DEFAULT_POD_EVENTS.target[ev.UPDATE]
GATES_GONE = ClusterEvent(ev.TARGET_POD, ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


class ToggleGate:
    """A PreEnqueue plugin that can be opened and counts its calls."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.calls = 0

    def __call__(self, pod):
        self.calls += 1
        return self.status


@pytest.fixture
def gate(harness):
    harness.profile.pre_enqueue["ToggleGate"] = gate = ToggleGate()
    return gate


def test_gated_pod_waits_among_the_unschedulable(harness, pod):
    harness.add(pod("a", pre_enqueue_plugins=("g",)))
    harness.queue.validate()
    assert harness.places() == {"gated": ["a"]}
    (queued,) = harness.queue.gated_pods()
    assert queued.gating_plugin == "SchedulingGates"
    assert queued.unschedulable_plugins == {"SchedulingGates"}
    assert queued.initial_attempt_timestamp is None
    assert harness.per_plugin() == {"SchedulingGates": 1}
    assert harness.incoming() == {("unschedulable", "UnscheduledPodAdd"): 1}
    assert harness.queue.pop() is None


def test_pod_leaves_when_its_gates_are_gone(harness, pod):
    harness.profile.register("SchedulingGates", ev.POD, GATES_GONE.action)
    gated, free = pod("a", pre_enqueue_plugins=("g",)), pod("a")
    harness.add(gated)
    harness.clock.advance(5)
    harness.queue.update(gated, free, [GATES_GONE])
    harness.queue.validate()
    assert harness.places() == {"active": ["a"]}
    queued = harness.pop()
    assert queued.gating_plugin == ""
    assert queued.unschedulable_plugins == {"SchedulingGates"}, "old names stay until a failure"
    assert queued.timestamp == 1000
    assert queued.initial_attempt_timestamp == 1005
    assert harness.per_plugin() == {}


def test_update_that_its_gate_does_not_wait_for_leaves_it_gated(harness, pod, gate):
    harness.profile.register("SchedulingGates", ev.POD, GATES_GONE.action)
    gated = pod("a", pre_enqueue_plugins=("g", "h"))
    harness.add(gated)
    calls = gate.calls
    harness.queue.update(gated, pod("a", pre_enqueue_plugins=("h",)), [UPDATED])
    assert harness.places() == {"gated": ["a"]}
    assert gate.calls == calls
    assert len(harness.queue.gated_pods()[0].pod.spec.scheduling_gates) == 1


def test_the_gating_plugin_is_asked_first_and_others_take_over(harness, pod, gate):
    harness.profile.register("ToggleGate", ev.NODE, ev.ADD)
    harness.profile.register("SchedulingGates", ev.POD, GATES_GONE.action)
    gate.status = Status.unschedulable("shut")
    harness.add(pod("a"))
    (queued,) = harness.queue.gated_pods()
    assert queued.gating_plugin == "ToggleGate"
    gate.status = None
    gated = pod("a", pre_enqueue_plugins=("g",))
    harness.queue.update(pod("a"), gated, [])
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.validate()
    assert queued.gating_plugin == "SchedulingGates"
    assert harness.per_plugin() == {"ToggleGate": 1, "SchedulingGates": 1}
    harness.queue.update(gated, pod("a"), [GATES_GONE])
    assert harness.places() == {"active": ["a"]}


def test_staying_gated_counts_once_for_its_plugin(harness, pod, gate):
    harness.profile.register("ToggleGate", ev.NODE, ev.ADD)
    gate.status = Status.unschedulable("shut")
    harness.add(pod("a"))
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert gate.calls == 2
    assert harness.places() == {"gated": ["a"]}
    assert harness.per_plugin() == {"ToggleGate": 1}
    assert harness.incoming() == {
        ("unschedulable", "UnscheduledPodAdd"): 1,
        ("unschedulable", "NodeAdd"): 1,
    }


def test_first_no_ends_the_questions(harness, pod, gate):
    harness.add(pod("a", pre_enqueue_plugins=("g",)))
    assert gate.calls == 0
    harness.add(pod("b"))
    assert gate.calls == 1


@pytest.mark.parametrize("code", ["unschedulable", "unresolvable", "pending", "error"])
def test_anything_but_success_gates(harness, pod, gate, code):
    gate.status = getattr(Status, code)("no")
    harness.add(pod("a"))
    assert harness.places() == {"gated": ["a"]}


def test_a_plugin_that_raises_gates(harness, pod, caplog):
    def broken(pod):
        raise RuntimeError("oh no")

    harness.profile.pre_enqueue["Broken"] = broken
    harness.add(pod("a"))
    assert harness.queue.gated_pods()[0].gating_plugin == "Broken"
    assert "oh no" in caplog.text


def test_events_that_do_not_open_the_gate_pass_it_by(harness, pod, gate):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.profile.register("ToggleGate", ev.NODE, ev.DELETE)
    queued = harness.rejected(pod("a"), "Fit")
    gate.status = Status.unschedulable("shut")
    harness.queue.activate(["default/a"])
    assert harness.places() == {"gated": ["a"]}
    assert queued.unschedulable_plugins == {"Fit", "ToggleGate"}
    gate.status = None
    calls = gate.calls
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"gated": ["a"]}
    assert gate.calls == calls
    harness.queue.move_all_to_active_or_backoff(ev.NODE_DELETE, None, None)
    assert harness.places() == {"backoff": ["a"]}


def test_asked_on_the_way_to_backoff_and_not_on_the_way_out(harness, pod, gate):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    queued = harness.rejected(pod("a"), "Fit")
    before = gate.calls
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"backoff": ["a"]}
    assert gate.calls == before + 1
    gate.status = Status.unschedulable("shut")
    harness.clock.advance_to(1002)
    harness.queue.flush_backoff_completed()
    assert harness.places() == {"active": ["a"]}
    assert gate.calls == before + 1
    assert not queued.gated


def test_gated_on_the_way_to_backoff(harness, pod, gate):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.rejected(pod("a"), "Fit")
    gate.status = Status.unschedulable("shut")
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.validate()
    assert harness.places() == {"gated": ["a"]}


def test_gated_after_an_error(harness, pod, gate):
    harness.add(pod("a"))
    queued = harness.pop()
    gate.status = Status.unschedulable("shut")
    harness.reject(queued)
    assert harness.places() == {"gated": ["a"]}
    assert harness.queue.in_flight_count == 0


def test_without_pop_from_backoff_gates_stand_at_the_exit(make_harness, pod):
    harness = make_harness(pop_from_backoff=False)
    harness.profile.pre_enqueue["ToggleGate"] = gate = ToggleGate()
    harness.add(pod("a"))
    queued = harness.pop()
    gate.status = Status.unschedulable("shut")
    harness.reject(queued)
    assert harness.places() == {"backoff": ["a"]}
    harness.clock.advance_to(1002)
    harness.queue.flush_backoff_completed()
    harness.queue.validate()
    assert harness.places() == {"gated": ["a"]}


def test_runs_are_timed_as_successes(harness, pod):
    harness.add(pod("a", pre_enqueue_plugins=("g",)), pod("b"))
    family = harness.metrics.framework_extension_point_duration_seconds
    counts = {labels: child.count for labels, child in family.histograms()}
    assert counts["PreEnqueue", "Success", "default-scheduler"] == 2


def test_unknown_profile_has_no_gates(harness, pod):
    harness.add(pod("a", profile="other", pre_enqueue_plugins=("g",)))
    assert harness.places() == {"active": ["a"]}


# ---- a gate that knows whom it lets in -----------------------------------------------------------


@pytest.fixture
def letting(harness, gate):
    """Names of the pods that the ToggleGate lets in by the next event."""
    names: list[str] = []

    def ungated_pods(old, new):
        return [f"default/{name}" for name in names]

    harness.profile.registrations.append(
        ("ToggleGate", ClusterEvent(ev.NODE, ev.ADD, ungated_pods=ungated_pods))
    )
    return names


def test_only_pods_that_it_lets_in_are_tried_at_it(harness, pod, gate, letting):
    gate.status = Status.unschedulable("shut")
    harness.add(pod("a"), pod("b"))
    gate.status, calls = None, gate.calls
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"gated": ["a", "b"]}
    assert gate.calls == calls
    letting += ["b", "unknown"]
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.validate()
    assert harness.places() == {"active": ["b"], "gated": ["a"]}
    assert gate.calls == calls + 1


def test_hints_have_a_say_about_those_that_it_lets_in(harness, pod, gate):
    event = ClusterEvent(
        ev.NODE, ev.DELETE, lambda *_: False, ungated_pods=lambda *_: ["default/a"]
    )
    harness.profile.registrations.append(("ToggleGate", event))
    harness.rejected(pod("a"), "Volume")
    gate.status = Status.unschedulable("shut")
    harness.queue.activate(["default/a"])
    gate.status = None
    harness.queue.move_all_to_active_or_backoff(ev.NODE_DELETE, None, None)
    assert harness.places() == {"gated": ["a"]}


def test_pods_of_other_gates_and_free_ones_are_moved_as_ever(harness, pod, gate, letting):
    harness.profile.register("SchedulingGates", ev.NODE, ev.ADD)
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.rejected(pod("free"), "Fit")
    harness.add(pod("gated", pre_enqueue_plugins=("g",)))
    letting.append("gated")
    gate.status, calls = Status.unschedulable("shut"), gate.calls
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert gate.calls == calls + 1
    pre_enqueue_plugins = {
        queued.info.name: queued.gating_plugin for queued in harness.queue.gated_pods()
    }
    assert pre_enqueue_plugins == {"gated": "SchedulingGates", "free": "ToggleGate"}


def test_a_failing_ungated_pods_function_moves_all(harness, pod, gate, caplog):
    def broken(old, new):
        raise RuntimeError("who?")

    harness.profile.registrations.append(
        ("ToggleGate", ClusterEvent(ev.NODE, ev.ADD, ungated_pods=broken))
    )
    gate.status = Status.unschedulable("shut")
    harness.add(pod("a"), pod("b"))
    gate.status = None
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"active": ["a", "b"]}
    assert "who?" in caplog.text


def test_a_second_registration_without_it_tries_all(harness, pod, gate, letting):
    harness.profile.register("ToggleGate", ev.NODE, ev.ADD)
    gate.status = Status.unschedulable("shut")
    harness.add(pod("a"))
    gate.status = None
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"active": ["a"]}


# ---- a first list --------------------------------------------------------------------------------


def list_of_nodes(harness, number: int) -> None:
    with harness.queue.first_list():
        for node in range(number):
            harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, node)


def test_a_first_list_is_one_event(harness, pod, gate):
    asked = []
    harness.profile.register("ToggleGate", ev.NODE, ev.ADD, lambda *change: asked.append(change))
    gate.status = Status.unschedulable("shut")
    harness.add(pod("a"), pod("b"))
    calls = gate.calls
    list_of_nodes(harness, 50)
    assert gate.calls == calls + 2
    assert harness.places() == {"gated": ["a", "b"]}
    gate.status = None
    list_of_nodes(harness, 50)
    harness.queue.validate()
    assert harness.places() == {"active": ["a", "b"]}
    assert not asked


def test_a_first_list_concerns_pods_that_its_objects_let_in(harness, pod, gate):
    event = ClusterEvent(ev.NODE, ev.ADD, ungated_pods=lambda old, new: [f"default/{new}"])
    harness.profile.registrations.append(("ToggleGate", event))
    gate.status = Status.unschedulable("shut")
    harness.add(pod("1"), pod("x"))
    gate.status, calls = None, gate.calls
    list_of_nodes(harness, 50)
    assert harness.places() == {"active": ["1"], "gated": ["x"]}
    assert gate.calls == calls + 1


def test_a_first_list_helps_rejected_pods_and_those_in_flight(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD, lambda *_: False)
    harness.rejected(pod("a"), "Fit")
    harness.rejected(pod("b"), "Other")
    harness.add(pod("c"))
    in_flight = harness.pop()
    list_of_nodes(harness, 2)
    harness.reject(in_flight, "Fit")
    assert harness.places() == {"backoff": ["a", "c"], "unschedulable": ["b"]}


def test_no_list_is_left_behind_by_one_that_fails(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.rejected(pod("a"), "Fit")
    with pytest.raises(ValueError, match="broken"), harness.queue.first_list():
        raise ValueError("broken")
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"backoff": ["a"]}


def test_pods_that_an_event_ungates_are_named_only_where_some_are_gated(harness, pod, gate):
    asked = []

    def named(old, new):
        asked.append(new)
        return []

    event = ClusterEvent(ev.NODE, ev.ADD, ungated_pods=named)
    harness.profile.registrations.append(("ToggleGate", event))
    harness.rejected(pod("a"), "Fit")
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, "n0")
    assert asked == []
    gate.status = Status.unschedulable("shut")
    harness.add(pod("b"))
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, "n1")
    assert asked == ["n1"]
