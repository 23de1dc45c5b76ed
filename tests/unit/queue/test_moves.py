"""Moving on events, failed attempts, in-flight events."""

from __future__ import annotations

import msgspec
import pytest

from proreus.framework import events as ev
from proreus.framework.events import ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import PodSchedulingGroup


def test_only_pods_that_the_event_may_help_move(bench, pod):
    bench.profile.register("Fit", ev.POD, ev.DELETE)
    bench.profile.register("Taint", ev.NODE, ev.ADD)
    bench.rejected(pod("a"), "Fit")
    bench.rejected(pod("b"), "Taint")
    bench.rejected(pod("c"), "Name")
    bench.queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, None, None)
    bench.queue.validate()
    assert bench.places() == {"backoff": ["a"], "unschedulable": ["b", "c"]}
    assert bench.incoming()["backoff", "AssignedPodDelete"] == 1


def test_hints_are_asked_only_for_candidates(bench, pod):
    asked = []
    bench.profile.register("Fit", ev.POD, ev.DELETE, lambda pod, *_: asked.append(pod.name))
    bench.profile.register("Taint", ev.NODE, ev.ADD, lambda pod, *_: asked.append(pod.name))
    bench.rejected(pod("a"), "Fit")
    bench.rejected(pod("b"), "Taint")
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert asked == ["b"]


def test_after_backoff_goes_straight_to_active(bench, pod):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    queued = bench.rejected(pod("a"), "Fit")
    bench.clock.advance_to(1001.99)
    assert queued.unschedulable_count == 1
    bench.clock.advance_to(1002)
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert bench.places() == {"active": ["a"]}
    assert queued.timestamp == 1000, "moving does not make it younger"


def test_pending_plugins_skip_the_backoff(bench, pod):
    bench.profile.register("Claims", ev.NODE, ev.ADD)
    bench.profile.register("Fit", ev.NODE, ev.DELETE)
    bench.rejected(pod("a"), "Fit", pending=("Claims",))
    bench.rejected(pod("b"), "Fit", pending=("Claims",))
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None, lambda q: q.info.name == "a")
    assert bench.places() == {"active": ["a"], "unschedulable": ["b"]}
    bench.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    assert bench.places() == {"active": ["a"], "backoff": ["b"]}


def test_event_that_nobody_registered_is_not_even_kept(bench, pod):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    bench.add(pod("a"))
    bench.pop()
    bench.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    counts = {labels[0]: n for labels, n in bench.metrics.inflight_events.values()}
    assert counts == {"NodeAdd": 1, "PodPopped": 1}


def test_wildcard_moves_everybody_but_gated_pods(bench, pod):
    bench.rejected(pod("a"), "Fit")
    bench.add(pod("b", gates=("g",)))
    bench.queue.move_all_to_active_or_backoff(ev.UNSCHEDULABLE_TIMEOUT, None, None)
    assert bench.places() == {"backoff": ["a"], "gated": ["b"]}


def test_wildcard_does_not_even_ask_whether_the_gate_is_open(bench, pod):
    bench.add(pod("a", gates=("g",)))
    bench.queue.gated_pods()[0].info = pod("a")
    bench.queue.move_all_to_active_or_backoff(ev.UNSCHEDULABLE_TIMEOUT, None, None)
    assert bench.places() == {"gated": ["a"]}


def test_a_gate_that_registered_everything_opens_to_a_wildcard(bench, pod):
    bench.profile.register("SchedulingGates", ev.ANY, ev.ALL)
    bench.add(gated := pod("a", gates=("g",)))
    bench.queue.gated_pods()[0].info = pod("a")
    bench.queue.move_all_to_active_or_backoff(ev.UNSCHEDULABLE_TIMEOUT, None, None)
    assert bench.places() == {"active": ["a"]}
    assert gated.pod.spec.scheduling_gates


# ---- failed attempts ---------------------------------------------------------------------------


def test_rejected_pod_waits_for_an_event(bench, pod):
    bench.add(pod("a"))
    queued = bench.pop()
    bench.clock.advance(3)
    bench.reject(queued, "Fit", "Taint")
    assert bench.places() == {"unschedulable": ["a"]}
    assert (queued.timestamp, queued.unschedulable_count) == (1003, 1)
    assert queued.consecutive_errors_count == 0
    assert bench.per_plugin() == {"Fit": 1, "Taint": 1}
    assert bench.incoming()["unschedulable", "ScheduleAttemptFailure"] == 1
    assert bench.queue.in_flight_count == 0


def test_error_backs_off_longer_each_time_and_a_rejection_ends_the_row(bench, pod):
    bench.add(pod("a"))
    for count, end in ((1, 1001), (2, 1004), (3, 1009)):
        queued = bench.reject(bench.pop())
        assert (queued.consecutive_errors_count, queued.backoff_expiration) == (count, end)
        bench.clock.advance_to(end + 1)
        bench.queue.flush()
    bench.reject(bench.pop(), "Fit")
    assert (queued.consecutive_errors_count, queued.unschedulable_count) == (0, 1)


def test_error_without_backoff_is_active_at_once(make_bench, pod):
    bench = make_bench(max_backoff_seconds=0)
    bench.rejected(pod("a"))
    assert bench.places() == {"active": ["a"]}


def test_event_during_the_attempt_counts(bench, pod):
    seen = []
    bench.profile.register("Fit", ev.NODE, ev.ADD, lambda *args: seen.append(args[1:]) or True)
    bench.profile.register("Taint", ev.NODE, ev.ADD)
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, "too early")
    bench.add(pod("a"), pod("b"))
    first, second = bench.pop(), bench.pop()
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, "in time")
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, "needless")
    bench.reject(first, "Fit")
    bench.reject(second, "Name")
    assert bench.places() == {"backoff": ["a"], "unschedulable": ["b"]}
    assert seen == [(None, "in time")]
    bench.add(pod("c"))
    bench.reject(bench.pop(), "Fit")
    assert bench.places()["unschedulable"] == ["b", "c"], "events before its pop do not count"


def test_event_for_a_pending_plugin_wins_over_earlier_ones(bench, pod):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    bench.profile.register("Claims", ev.NODE, ev.DELETE)
    bench.add(pod("a"))
    queued = bench.pop()
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.queue.move_all_to_active_or_backoff(NODE_DELETE, None, None)
    bench.reject(queued, "Fit", pending=("Claims",))
    assert bench.places() == {"active": ["a"]}


def test_pods_of_a_group_back_off_without_asking(make_bench, pod):
    bench = make_bench(generic_workload=True)
    info = pod("a")
    spec = msgspec.structs.replace(info.pod.spec, scheduling_group=PodSchedulingGroup())
    info = PodInfo(msgspec.structs.replace(info.pod, spec=spec))
    bench.rejected(info, "Fit")
    bench.rejected(pod("b"), "Fit")
    assert bench.places() == {"backoff": ["a"], "unschedulable": ["b"]}


@pytest.mark.parametrize(
    ("plugins", "place"),
    [(("Fit",), "unschedulable queue"), ((), "the backoff queue"), (None, "the active queue")],
)
def test_pod_that_is_queued_already_is_not_queued_twice(bench, pod, caplog, plugins, place):
    info = pod("a")
    if plugins is None:
        bench.add(info)
    else:
        bench.rejected(info, *plugins)
    before = bench.places()
    bench.add(pod("b", priority=1))
    stray = bench.pop()
    stray.info = pod("a", uid=stray.uid)
    bench.reject(stray, "Other")
    assert bench.places() == before
    assert f"Pod default/a is already present in {place}" in caplog.text
    assert bench.queue.in_flight_count == 0
    assert "Other" not in bench.per_plugin()


def test_done_without_failure(bench, pod):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    bench.add(pod("a"))
    queued = bench.pop()
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.queue.done(queued.uid)
    bench.queue.done("unknown")
    bench.queue.validate()
    assert bench.queue.in_flight_count == 0
    counts = {labels[0]: n for labels, n in bench.metrics.inflight_events.values()}
    assert counts == {"NodeAdd": 0, "PodPopped": 0}
