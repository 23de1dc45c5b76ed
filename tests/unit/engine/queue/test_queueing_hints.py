"""Whom an event helps: matching, hints, pending plugins, wildcards."""

from __future__ import annotations

import pytest

from proreus.base.clock import FakeClock
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.engine.queue.queueing_hints import NO_MATCHES, QueueingHints, QueueingStrategy
from proreus.engine.queue.unschedulable import RejectorKey
from proreus.framework import events as ev
from proreus.framework.events import ClusterEvent
from proreus.framework.pod_info import QueuedPodInfo


@pytest.fixture
def metrics():
    return SchedulerMetrics()


@pytest.fixture
def hints_of(make_harness, metrics):
    def make(*registrations):
        profile = make_harness().profile
        for registration in registrations:
            profile.register(*registration)
        return QueueingHints({"default-scheduler": profile}, QueueRecorder(FakeClock(), metrics))

    return make


def rejected(pod, *plugins, pending=()):
    return QueuedPodInfo(
        pod, 0.0, unschedulable_plugins={*plugins, *pending}, pending_plugins={*pending}
    )


def answers(metrics):
    return {
        labels[0::2]: child.count
        for labels, child in metrics.queueing_hint_execution_duration_seconds.histograms()
    }


def test_without_rejectors_any_event_helps(pod, hints_of):
    hints = hints_of()
    assert (
        hints.queueing_strategy(rejected(pod()), ev.NODE_ADD, None, None)
        == QueueingStrategy.AFTER_BACKOFF
    )


def test_only_hints_of_rejectors_are_asked(pod, hints_of, metrics):
    asked = []

    def hint(pod, old, new):
        asked.append((pod.name, old, new))
        return True

    hints = hints_of(("Fit", ev.NODE, ev.ADD, hint), ("Taint", ev.NODE, ev.ADD, hint))
    queued = rejected(pod("a"), "Fit")
    assert hints.queueing_strategy(queued, ev.NODE_ADD, "o", "n") == QueueingStrategy.AFTER_BACKOFF
    assert asked == [("a", "o", "n")]
    assert answers(metrics) == {("Fit", "Queue"): 1}
    assert hints.queueing_strategy(queued, ev.NODE_DELETE, "o", "n") == QueueingStrategy.SKIP
    assert (
        hints.queueing_strategy(rejected(pod(), "X"), ev.NODE_ADD, "o", "n")
        == QueueingStrategy.SKIP
    )


def test_a_hint_may_skip_and_another_be_asked(pod, hints_of, metrics):
    hints = hints_of(
        ("Fit", ev.NODE, ev.ADD, lambda pod, old, new: False), ("Taint", ev.NODE, ev.ADD)
    )
    fit, both = rejected(pod(), "Fit"), rejected(pod(), "Fit", "Taint")
    assert hints.queueing_strategy(fit, ev.NODE_ADD, None, None) == QueueingStrategy.SKIP
    assert hints.queueing_strategy(both, ev.NODE_ADD, None, None) == QueueingStrategy.AFTER_BACKOFF
    assert answers(metrics) == {("Fit", "QueueSkip"): 2, ("Taint", "Queue"): 1}


def test_a_pending_plugin_means_at_once_whoever_else_agrees(pod, hints_of):
    hints = hints_of(("Fit", ev.NODE, ev.ADD), ("Claims", ev.NODE, ev.ADD))
    queued = rejected(pod(), "Fit", pending=("Claims",))
    assert hints.queueing_strategy(queued, ev.NODE_ADD, None, None) == QueueingStrategy.IMMEDIATELY
    only_fit = hints_of(("Fit", ev.NODE, ev.ADD), ("Claims", ev.NODE, ev.DELETE))
    assert (
        only_fit.queueing_strategy(queued, ev.NODE_ADD, None, None)
        == QueueingStrategy.AFTER_BACKOFF
    )


def test_a_hint_that_raises_counts_as_yes(pod, hints_of, metrics, caplog):
    def broken(pod, old, new):
        raise RuntimeError("oh no")

    hints = hints_of(("Fit", ev.NODE, ev.ADD, broken))
    queued = rejected(pod(), "Fit")
    assert (
        hints.queueing_strategy(queued, ev.NODE_ADD, None, None) == QueueingStrategy.AFTER_BACKOFF
    )
    assert answers(metrics) == {("Fit", "Error"): 1}
    assert "hint raised" in caplog.text


def test_wildcard_helps_everybody_or_the_pod_it_carries(pod, hints_of):
    hints = hints_of()
    queued = rejected(pod("a"), "Fit")
    timeout, force = ev.UNSCHEDULABLE_TIMEOUT, ev.FORCE_ACTIVATE
    assert hints.queueing_strategy(queued, timeout, None, None) == QueueingStrategy.AFTER_BACKOFF
    assert (
        hints.queueing_strategy(queued, force, None, pod("a").pod) == QueueingStrategy.AFTER_BACKOFF
    )
    assert hints.queueing_strategy(queued, force, None, pod("a")) == QueueingStrategy.AFTER_BACKOFF
    assert hints.queueing_strategy(queued, force, None, pod("b").pod) == QueueingStrategy.SKIP
    assert hints.queueing_strategy(queued, force, None, object()) == QueueingStrategy.SKIP


def test_pods_of_other_profiles_are_not_asked_about(pod, hints_of):
    hints = hints_of(("Fit", ev.NODE, ev.ADD))
    other = rejected(pod(profile="other"), "Fit")
    assert hints.queueing_strategy(other, ev.NODE_ADD, None, None) == QueueingStrategy.SKIP


def test_interest(hints_of):
    hints = hints_of(("Fit", ev.NODE, ev.ADD | ev.UPDATE_NODE_LABEL), ("Ports", ev.POD, ev.DELETE))
    rejector_keys = hints.matches_of(ClusterEvent(ev.NODE, ev.UPDATE_NODE_LABEL)).rejector_keys
    assert RejectorKey("default-scheduler", "Fit") in rejector_keys
    assert RejectorKey("default-scheduler", "Ports") not in rejector_keys
    assert hints.matches_of(ev.ASSIGNED_POD_DELETE) is not NO_MATCHES
    assert hints.matches_of(ev.NODE_DELETE) is NO_MATCHES
    assert hints.matches_of(ev.UNSCHEDULABLE_TIMEOUT) is NO_MATCHES
