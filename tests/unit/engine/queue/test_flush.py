"""Timers: back-off each second, left-over pods each 30 seconds; and what else happens seldom."""

from __future__ import annotations

from proreus.base.clock import FakeClock
from proreus.engine.queue.queue_recorder import HISTORY_LENGTH, QueueRecorder
from proreus.framework import events as ev
from proreus.framework.events import NODE_ADD


def test_backoff_ends_in_the_second_after_its_expiration(harness, pod):
    harness.clock.advance_to(1000.5)
    harness.rejected(pod("a"))
    for instant in (1001.0, 1001.99):
        harness.clock.advance_to(instant)
        harness.queue.flush()
        assert harness.places() == {"backoff": ["a"]}
    harness.clock.advance_to(1002)
    harness.queue.flush()
    harness.queue.validate()
    assert harness.places() == {"active": ["a"]}
    assert harness.incoming()["active", "BackoffComplete"] == 1


def test_left_over_pods_are_tried_again_after_more_than_five_minutes(harness, pod):
    harness.queue.flush()
    queued = harness.rejected(pod("a"), "Fit")
    harness.add(pod("gated", pre_enqueue_plugins=("g",)))
    harness.clock.advance_to(1300)
    harness.queue.flush_unschedulable_left_over()
    assert harness.places() == {"unschedulable": ["a"], "gated": ["gated"]}
    assert not queued.was_flushed_from_unschedulable
    harness.clock.advance_to(1300.5)
    harness.queue.flush_unschedulable_left_over()
    harness.queue.validate()
    assert harness.places() == {"active": ["a"], "gated": ["gated"]}
    assert queued.was_flushed_from_unschedulable
    assert harness.incoming()["active", "UnschedulableTimeout"] == 1
    harness.reject(harness.pop(), "Fit")
    assert not queued.was_flushed_from_unschedulable


def test_since_1_37_gated_pods_are_tried_every_five_minutes(make_harness, pod):
    harness = make_harness(flushes_gated_pods=True)
    gated = pod("gated", pre_enqueue_plugins=("g",))
    harness.add(gated)
    queued = harness.queue.get(gated.key)
    for instant in (1300.5, 1599, 1601):
        harness.clock.advance_to(instant)
        harness.queue.flush_unschedulable_left_over()
        assert harness.places() == {"gated": ["gated"]}
        assert queued.flush_timestamp == (1601 if instant > 1600.5 else 1300.5)
    harness.queue.validate()


def test_flush_looks_for_left_over_pods_every_thirty_seconds(make_harness, pod):
    harness = make_harness(unschedulable_timeout_seconds=5)
    harness.queue.flush()
    harness.rejected(pod("a"), "Fit")
    for instant in range(1001, 1030):
        harness.clock.advance_to(instant)
        harness.queue.flush()
        assert harness.places() == {"unschedulable": ["a"]}
    harness.clock.advance_to(1030)
    harness.queue.flush()
    assert harness.places() == {"active": ["a"]}


def test_flushed_every_second_each_pod_is_moved_when_it_is_due(make_harness, pod):
    harness = make_harness(unschedulable_timeout_seconds=60)
    harness.clock.advance_to(1000.3)
    harness.rejected(pod("a"), "Fit")
    harness.rejected(pod("b"))
    harness.clock.advance_to(1007.7)
    harness.rejected(pod("c"), "Fit")
    moved = {}
    for instant in range(1008, 1100):
        harness.clock.advance_to(instant)
        harness.queue.flush()
        for name in harness.places().get("active", []):
            moved.setdefault(name, instant)
    assert moved == {"b": 1008, "a": 1068, "c": 1068}


def test_nothing_to_flush(harness, pod):
    harness.add(pod("a"), pod("gated", pre_enqueue_plugins=("g",)))
    harness.queue.flush()
    assert harness.places() == {"active": ["a"], "gated": ["gated"]}


def test_history_has_every_move(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    info = pod("a")
    harness.rejected(info, "Fit")
    harness.clock.advance(0.5)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.add(pod("b", pre_enqueue_plugins=("g",)))
    harness.queue.delete(info)
    assert harness.queue.history("default/a") == [
        "1000.000 active (UnscheduledPodAdd)",
        "1000.000 popped",
        "1000.000 unschedulable (ScheduleAttemptFailure)",
        "1000.500 backoff (NodeAdd)",
        "1000.500 deleted",
    ]
    assert "1000.500 gated (SchedulingGates)" in harness.queue.history("default/b")
    assert harness.queue.history("default/unknown") == []


def test_the_history_has_the_latest_moves_of_all_pods():
    recorder = QueueRecorder(FakeClock(), None)
    for number in range(HISTORY_LENGTH + 2):
        recorder.note("default/first" if number < 3 else "default/other", "popped", str(number))
    assert [move.split()[-1] for move in recorder.history("default/first")] == ["(2)"]
    assert len(recorder.history("default/other")) == HISTORY_LENGTH - 1


def test_changed_profiles_give_everybody_another_chance(harness, make_harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.rejected(pod("held"), "Fit")
    harness.rejected(pod("error", priority=1))
    harness.add(
        pod("gated", pre_enqueue_plugins=("g",)), pod("last", priority=9), pod("first", priority=2)
    )
    assert harness.pop().info.name == "last"
    changed = make_harness().profile
    changed.pre_enqueue.clear()
    harness.queue.use_profiles({"default-scheduler": changed}, lambda q: q.info.priority)
    harness.queue.validate()
    assert harness.places() == {"active": ["gated", "first"], "backoff": ["held", "error"]}
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    counts = {labels[0]: n for labels, n in harness.metrics.inflight_events.values()}
    assert counts == {"ProfilesChanged": 1, "PodPopped": 1}
