"""Moving on events, failed attempts, in-flight events."""

from __future__ import annotations

import msgspec
import pytest

from proreus.base.kubernetes_version import V1_36
from proreus.framework import events as ev
from proreus.framework.events import ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE, ClusterEvent
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.pod import PodSchedulingGroup


def test_only_pods_that_the_event_may_help_move(harness, pod):
    harness.profile.register("Fit", ev.POD, ev.DELETE)
    harness.profile.register("Taint", ev.NODE, ev.ADD)
    harness.rejected(pod("a"), "Fit")
    harness.rejected(pod("b"), "Taint")
    harness.rejected(pod("c"), "Name")
    harness.queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, None, None)
    harness.queue.validate()
    assert harness.places() == {"backoff": ["a"], "unschedulable": ["b", "c"]}
    assert harness.incoming()["backoff", "AssignedPodDelete"] == 1


def test_hints_are_asked_only_for_candidates(harness, pod):
    asked = []
    harness.profile.register("Fit", ev.POD, ev.DELETE, lambda pod, *_: asked.append(pod.name))
    harness.profile.register("Taint", ev.NODE, ev.ADD, lambda pod, *_: asked.append(pod.name))
    harness.rejected(pod("a"), "Fit")
    harness.rejected(pod("b"), "Taint")
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert asked == ["b"]


def test_after_backoff_goes_straight_to_active(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    queued = harness.rejected(pod("a"), "Fit")
    harness.clock.advance_to(1001.99)
    assert queued.unschedulable_count == 1
    harness.clock.advance_to(1002)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"active": ["a"]}
    assert queued.timestamp == 1000, "moving does not make it younger"


def test_pending_plugins_skip_the_backoff(harness, pod):
    harness.profile.register("Claims", ev.NODE, ev.ADD)
    harness.profile.register("Fit", ev.NODE, ev.DELETE)
    harness.rejected(pod("a"), "Fit", pending=("Claims",))
    harness.rejected(pod("b"), "Fit", pending=("Claims",))
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None, lambda q: q.info.name == "a")
    assert harness.places() == {"active": ["a"], "unschedulable": ["b"]}
    harness.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    assert harness.places() == {"active": ["a"], "backoff": ["b"]}


def test_event_that_nobody_registered_is_not_even_kept(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.add(pod("a"))
    harness.pop()
    harness.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    counts = {labels[0]: n for labels, n in harness.metrics.inflight_events.values()}
    assert counts == {"NodeAdd": 1, "PodPopped": 1}


def test_wildcard_moves_everybody_but_gated_pods(harness, pod):
    harness.rejected(pod("a"), "Fit")
    harness.add(pod("b", pre_enqueue_plugins=("g",)))
    harness.queue.move_all_to_active_or_backoff(ev.UNSCHEDULABLE_TIMEOUT, None, None)
    assert harness.places() == {"backoff": ["a"], "gated": ["b"]}


def test_wildcard_of_1_36_does_not_even_ask_whether_the_gate_is_open(make_harness, pod):
    harness = make_harness(version=V1_36)
    harness.add(pod("a", pre_enqueue_plugins=("g",)))
    harness.queue.gated_pods()[0].info = pod("a")
    harness.queue.move_all_to_active_or_backoff(ev.UNSCHEDULABLE_TIMEOUT, None, None)
    assert harness.places() == {"gated": ["a"]}


def test_a_gate_that_registered_everything_opens_to_a_wildcard(harness, pod):
    harness.profile.register("SchedulingGates", ev.ANY, ev.ALL)
    harness.add(gated := pod("a", pre_enqueue_plugins=("g",)))
    harness.queue.gated_pods()[0].info = pod("a")
    harness.queue.move_all_to_active_or_backoff(ev.UNSCHEDULABLE_TIMEOUT, None, None)
    assert harness.places() == {"active": ["a"]}
    assert gated.pod.spec.scheduling_gates


# ---- failed attempts ---------------------------------------------------------------------------


def test_rejected_pod_waits_for_an_event(harness, pod):
    harness.add(pod("a"))
    queued = harness.pop()
    harness.clock.advance(3)
    harness.reject(queued, "Fit", "Taint")
    assert harness.places() == {"unschedulable": ["a"]}
    assert (queued.timestamp, queued.unschedulable_count) == (1003, 1)
    assert queued.consecutive_errors_count == 0
    assert harness.per_plugin() == {"Fit": 1, "Taint": 1}
    assert harness.incoming()["unschedulable", "ScheduleAttemptFailure"] == 1
    assert harness.queue.in_flight_count == 0


def test_error_backs_off_longer_each_time_and_a_rejection_ends_the_row(harness, pod):
    harness.add(pod("a"))
    for count, end in ((1, 1001), (2, 1004), (3, 1009)):
        queued = harness.reject(harness.pop())
        assert (queued.consecutive_errors_count, queued.backoff_expiration) == (count, end)
        harness.clock.advance_to(end + 1)
        harness.queue.flush()
    harness.reject(harness.pop(), "Fit")
    assert (queued.consecutive_errors_count, queued.unschedulable_count) == (0, 1)


def test_error_without_backoff_is_active_at_once(make_harness, pod):
    harness = make_harness(max_backoff_seconds=0)
    harness.rejected(pod("a"))
    assert harness.places() == {"active": ["a"]}


def test_event_during_the_attempt_counts(harness, pod):
    seen = []
    harness.profile.register("Fit", ev.NODE, ev.ADD, lambda *args: seen.append(args[1:]) or True)
    harness.profile.register("Taint", ev.NODE, ev.ADD)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, "too early")
    harness.add(pod("a"), pod("b"))
    first, second = harness.pop(), harness.pop()
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, "in time")
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, "needless")
    harness.reject(first, "Fit")
    harness.reject(second, "Name")
    assert harness.places() == {"backoff": ["a"], "unschedulable": ["b"]}
    assert seen == [(None, "in time")]
    harness.add(pod("c"))
    harness.reject(harness.pop(), "Fit")
    assert harness.places()["unschedulable"] == ["b", "c"], "events before its pop do not count"


def test_event_for_a_pending_plugin_wins_over_earlier_ones(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.profile.register("Claims", ev.NODE, ev.DELETE)
    harness.add(pod("a"))
    queued = harness.pop()
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    harness.reject(queued, "Fit", pending=("Claims",))
    assert harness.places() == {"active": ["a"]}


def test_pods_of_a_group_back_off_without_asking(make_harness, pod):
    harness = make_harness(generic_workload=True)
    info = pod("a")
    spec = msgspec.structs.replace(info.pod.spec, scheduling_group=PodSchedulingGroup())
    info = PodInfo(msgspec.structs.replace(info.pod, spec=spec))
    harness.rejected(info, "Fit")
    harness.rejected(pod("b"), "Fit")
    assert harness.places() == {"backoff": ["a"], "unschedulable": ["b"]}


@pytest.mark.parametrize(
    ("plugins", "place"),
    [(("Fit",), "unschedulable queue"), ((), "the backoff queue"), (None, "the active queue")],
)
def test_pod_that_is_queued_already_is_not_queued_twice(harness, pod, caplog, plugins, place):
    info = pod("a")
    if plugins is None:
        harness.add(info)
    else:
        harness.rejected(info, *plugins)
    before = harness.places()
    harness.add(pod("b", priority=1))
    stray = harness.pop()
    stray.info = pod("a", uid=stray.uid)
    harness.reject(stray, "Other")
    assert harness.places() == before
    assert f"Pod default/a is already present in {place}" in caplog.text
    assert harness.queue.in_flight_count == 0
    assert "Other" not in harness.per_plugin()


def test_done_without_failure(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.add(pod("a"))
    queued = harness.pop()
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.done(queued.uid)
    harness.queue.done("unknown")
    harness.queue.validate()
    assert harness.queue.in_flight_count == 0
    counts = {labels[0]: n for labels, n in harness.metrics.inflight_events.values()}
    assert counts == {"NodeAdd": 0, "PodPopped": 0}


# ---- in portions -------------------------------------------------------------------------------


def test_an_event_is_seen_by_a_portion_of_the_pods_at_a_time(harness, pod):
    asked = []
    harness.profile.register("Fit", ev.NODE, ev.ADD, lambda pod, *_: asked.append(pod.name))
    for number in range(10):
        harness.rejected(pod(f"p{number}"), "Fit")
    harness.queue.move_in_portions(4)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert len(asked) == 4
    assert harness.queue.is_moving
    harness.add(pod("other"))
    assert harness.queue.pop().info.name == "other"
    assert len(asked) == 8
    assert harness.queue.pop() is None
    assert asked == [f"p{number}" for number in range(10)]
    assert not harness.queue.is_moving
    harness.queue.validate()


def test_of_many_events_in_a_row_one_portion_is_looked_at(harness, pod):
    asked = []
    harness.profile.register("Fit", ev.NODE, ev.ADD, lambda pod, *_: asked.append(pod.name))
    for number in range(10):
        harness.rejected(pod(f"p{number}"), "Fit")
    harness.queue.move_in_portions(4)
    for _ in range(5):
        harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert len(asked) == 4
    while harness.queue.is_moving:
        assert harness.queue.pop() is None
    assert len(asked) == 5 * 10


def test_pods_that_left_meanwhile_are_not_moved(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    queued = [harness.rejected(pod(f"p{number}"), "Fit") for number in range(6)]
    harness.queue.move_in_portions(2)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.delete(queued[4].info)
    harness.queue.activate([queued[5].info.key])
    while harness.queue.is_moving:
        harness.queue.pop()
    harness.queue.validate()
    assert "p4" not in str(harness.places())
    assert not harness.places().get("unschedulable")


def test_whoever_pops_is_told_that_pods_are_left_to_look_at(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD, lambda *_: False)
    for number in range(6):
        harness.rejected(pod(f"p{number}"), "Fit")
    told = []
    harness.queue.on_ready = lambda: told.append(1)
    harness.queue.move_in_portions(2)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert told


def test_an_event_whose_pods_cannot_be_told_concerns_all_and_is_over(harness, pod, caplog):
    asked = []
    harness.profile.register("Fit", ev.NODE, ev.ADD, lambda pod, *_: asked.append(pod.name))
    for number in range(3):
        harness.rejected(pod(f"p{number}"), "Fit")
    harness.queue.move_in_portions(2)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None, lambda _: 1 / 0)
    while harness.queue.is_moving:
        assert harness.queue.pop() is None
    assert asked == ["p0", "p1", "p2"] * 2
    assert "division by zero" in caplog.text


# ---- more events than can be looked at -----------------------------------------------------------


def waiting_behind_a_backlog(harness, pod):
    """Ten pods that no event helps by its hints, and an event that four of them have seen."""
    asked = []
    harness.profile.register("Fit", ev.NODE, ev.ALL, lambda pod, *_: asked.append(pod.name))
    for number in range(10):
        harness.rejected(pod(f"p{number}"), "Fit")
    harness.rejected(pod("other"), "Other")
    harness.queue.move_in_portions(4)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    return asked


def test_events_beyond_what_can_be_looked_at_become_one_of_each_kind(harness, pod):
    asked = waiting_behind_a_backlog(harness, pod)
    for _ in range(5_000):
        harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
        harness.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    pops = 0
    while harness.queue.is_moving:
        harness.queue.pop()
        pops += 1
    # All that could be helped are tried; hints were asked about the first event alone.
    assert pops < 500
    assert len(asked) <= 100 * 10
    assert harness.places()["unschedulable"] == ["other"]
    harness.queue.validate()


def test_gated_pods_are_let_in_by_one_of_many_events(harness, pod):
    harness.profile.pre_enqueue["Gate"] = lambda one: (
        Status.unresolvable("shut") if shut and one.name == "gated" else None
    )
    named = ClusterEvent(ev.NODE, ev.DELETE, ungated_pods=lambda old, new: ["default/gated"])
    harness.profile.registrations.append(("Gate", named))
    shut = True
    waiting_behind_a_backlog(harness, pod)
    harness.add(pod("gated"))
    shut = False
    for _ in range(200):
        harness.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    assert harness.places()["gated"] == ["gated"]
    popped = []
    while harness.queue.is_moving:
        popped.append(harness.queue.pop())
    assert "gated" in [one.info.name for one in popped if one is not None]


def test_a_backlog_is_flushed_once(harness, pod):
    waiting_behind_a_backlog(harness, pod)
    harness.clock.advance_to(1301)
    queued = harness.queue.unschedulable_pods()
    for _ in range(3):
        harness.queue.flush_unschedulable_left_over()
    assert not any(one.was_flushed_from_unschedulable for one in queued)
    harness.queue.activate(["default/p9"])
    while harness.queue.is_moving:
        harness.queue.pop()
    flushed = {one.info.name for one in queued if one.was_flushed_from_unschedulable}
    assert flushed == {*(f"p{number}" for number in range(9)), "other"}
    harness.queue.validate()
