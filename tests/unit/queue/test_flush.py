"""Timers: back-off each second, left-over pods each 30 seconds; and what else happens seldom."""

from __future__ import annotations

from proreus.framework import events as ev
from proreus.framework.events import NODE_ADD


def test_backoff_ends_in_the_second_after_its_expiration(bench, pod):
    bench.clock.advance_to(1000.5)
    bench.rejected(pod("a"))
    for instant in (1001.0, 1001.99):
        bench.clock.advance_to(instant)
        bench.queue.flush()
        assert bench.places() == {"backoff": ["a"]}
    bench.clock.advance_to(1002)
    bench.queue.flush()
    bench.queue.validate()
    assert bench.places() == {"active": ["a"]}
    assert bench.incoming()["active", "BackoffComplete"] == 1


def test_left_over_pods_are_tried_again_after_more_than_five_minutes(bench, pod):
    bench.queue.flush()
    queued = bench.rejected(pod("a"), "Fit")
    bench.add(pod("gated", gates=("g",)))
    bench.clock.advance_to(1300)
    bench.queue.flush_unschedulable_left_over()
    assert bench.places() == {"unschedulable": ["a"], "gated": ["gated"]}
    assert not queued.was_flushed_from_unschedulable
    bench.clock.advance_to(1300.5)
    bench.queue.flush_unschedulable_left_over()
    bench.queue.validate()
    assert bench.places() == {"active": ["a"], "gated": ["gated"]}
    assert queued.was_flushed_from_unschedulable
    assert bench.incoming()["active", "UnschedulableTimeout"] == 1
    bench.reject(bench.pop(), "Fit")
    assert not queued.was_flushed_from_unschedulable


def test_flush_looks_for_left_over_pods_every_thirty_seconds(make_bench, pod):
    bench = make_bench(unschedulable_timeout_seconds=5)
    bench.queue.flush()
    bench.rejected(pod("a"), "Fit")
    for instant in range(1001, 1030):
        bench.clock.advance_to(instant)
        bench.queue.flush()
        assert bench.places() == {"unschedulable": ["a"]}
    bench.clock.advance_to(1030)
    bench.queue.flush()
    assert bench.places() == {"active": ["a"]}


def test_flushed_every_second_each_pod_is_moved_when_it_is_due(make_bench, pod):
    bench = make_bench(unschedulable_timeout_seconds=60)
    bench.clock.advance_to(1000.3)
    bench.rejected(pod("a"), "Fit")
    bench.rejected(pod("b"))
    bench.clock.advance_to(1007.7)
    bench.rejected(pod("c"), "Fit")
    moved = {}
    for instant in range(1008, 1100):
        bench.clock.advance_to(instant)
        bench.queue.flush()
        for name in bench.places().get("active", []):
            moved.setdefault(name, instant)
    assert moved == {"b": 1008, "a": 1068, "c": 1068}


def test_nothing_to_flush(bench, pod):
    bench.add(pod("a"), pod("gated", gates=("g",)))
    bench.queue.flush()
    assert bench.places() == {"active": ["a"], "gated": ["gated"]}


def test_story_tells_what_happened(bench, pod):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    info = pod("a")
    bench.rejected(info, "Fit")
    bench.clock.advance(0.5)
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.add(pod("b", gates=("g",)))
    bench.queue.delete(info)
    assert bench.queue.story("default/a") == [
        "1000.000 active (UnschedulablePodAdd)",
        "1000.000 popped",
        "1000.000 unschedulable (ScheduleAttemptFailure)",
        "1000.500 backoff (NodeAdd)",
        "1000.500 deleted",
    ]
    assert "1000.500 gated (SchedulingGates)" in bench.queue.story("default/b")
    assert bench.queue.story("default/unknown") == []


def test_changed_profiles_give_everybody_another_chance(bench, make_bench, pod):
    bench.profile.register("Fit", ev.NODE, ev.ADD)
    bench.rejected(pod("held"), "Fit")
    bench.rejected(pod("error", priority=1))
    bench.add(pod("gated", gates=("g",)), pod("last", priority=9), pod("first", priority=2))
    assert bench.pop().info.name == "last"
    changed = make_bench().profile
    changed.pre_enqueue.clear()
    bench.queue.use_profiles({"default-scheduler": changed}, lambda q: q.info.priority)
    bench.queue.validate()
    assert bench.places() == {"active": ["gated", "first"], "backoff": ["held", "error"]}
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    counts = {labels[0]: n for labels, n in bench.metrics.inflight_events.values()}
    assert counts == {"ProfilesChanged": 1, "PodPopped": 1}
