"""Add, update, delete and activate."""

from __future__ import annotations

import pytest

from proreus.framework import events as ev
from proreus.framework.events import (
    NODE_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    ClusterEvent,
)
from proreus.framework.nominating import NominatingInfo

LABELS = ClusterEvent(ev.UNSCHEDULABLE_POD, ev.UPDATE_POD_LABEL)
TOLERATIONS = ClusterEvent(ev.UNSCHEDULABLE_POD, ev.UPDATE_POD_TOLERATION)


def test_add(bench, pod):
    bench.clock.advance(5)
    bench.add(pod("a", nominated="n1"))
    bench.queue.validate()
    (queued,) = bench.queue.active_pods()
    assert (queued.timestamp, queued.initial_attempt_timestamp) == (1005, 1005)
    assert bench.incoming() == {("active", "UnschedulablePodAdd"): 1}
    assert [p.name for p in bench.queue.nominator.nominated_pods("n1")] == ["a"]


def test_adding_again_replaces_wherever_it_is(bench, pod):
    bench.rejected(pod("error"))
    bench.rejected(pod("held"), "Fit")
    bench.add(pod("error"), pod("held"), pod("a"), pod("a", priority=3))
    bench.queue.validate()
    assert bench.places() == {"active": ["a", "error", "held"]}


def test_update_in_flight_is_an_event_and_leaves_the_item_alone(bench, pod):
    seen = []
    bench.profile.register("Fit", ev.POD, ev.UPDATE_POD_LABEL, lambda *args: seen.append(args))
    old, new = pod("a"), pod("a", labels={"x": "y"})
    bench.add(old)
    queued = bench.pop()
    bench.queue.update(old, new, [LABELS, TOLERATIONS])
    assert queued.info is old
    assert bench.places() == {}
    bench.reject(queued, "Fit")
    assert seen == [(old, old.pod, new.pod)]


def test_update_of_an_active_pod_resorts(bench, pod):
    old, new = pod("a"), pod("a", priority=9, nominated="n1")
    bench.add(old, pod("b", priority=5))
    bench.listed[new.key] = new.pod
    bench.queue.update(old, new, [UNSCHEDULABLE_POD_UPDATE])
    bench.queue.validate()
    assert bench.places() == {"active": ["a", "b"]}
    assert bench.queue.nominator.nominated_node_of("uid-a") == "n1"
    assert sum(bench.incoming().values()) == 2


@pytest.mark.parametrize("plugins", [(), ("Fit",)], ids=["error", "rejected"])
def test_update_of_a_pod_that_backs_off(bench, pod, plugins):
    bench.profile.register("Fit", ev.ANY, ev.ALL)
    old, new = pod("a"), pod("a", priority=9)
    queued = bench.rejected(old, *plugins)
    bench.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    bench.queue.update(old, new, [UNSCHEDULABLE_POD_UPDATE])
    bench.queue.validate()
    assert queued.info is new
    assert bench.places() == {"backoff": ["a"]}


def test_update_of_a_waiting_pod_asks_the_hints(bench, pod):
    asked = []

    def hint(info, old, new):
        asked.append((info, old, new))
        return "x" in new.metadata.labels

    bench.profile.register("Fit", ev.POD, ev.UPDATE_POD_LABEL, hint)
    old, useless, useful = pod("a"), pod("a", labels={"y": ""}), pod("a", labels={"x": ""})
    queued = bench.rejected(old, "Fit")
    entries = sum(bench.incoming().values())
    bench.queue.update(old, useless, [LABELS])
    assert bench.places() == {"unschedulable": ["a"]}
    assert sum(bench.incoming().values()) == entries, "staying is not entering"
    assert queued.info is useless
    bench.queue.update(useless, useful, [TOLERATIONS])
    assert bench.places() == {"unschedulable": ["a"]}
    bench.queue.update(useless, useful, [TOLERATIONS, LABELS])
    bench.queue.validate()
    assert bench.places() == {"backoff": ["a"]}
    assert asked == [(useless, old.pod, useless.pod), (useful, useless.pod, useful.pod)]
    assert bench.incoming()["backoff", "UnschedulablePodUpdatePodLabel"] == 1


def test_update_stops_at_the_first_event_that_helps(bench, pod):
    asked = []
    for action in (ev.UPDATE_POD_LABEL, ev.UPDATE_POD_TOLERATION):
        bench.profile.register("Fit", ev.POD, action, lambda *args: asked.append(args) or True)
    old = pod("a")
    bench.rejected(old, "Fit")
    bench.clock.advance(5)
    bench.queue.update(old, pod("a"), [LABELS, TOLERATIONS])
    assert len(asked) == 1
    assert bench.places() == {"active": ["a"]}
    assert bench.wakes == 2


def test_update_of_an_unknown_pod_adds_it(bench, pod):
    new = pod("a", nominated="n1")
    bench.listed[new.key] = new.pod
    bench.queue.update(None, new, [])
    assert bench.places() == {"active": ["a"]}
    assert bench.incoming() == {("active", "UnschedulablePodUpdate"): 1}
    assert bench.queue.nominator.nominated_node_of("uid-a") == "n1"


def test_update_keeps_a_nomination_made_here(bench, pod):
    old, new = pod("a"), pod("a", labels={"x": "y"})
    bench.rejected(old, "Fit")
    bench.queue.nominator.add_nominated_pod(old, NominatingInfo("n1"))
    bench.queue.update(old, new, [LABELS])
    assert bench.queue.nominator.nominated_pods("n1") == [new]


def test_becoming_active_by_a_plain_update_takes_the_nomination_of_the_status(bench, pod):
    bench.profile.register("Fit", ev.POD, ev.UPDATE)
    old = pod("a")
    bench.rejected(old, "Fit")
    bench.queue.nominator.add_nominated_pod(old, NominatingInfo("n1"))
    bench.clock.advance(5)
    bench.queue.update(old, pod("a"), [UNSCHEDULABLE_POD_UPDATE])
    assert bench.places() == {"active": ["a"]}
    assert bench.queue.nominator.nominated_node_of("uid-a") is None


@pytest.mark.parametrize("where", ["active", "error", "held", "gated", "in flight", "nowhere"])
def test_delete(bench, pod, where):
    info = pod("a", nominated="n1", gates=("g",) if where == "gated" else ())
    if where in ("error", "held"):
        bench.rejected(info, *(["Fit"] if where == "held" else []))
    elif where != "nowhere":
        bench.add(info)
        if where == "in flight":
            bench.pop()
    bench.queue.delete(info)
    bench.queue.validate()
    assert bench.places() == {}
    assert bench.per_plugin() == {}
    assert bench.queue.nominator.nominated_pods("n1") == []
    assert bench.queue.in_flight_count == (where == "in flight")


def test_activate_skips_backoff(bench, pod):
    bench.rejected(pod("held"), "Fit")
    bench.rejected(pod("error"))
    bench.add(pod("gated", gates=("g",)))
    bench.wakes = 0
    bench.queue.activate(["default/held", "default/error", "default/gated", "default/unknown"])
    bench.queue.validate()
    assert bench.places() == {"active": ["held", "error"], "gated": ["gated"]}
    assert bench.incoming()["active", "ForceActivate"] == 2
    assert bench.wakes == 1


def test_activating_a_pod_in_flight_makes_it_worth_another_try(bench, pod):
    bench.add(pod("a"), pod("b"))
    first, second = bench.pop(), bench.pop()
    bench.queue.activate(["default/a"])
    bench.reject(second, "Fit")
    bench.reject(first, "Fit")
    assert bench.places() == {"backoff": ["a"], "unschedulable": ["b"]}
