"""Pods of groups in the queue: in the order of events that recorded cases do not have."""

from __future__ import annotations

from functools import partial

import pytest

from proreus.base.kubernetes_version import V1_37, V1_38
from proreus.framework import events as ev
from proreus.framework.events import ClusterEvent
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.workload_forest import WorkloadForest

UNSCHEDULABLE = Status.unschedulable("no")
NODE_ADD = ClusterEvent(ev.NODE, ev.ADD)
GATES_ELIMINATED = ClusterEvent(ev.TARGET_POD, ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


def test_pods_wait_for_their_group(grouped, pod, pod_group):
    grouped.add(pod("a", group="g"), pod("b", group="other"))
    assert grouped.places() == {"incomplete": ["a", "b"]}
    grouped.add_groups(pod_group("g"))
    assert grouped.places() == {"active": ["a"], "incomplete": ["b"]}


def test_group_deleted_and_created_anew_in_flight(grouped, pod, pod_group):
    grouped.add_groups(pod_group("g"))
    grouped.add(pod("a", group="g"))
    group = grouped.pop_group()
    grouped.add(pod("b", group="g"))
    assert grouped.places() == {"pending": ["b"]}
    grouped.pod_groups.delete_group(pod_group("g"))
    assert grouped.places() == {"incomplete": ["b"]}
    grouped.add_groups(pod_group("g"))
    assert grouped.places() == {"pending": ["b"]}
    grouped.end_attempt(group, UNSCHEDULABLE, "a")
    assert grouped.places() == {"backoff": ["a", "b"]}


def test_loop_of_parents(grouped, pod, pod_group, composite):
    first, second = composite("c1", parent="c2"), composite("c2", parent="c1")
    grouped.add_groups(first, second, pod_group("g", parent="c1"))
    grouped.add(pod("a", group="g"))
    assert grouped.places() == {"incomplete": ["a"]}
    grouped.pod_groups.delete_group(first)
    grouped.add_groups(composite("c1"))
    assert grouped.places() == {"active": ["a"]}


def test_success_has_no_backoff_left(grouped, pod, pod_group):
    """An attempt that an activation brought forward: the back-off before it is not resumed."""
    grouped.add_groups(pod_group("g"))
    grouped.add(pod("a", group="g"), pod("b", group="g"))
    grouped.end_attempt(grouped.pop_group(), UNSCHEDULABLE, "a", "b")
    assert grouped.places() == {"backoff": ["a", "b"]}
    grouped.queue.activate(["default/a"])
    grouped.end_attempt(grouped.pop_group(), None, "b")
    assert grouped.places() == {"active": ["b"]}


def test_activated_by_a_pod_in_flight(grouped, pod, pod_group):
    grouped.add_groups(pod_group("g"))
    grouped.add(pod("a", group="g"), pod("b", group="g"))
    group = grouped.pop_group()
    waits = next(queued for queued in group.queued_pods if queued.info.name == "b")
    waits.unschedulable_plugins = {"Fit"}
    grouped.queue.add_unschedulable(waits)
    grouped.pod_groups.add_attempted(group, UNSCHEDULABLE)
    assert grouped.places() == {"backoff": ["b"]}
    grouped.queue.activate(["default/a"])
    assert grouped.places() == {"active": ["b"]}


def test_counted_as_entity_after_each_attempt(grouped, pod, pod_group):
    grouped.add_groups(pod_group("g"))
    grouped.add(pod("a", group="g"))
    grouped.end_attempt(grouped.pop_group(), UNSCHEDULABLE, "a")
    assert grouped.incoming_entities("podgroup") == {
        ("active", "UnscheduledPodAdd"): 1,
        ("backoff", "ScheduleAttemptFailure"): 1,
    }


def test_joining_a_gated_group_counts_all_its_pods(grouped, pod, pod_group):
    grouped.add_groups(pod_group("g"))
    grouped.add(*(pod(name, group="g", pre_enqueue_plugins=("x",)) for name in "abc"))
    assert grouped.places() == {"gated": ["a", "b", "c"]}
    assert grouped.incoming()["unschedulable", "UnscheduledPodAdd"] == 1 + 2 + 3


def test_one_gated_pod_gates_all(grouped, pod, pod_group):
    grouped.profile.register(
        "SchedulingGates", ev.TARGET_POD, ev.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    )
    gated = pod("a", group="g", pre_enqueue_plugins=("x",))
    grouped.add_groups(pod_group("g"))
    grouped.add(gated, pod("b", group="g"))
    assert grouped.places() == {"gated": ["a", "b"]}
    grouped.queue.update(gated, pod("a", group="g"), [GATES_ELIMINATED])
    assert grouped.places() == {"active": ["a", "b"]}


def gate_asked(asked: list[str], pod: PodInfo) -> Status | None:
    """A PreEnqueue plugin that gates pods with scheduling gates."""
    asked.append(pod.name)
    return Status.unresolvable("gated") if pod.pod.spec.scheduling_gates else None


@pytest.mark.parametrize(("first_gates", "names"), [(False, ["a", "b", "c"]), (True, ["a"])])
def test_since_1_38_the_first_gated_pod_gates_without_the_others(
    make_harness, pod, pod_group, first_gates, names
):
    harness = make_harness(V1_37, WorkloadForest(), first_gated_pod_gates=first_gates)
    asked: list[str] = []
    harness.profile.pre_enqueue["Asked"] = partial(gate_asked, asked)
    del harness.profile.pre_enqueue["SchedulingGates"]
    harness.profile.register("Asked", ev.NODE, ev.ADD, lambda *_: True)
    harness.add_groups(pod_group("g"))
    gates = ("x",), (), ("x",)
    pods = [pod(n, group="g", pre_enqueue_plugins=g) for n, g in zip("abc", gates, strict=True)]
    harness.add(*pods)
    asked.clear()
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert asked == names
    assert harness.places() == {"gated": ["a", "b", "c"]}
    # The others are asked once it is gone.
    harness.queue.delete(pods[0])
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"gated": ["b", "c"]}
    harness.queue.delete(pods[2])
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.places() == {"active": ["b"]}


def test_since_1_38_pods_that_were_not_asked_wait_for_the_gate(make_harness, pod, pod_group):
    harness = make_harness(V1_37, WorkloadForest(), first_gated_pod_gates=True)
    harness.profile.register("SchedulingGates", ev.NODE, ev.ADD, lambda *_: False)
    harness.add_groups(pod_group("g"))
    harness.add(pod("a", group="g", pre_enqueue_plugins=("x",)), pod("b", group="g"))
    before = harness.incoming()
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    assert harness.incoming() == before


def test_flushed_and_gated_again(make_harness, pod, pod_group):
    """No pod of a group that stays gated counts as flushed once it is scheduled."""
    harness = make_harness(V1_37, WorkloadForest(), unschedulable_timeout_seconds=5)
    harness.add_groups(pod_group("g"))
    harness.add(pod("a", group="g", pre_enqueue_plugins=("x",)))
    harness.clock.advance_to(harness.clock.now() + 10)
    harness.queue.flush_unschedulable_left_over()
    (queued,) = harness.queue.gated_pods()
    assert not queued.was_flushed_from_unschedulable


@pytest.mark.parametrize("composite_groups", [False, True])
def test_named_pods_move_their_group(make_harness, pod, pod_group, composite_groups):
    """Plugins name pods: a gated group moves for any of them; with trees, names do not count."""
    harness = make_harness(
        V1_37, WorkloadForest(composite=composite_groups), pre_queueing_hints=True
    )
    named = [] if composite_groups else ["default/b"]
    event = ClusterEvent(ev.NODE, ev.ADD, pre_queueing_hint=lambda old, new: named)
    harness.profile.registrations.append(("Ready", event))
    ready: list[bool] = []
    harness.profile.pre_enqueue["Ready"] = lambda pod: (
        None if ready else Status.unresolvable("not ready")
    )
    harness.add_groups(pod_group("g"))
    harness.add(pod("a", group="g"), pod("b", group="g"))
    assert harness.places() == {"gated": ["a", "b"]}
    ready.append(True)
    harness.queue.move_all_to_active_or_backoff(NODE_ADD, None, object())
    assert harness.places() == {"active": ["a", "b"]}


def test_pod_in_flight_that_is_queued_again(grouped, pod, pod_group):
    """It is dropped at the pop, not kept as a pod that waits."""
    grouped.add_groups(pod_group("g"))
    first = pod("a", group="g")
    grouped.add(first)
    group = grouped.pop_group()
    grouped.pod_groups.add_attempted(group, None)
    grouped.add(first, pod("b", group="g"))
    assert [queued.info.name for queued in grouped.pop_group().queued_pods] == ["b"]
    assert grouped.queue.keys() == []
    grouped.queue.validate()


def test_group_of_another_parent_under_the_same_name(grouped, pod, pod_group, composite):
    """The watch missed that it was deleted and created anew."""
    before, after = pod_group("g", parent="c1"), pod_group("g", parent="c2", uid="new")
    grouped.add_groups(composite("c1"), before)
    grouped.add(pod("a", group="g"))
    grouped.pod_groups.update_group(before, after)
    assert grouped.places() == {"incomplete": ["a"]}
    grouped.add_groups(composite("c2"))
    assert grouped.pop_group().key == "compositepodgroup/default/c2"


def test_priority_of_a_group_changes(grouped, pod, pod_group):
    low = pod_group("low")
    grouped.add_groups(low, pod_group("high", priority=5))
    grouped.add(pod("a", group="low"), pod("b", group="high"))
    grouped.pod_groups.update_group(low, pod_group("low", priority=9))
    assert grouped.pop_group().key == "podgroup/default/low"


def test_deleted_in_each_place(grouped, pod, pod_group):
    pods = {name: pod(name, group="g") for name in "abc"}
    lost = pod("d", group="unknown")
    grouped.add_groups(pod_group("g"))
    grouped.add(pods["a"], lost)
    group = grouped.pop_group()
    grouped.add(pods["b"])
    for info in (pods["b"], lost):
        grouped.queue.delete(info)
    assert grouped.places() == {}
    grouped.end_attempt(group, UNSCHEDULABLE, "a")
    grouped.queue.delete(pods["a"])
    assert grouped.places() == {}
    assert grouped.queue.pop() is None


@pytest.mark.parametrize("change", ["joins", "leaves"])
def test_a_round_of_attempts_begins_anew_with_other_pods(grouped, pod, pod_group, change):
    grouped.add_groups(pod_group("g"))
    grouped.add(pod("a", group="g"), pod("b", group="g"))
    popped = grouped.pop_group()
    popped.next_placement = 3
    grouped.end_attempt(popped, UNSCHEDULABLE, "a", "b")
    entity = grouped.pod_groups.group_of(pod("a", group="g").pod)
    assert entity.next_placement == 3
    if change == "joins":
        grouped.add(pod("c", group="g"))
    else:
        grouped.queue.delete(pod("b", group="g"))
    assert entity.next_placement == 0


def test_a_pod_that_leaves_has_pre_enqueue_run_once_for_each_that_stays(grouped, pod, pod_group):
    seen = []
    grouped.profile.pre_enqueue["Gate"] = lambda one: seen.append(one.name)
    grouped.add_groups(pod_group("g"))
    pods = [pod(name, group="g") for name in "abc"]
    grouped.add(*pods)
    seen.clear()
    grouped.queue.delete(pods[2])
    assert seen == ["a"]


def test_an_attempt_of_a_group_that_is_queued_already_is_over(grouped, pod, pod_group, caplog):
    grouped.add_groups(pod_group("g"))
    grouped.add(pod("a", group="g"))
    popped = grouped.pop_group()
    grouped.add(pod("b", group="g"))
    (joining,) = grouped.pod_groups.pending
    grouped.pod_groups.pending.discard(joining)
    other = popped.without_pods(0)
    other.add_pod(joining)
    grouped.queue._sub_queues.active.put(other)
    grouped.end_attempt(popped, UNSCHEDULABLE, "a")
    assert "is already present in the active queue" in caplog.text
    assert grouped.places() == {"active": ["a", "b"]}


def test_a_first_list_moves_a_group_of_several_profiles_once(grouped, pod, pod_group):
    gate = {"shut": True}
    grouped.profile.pre_enqueue["Gate"] = lambda _: UNSCHEDULABLE if gate["shut"] else None
    named = ClusterEvent(ev.NODE, ev.ADD, ungated_pods=lambda old, new: ["default/a", "default/b"])
    grouped.profile.registrations.append(("Gate", named))
    profiles = dict.fromkeys((pod().pod.spec.scheduler_name, "second"), grouped.profile)
    grouped.queue.use_profiles(profiles, lambda queued: queued.timestamp)
    grouped.add_groups(pod_group("g"))
    grouped.add(pod("a", group="g"), pod("b", group="g", profile="second"))
    gate["shut"] = False
    with grouped.queue.first_list():
        for number in range(3):
            grouped.queue.move_all_to_active_or_backoff(NODE_ADD, None, number)
    assert grouped.places() == {"active": ["a", "b"]}
    assert grouped.incoming()["active", "NodeAdd"] == 2


def test_a_group_and_a_group_of_groups_of_one_name_are_two_entities(
    grouped, pod, pod_group, composite
):
    grouped.add_groups(composite("g"), pod_group("child", parent="g"), pod_group("g"))
    grouped.add(pod("a", group="g"), pod("b", group="child"))
    assert {grouped.pop_group().key, grouped.pop_group().key} == {
        "podgroup/default/g",
        "compositepodgroup/default/g",
    }


@pytest.mark.parametrize(
    ("version", "counted_as"), [(V1_37, "podgroup"), (V1_38, "compositepodgroup")]
)
def test_a_group_of_groups_is_counted_by_its_own_type_since_1_38(
    make_harness, pod, pod_group, composite, version, counted_as
):
    harness = make_harness(version, WorkloadForest(composite=True))
    harness.add_groups(composite("c"), pod_group("g", parent="c"))
    harness.add(pod("a", group="g"))
    assert list(harness.incoming_entities(counted_as).values()) == [1]
    assert [*harness.metrics.queued_entities.values()] == [(("active", counted_as), 1)]
