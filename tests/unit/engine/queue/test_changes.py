"""Add, update, delete and activate."""

from __future__ import annotations

import pytest

from proreus.base.kubernetes_version import V1_36
from proreus.framework import events as ev
from proreus.framework.events import (
    NODE_ADD,
)
from proreus.framework.pod_events import DEFAULT_POD_EVENTS
from proreus.framework.post_filter_result import NominatingInfo

UPDATED = DEFAULT_POD_EVENTS.target[ev.UPDATE]
LABELS = DEFAULT_POD_EVENTS.target[ev.UPDATE_POD_LABEL]
TOLERATIONS = DEFAULT_POD_EVENTS.target[ev.UPDATE_POD_TOLERATION]


def test_add(harness, pod):
    harness.clock.advance(5)
    harness.add(pod("a", nominated="n1"))
    harness.queue.validate()
    (queued,) = harness.queue.active_pods()
    assert (queued.timestamp, queued.initial_attempt_timestamp) == (1005, 1005)
    assert harness.incoming() == {("active", "UnscheduledPodAdd"): 1}
    assert [p.name for p in harness.queue.nominator.nominated_pods("n1")] == ["a"]


def test_adding_again_replaces_wherever_it_is(harness, pod):
    harness.rejected(pod("error"))
    harness.rejected(pod("held"), "Fit")
    harness.add(pod("error"), pod("held"), pod("a"), pod("a", priority=3))
    harness.queue.validate()
    assert harness.places() == {"active": ["a", "error", "held"]}


def test_update_in_flight_is_an_event_and_leaves_the_item_alone(harness, pod):
    seen = []
    harness.profile.register("Fit", ev.POD, ev.UPDATE_POD_LABEL, lambda *args: seen.append(args))
    old, new = pod("a"), pod("a", labels={"x": "y"})
    harness.add(old)
    queued = harness.pop()
    harness.queue.update(old, new, [LABELS, TOLERATIONS])
    assert queued.info is old
    assert harness.places() == {}
    harness.reject(queued, "Fit")
    assert seen == [(old, old.pod, new.pod)]


def test_update_of_an_active_pod_resorts(harness, pod):
    old, new = pod("a"), pod("a", priority=9, nominated="n1")
    harness.add(old, pod("b", priority=5))
    harness.listed[new.key] = new.pod
    harness.queue.update(old, new, [UPDATED])
    harness.queue.validate()
    assert harness.places() == {"active": ["a", "b"]}
    assert harness.queue.nominator.nominated_node_of("uid-a") == "n1"
    assert sum(harness.incoming().values()) == 2


@pytest.mark.parametrize("plugins", [(), ("Fit",)], ids=["error", "rejected"])
def test_update_of_a_pod_that_backs_off(harness, pod, plugins):
    harness.profile.register("Fit", ev.ANY, ev.ALL)
    old, new = pod("a"), pod("a", priority=9)
    queued = harness.rejected(old, *plugins)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    harness.queue.update(old, new, [UPDATED])
    harness.queue.validate()
    assert queued.info is new
    assert harness.places() == {"backoff": ["a"]}


def test_update_of_a_waiting_pod_asks_the_hints(harness, pod):
    asked = []

    def hint(info, old, new):
        asked.append((info, old, new))
        return "x" in new.metadata.labels

    harness.profile.register("Fit", ev.POD, ev.UPDATE_POD_LABEL, hint)
    old, useless, useful = pod("a"), pod("a", labels={"y": ""}), pod("a", labels={"x": ""})
    queued = harness.rejected(old, "Fit")
    entries = sum(harness.incoming().values())
    harness.queue.update(old, useless, [LABELS])
    assert harness.places() == {"unschedulable": ["a"]}
    assert sum(harness.incoming().values()) == entries, "staying is not entering"
    assert queued.info is useless
    harness.queue.update(useless, useful, [TOLERATIONS])
    assert harness.places() == {"unschedulable": ["a"]}
    harness.queue.update(useless, useful, [TOLERATIONS, LABELS])
    harness.queue.validate()
    assert harness.places() == {"backoff": ["a"]}
    assert asked == [(useless, old.pod, useless.pod), (useful, useless.pod, useful.pod)]
    assert harness.incoming()["backoff", "UnschedulablePodUpdatePodLabel"] == 1


def test_update_stops_at_the_first_event_that_helps(harness, pod):
    asked = []
    for action in (ev.UPDATE_POD_LABEL, ev.UPDATE_POD_TOLERATION):
        harness.profile.register("Fit", ev.POD, action, lambda *args: asked.append(args) or True)
    old = pod("a")
    harness.rejected(old, "Fit")
    harness.clock.advance(5)
    harness.queue.update(old, pod("a"), [LABELS, TOLERATIONS])
    assert len(asked) == 1
    assert harness.places() == {"active": ["a"]}
    assert harness.wakes == 2


def test_update_of_an_unknown_pod_adds_it(make_harness, pod):
    harness = make_harness(version=V1_36)
    new = pod("a", nominated="n1")
    harness.listed[new.key] = new.pod
    harness.queue.update(None, new, [])
    assert harness.places() == {"active": ["a"]}
    assert harness.incoming() == {("active", "UnschedulablePodUpdate"): 1}
    assert harness.queue.nominator.nominated_node_of("uid-a") == "n1"


def test_update_keeps_a_nomination_made_here(harness, pod):
    old, new = pod("a"), pod("a", labels={"x": "y"})
    harness.rejected(old, "Fit")
    harness.queue.nominator.add_nominated_pod(old, NominatingInfo("n1"))
    harness.queue.update(old, new, [LABELS])
    assert harness.queue.nominator.nominated_pods("n1") == [new]


def test_becoming_active_by_a_plain_update_takes_the_nomination_of_the_status(make_harness, pod):
    harness = make_harness(version=V1_36)
    harness.profile.register("Fit", ev.POD, ev.UPDATE)
    old = pod("a")
    harness.rejected(old, "Fit")
    harness.queue.nominator.add_nominated_pod(old, NominatingInfo("n1"))
    harness.clock.advance(5)
    harness.queue.update(old, pod("a"), [UPDATED])
    assert harness.places() == {"active": ["a"]}
    assert harness.queue.nominator.nominated_node_of("uid-a") is None


@pytest.mark.parametrize("where", ["active", "error", "held", "gated", "in flight", "nowhere"])
def test_delete(harness, pod, where):
    info = pod("a", nominated="n1", pre_enqueue_plugins=("g",) if where == "gated" else ())
    if where in ("error", "held"):
        harness.rejected(info, *(["Fit"] if where == "held" else []))
    elif where != "nowhere":
        harness.add(info)
        if where == "in flight":
            harness.pop()
    harness.queue.delete(info)
    harness.queue.validate()
    assert harness.places() == {}
    assert harness.per_plugin() == {}
    assert harness.queue.nominator.nominated_pods("n1") == []
    assert harness.queue.in_flight_count == (where == "in flight")


def test_activate_skips_backoff(harness, pod):
    harness.rejected(pod("held"), "Fit")
    harness.rejected(pod("error"))
    harness.add(pod("gated", pre_enqueue_plugins=("g",)))
    harness.wakes = 0
    harness.queue.activate(["default/held", "default/error", "default/gated", "default/unknown"])
    harness.queue.validate()
    assert harness.places() == {"active": ["held", "error"], "gated": ["gated"]}
    assert harness.incoming()["active", "ForceActivate"] == 2
    assert harness.wakes == 1


def test_activating_a_pod_in_flight_makes_it_worth_another_try(harness, pod):
    harness.add(pod("a"), pod("b"))
    first, second = harness.pop(), harness.pop()
    harness.queue.activate(["default/a"])
    harness.reject(second, "Fit")
    harness.reject(first, "Fit")
    assert harness.places() == {"backoff": ["a"], "unschedulable": ["b"]}
