"""What the queue of Kubernetes 1.37 counts and keeps otherwise than that of 1.36."""

from __future__ import annotations

import pytest

from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.framework import events as ev
from proreus.framework.events import NODE_ADD
from proreus.framework.post_filter_result import NominatingInfo


@pytest.fixture
def harness(make_harness):
    return make_harness(version=V1_37)


# ---- entities ------------------------------------------------------------------------------------


def test_added_and_activated_pods_count_always(harness, pod):
    harness.add(pod("a"))
    queued = harness.pop()
    harness.reject(queued, "Fit")
    harness.queue.activate((queued.key,))
    assert harness.incoming_entities() == {
        ("active", "UnscheduledPodAdd"): 1,
        ("active", "ForceActivate"): 1,
    }


def test_a_failed_pod_counts_nowhere_and_its_way_out_of_backoff_does(harness, pod):
    """ScheduleAttemptFailure leads where it was decided that the pod goes."""
    queued = harness.rejected(pod("a"), "Fit")
    assert harness.incoming()["unschedulable", "ScheduleAttemptFailure"] == 1
    harness.queue.activate((queued.key,))
    harness.reject(harness.pop())  # an error
    assert harness.incoming()["backoff", "ScheduleAttemptFailure"] == 1
    harness.clock.advance(60)
    harness.queue.flush_backoff_completed()
    assert harness.incoming_entities() == {
        ("active", "UnscheduledPodAdd"): 1,
        ("active", "ForceActivate"): 1,
        ("active", "BackoffComplete"): 1,
    }


def test_a_pod_popped_from_backoff_counts_as_active(harness, pod):
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.rejected(pod("a"), "Fit")
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"backoff": ["a"]}
    harness.pop()
    assert harness.incoming_entities() == {
        ("active", "UnscheduledPodAdd"): 1,
        ("active", "PopFromBackoffQ"): 1,
    }


@pytest.mark.parametrize(("waited", "queue"), [(0, "backoff"), (60, "active")])
def test_a_pod_moved_by_an_event_counts_where_it_ends_elsewhere_than_decided(
    harness, pod, waited, queue
):
    """Decided is back-off; a pod whose back-off is over becomes active."""
    harness.profile.register("Fit", ev.NODE, ev.ADD)
    harness.rejected(pod("a"), "Fit")
    harness.clock.advance(waited)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {queue: ["a"]}
    assert harness.incoming()[queue, "NodeAdd"] == 1
    counted = harness.incoming_entities()
    assert counted.get((queue, "NodeAdd"), 0) == (queue == "active")


def test_a_pod_that_is_gated_when_it_is_added_counts_as_unschedulable(harness, pod):
    harness.add(pod("a", pre_enqueue_plugins=("g",)))
    assert harness.incoming_entities() == {("unschedulable", "UnscheduledPodAdd"): 1}


def test_queued_entities_have_a_series_once_there_was_one(harness, pod):
    assert harness.entities() == {}
    harness.add(pod("a"), pod("g", pre_enqueue_plugins=("g",)))
    assert harness.entities() == {"active": 1, "gated": 1}
    harness.reject(harness.pop(), "Fit")
    assert harness.entities() == {"active": 0, "gated": 1, "unschedulable": 1}


def test_pending_pods_have_two_more_series(harness):
    harness.queue.validate()
    found = {labels[0] for labels, _ in harness.metrics.pending_pods.values()}
    assert found == {"active", "backoff", "gated", "incomplete", "pending", "unschedulable"}


def test_1_36_counts_no_entities(make_harness, pod):
    harness = make_harness(version=V1_36)
    harness.add(pod("a"))
    assert not {"scheduler_queued_entities", "scheduler_queue_incoming_entities_total"} & {
        family.description.name for family in harness.metrics.families()
    }
    assert harness.incoming_entities() == {}


# ---- bookkeeping ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "nominated"), [(V1_36, None), (V1_37, "n1")])
def test_the_nomination_of_a_gated_pod(make_harness, pod, version, nominated):
    harness = make_harness(version=version)
    harness.add(pod("a", nominated="n1", pre_enqueue_plugins=("g",)))
    assert harness.places() == {"gated": ["a"]}
    assert harness.queue.nominator.nominated_node_of("uid-a") == nominated


@pytest.mark.parametrize(("version", "kept"), [(V1_36, ""), (V1_37, None)])
def test_a_nomination_to_no_node(make_harness, pod, version, kept):
    harness = make_harness(version=version)
    harness.add(pod("a"))
    harness.queue.nominator.add_nominated_pod(pod("a", nominated="n1"), NominatingInfo(""))
    assert harness.queue.nominator.nominated_node_of("uid-a") == kept


def test_an_update_of_an_unknown_pod_counts_as_added(harness, pod):
    new = pod("a", nominated="n1")
    harness.listed[new.key] = new.pod
    harness.queue.update(None, new, [])
    assert harness.incoming() == {("active", "UnscheduledPodAdd"): 1}
    assert harness.queue.nominator.nominated_node_of("uid-a") == "n1"


@pytest.mark.parametrize("where", ["active", "backoff", "unschedulable"])
@pytest.mark.parametrize(("version", "attempts"), [(V1_36, 1), (V1_37, 0)])
def test_a_pod_of_another_uid_is_new(make_harness, pod, version, attempts, where):
    harness = make_harness(version=version)
    harness.profile.register("Fit", ev.POD, ev.UPDATE)
    queued = harness.rejected(pod("a"), *(() if where == "backoff" else ("Fit",)))
    if where == "active":
        harness.queue.activate((queued.key,))
    harness.clock.advance(5)
    harness.queue.update(pod("a"), pod("a", uid="other"), [])
    found = harness.queue.get("default/a")
    assert (found.uid, found.attempts) == ("other", attempts)
    harness.queue.validate()
    if version == V1_37:
        assert found.timestamp == harness.clock.monotonic()
        assert harness.places() == {"active": ["a"]}
        assert harness.per_plugin() == {}


@pytest.mark.parametrize(("version", "counted"), [(V1_36, {"Fit": 1}), (V1_37, {})])
def test_the_rejectors_of_a_deleted_pod_that_was_to_be_tried(make_harness, pod, version, counted):
    harness = make_harness(version=version)
    queued = harness.rejected(pod("a"), "Fit")
    harness.queue.activate((queued.key,))
    assert harness.per_plugin() == {"Fit": 1}
    harness.queue.delete(queued.info)
    assert harness.per_plugin() == counted


def test_the_mark_of_the_flush_does_not_survive_a_gate(harness, pod):
    queued = harness.rejected(pod("a"), "Fit")
    queued.info = pod("a", pre_enqueue_plugins=("g",))
    harness.clock.advance(301)
    harness.queue.flush_unschedulable_left_over()
    assert harness.places() == {"gated": ["a"]}
    assert not queued.was_flushed_from_unschedulable
