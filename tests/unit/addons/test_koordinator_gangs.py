"""Koordinator's gangs: which pods count, gangs that start together, and those that are not strict.

Most hold in both modes of Coscheduling, and are tested in both.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling, PlannedCoscheduling
from proreus.addons.coscheduling.groups import (
    KOORDINATOR,
    POD_GROUP_LABEL,
    gangs_together,
    membership_of,
)
from proreus.framework import events
from proreus.testing import Harness, make_node, make_pod

TOGETHER = json.dumps(["default/a", "default/b"])
both_modes = pytest.mark.parametrize("mode", ["plan", "permit"])


def harness(*objects: Any, cpus: str = "8", **args: Any) -> Harness:
    return Harness([Coscheduling], [make_node("n0", cpus)], objects, args={"Coscheduling": args})


def member(
    name: str, gang: str, minimum: int, cpu: str = "1", node_name: str = "", **rules: str
) -> Any:
    """Return a pod of a gang; ``rules``: further annotations, with _ for -."""
    notes = {"name": gang, "min-available": str(minimum)}
    notes |= {key.replace("_", "-"): value for key, value in rules.items()}
    annotations = {f"{KOORDINATOR}/{key}": value for key, value in notes.items()}
    return make_pod(name, cpu, metadata={"annotations": annotations}, node_name=node_name)


@pytest.mark.parametrize("groups", ["[" * 100_000, "{", "7", "[1]"])
def test_groups_that_cannot_be_read_are_none(groups: str) -> None:
    assert gangs_together("default/a", "a", groups) == ()


def test_numbers_of_thousands_of_digits_are_none() -> None:
    huge = {f"{KOORDINATOR}/name": "g", f"{KOORDINATOR}/min-available": "9" * 5_000}
    assert membership_of(make_pod("p", metadata={"annotations": huge}).pod) is None


def bound(cluster: Harness, *names: str) -> list[str]:
    return [name for name in names if cluster.pod(name).spec.node_name]


def play(cluster: Harness, *pods: Any) -> None:
    cluster.add(*pods)
    cluster.schedule_all()
    cluster.advance(30)
    cluster.schedule_all()
    cluster.scheduler.queue.validate()
    cluster.scheduler.cache.validate()


@both_modes
def test_gangs_that_start_together_wait_for_each_other(mode: str) -> None:
    cluster = harness(mode=mode)
    play(cluster, *(member(f"a{n}", "a", 2, groups=TOGETHER) for n in range(2)))
    assert bound(cluster, "a0", "a1") == []
    play(cluster, member("b0", "b", 2, groups=TOGETHER))
    assert bound(cluster, "a0", "a1", "b0") == []
    play(cluster, member("b1", "b", 2, groups=TOGETHER))
    assert bound(cluster, "a0", "a1", "b0", "b1") == ["a0", "a1", "b0", "b1"]


def test_a_pod_wakes_those_of_the_gangs_that_start_with_its_own() -> None:
    # Of a group of groups only the pod is asked that gates it, whichever gang is short.
    plugin = harness(mode="plan").plugin(PlannedCoscheduling)
    [added] = [
        one
        for one in plugin.events_to_register()
        if (one.resource, one.action) == (events.POD, events.ADD)
    ]
    gated = member("a0", "a", 2, groups=TOGETHER)
    others = [member("a1", "a", 2, groups=TOGETHER), member("b0", "b", 2, groups=TOGETHER)]
    assert added.hint is not None
    assert [added.hint(gated, None, other.pod) for other in others] == [True, True]
    assert not added.hint(gated, None, member("c0", "c", 2).pod)


def test_where_one_of_them_does_not_fit_neither_starts_nor_holds_anything() -> None:
    cluster = harness(mode="plan", cpus="3")
    pods = [member(f"{gang}{n}", gang, 2, groups=TOGETHER) for gang in "ab" for n in range(2)]
    play(cluster, *pods)
    assert bound(cluster, "a0", "a1", "b0", "b1") == []
    assert cluster.node("n0").requested["cpu"] == 0
    cluster.add(make_node("more", "1"))
    play(cluster)
    assert bound(cluster, "a0", "a1", "b0", "b1") == ["a0", "a1", "b0", "b1"]


def test_gangs_that_start_together_are_removed_with_the_last_of_them() -> None:
    cluster = harness(mode="plan")
    pods = [member(f"{gang}{n}", gang, 2, groups=TOGETHER) for gang in "ab" for n in range(2)]
    play(cluster, *pods)
    forest = cluster.scheduler.cache.workload_forest
    for name in ("a0", "a1"):
        cluster.remove("Pod", name)
    play(cluster, member("b2", "b", 2, groups=TOGETHER))
    assert bound(cluster, "b2") == ["b2"]
    for name in ("b0", "b1", "b2"):
        cluster.remove("Pod", name)
    assert not forest._groups
    planner = cluster.plugin(PlannedCoscheduling)._planner
    together = planner._together
    kept = (planner._groups, planner._task_of, planner._provided._providers, together._lists)
    assert not any((*kept, together._own, together._with))


@both_modes
@pytest.mark.parametrize(
    ("policy", "alone", "beside_a_third"),
    [
        ("once-satisfied", True, True),
        ("", True, True),
        ("waiting-and-running", False, True),
        ("only-waiting", False, False),
    ],
)
def test_which_pods_count(mode: str, policy: str, alone: bool, beside_a_third: bool) -> None:
    """Of a gang of three that run two are replaced: by one alone, then by one more."""
    cluster = harness(mode=mode)
    play(cluster, *(member(f"p{n}", "g", 3, match_policy=policy) for n in range(3)))
    assert bound(cluster, "p0", "p1", "p2") == ["p0", "p1", "p2"]
    for name in ("p1", "p2"):
        cluster.remove("Pod", name)
    play(cluster, member("p3", "g", 3, match_policy=policy))
    assert bool(bound(cluster, "p3")) == alone
    play(cluster, member("p4", "g", 3, match_policy=policy))
    assert len(bound(cluster, "p3", "p4")) == 2 * beside_a_third
    play(cluster, member("p5", "g", 3, match_policy=policy))
    assert bound(cluster, "p3", "p4", "p5") == ["p3", "p4", "p5"]


@both_modes
def test_a_gang_that_runs_already_when_the_scheduler_starts_was_satisfied_once(mode: str) -> None:
    cluster = harness(member("p0", "g", 3, node_name="n0"), mode=mode)
    play(cluster, member("p1", "g", 3))
    assert bound(cluster, "p1") == ["p1"]


def test_all_of_a_gang_that_counts_waiting_pods_only_start_at_once() -> None:
    cluster = harness(mode="plan", cpus="3")
    play(cluster, *(member(f"p{n}", "g", 2, match_policy="only-waiting") for n in range(3)))
    assert bound(cluster, "p0", "p1", "p2") == ["p0", "p1", "p2"]


@pytest.mark.parametrize(("strictness", "waits"), [("Strict", False), ("NonStrict", True)])
def test_the_pods_of_a_gang_that_is_not_strict_go_on_waiting(strictness: str, waits: bool) -> None:
    cluster = harness(cpus="2")
    cluster.add(*(member(f"p{n}", "g", 3, mode=strictness) for n in range(3)))
    cluster.schedule_all()
    assert bool(list(cluster.scheduler.waiting_pods)) == waits
    cluster.advance(700)
    assert not list(cluster.scheduler.cache.assumed_pods())


def test_a_pod_group_may_say_it_for_its_pods() -> None:
    notes = {
        f"{KOORDINATOR}/groups": TOGETHER,
        f"{KOORDINATOR}/mode": "NonStrict",
        f"{KOORDINATOR}/match-policy": "once-satisfied",
        f"{KOORDINATOR}/total-number": "4",
    }
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "a", "namespace": "default", "annotations": notes},
        "spec": {"minMember": 1},
    }
    other = {**group, "metadata": {**group["metadata"], "name": "b"}}
    cluster = harness(group, other, mode="plan")
    play(cluster, make_pod("p0", "1", labels={POD_GROUP_LABEL: "a"}))
    assert bound(cluster, "p0") == []
    play(cluster, make_pod("p1", "1", labels={POD_GROUP_LABEL: "b"}))
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]
    found = cluster.plugin(PlannedCoscheduling).group(cluster.pod("p0"))
    assert (found.strict, found.policy, found.maximum) == (False, "once-satisfied", 4)
    assert found.together == ("default/a", "default/b")


@pytest.mark.parametrize(
    "text", ["", "no list", "[1]", '{"a": 1}', '["default/a"]', '["other/b"]', '["b"]']
)
def test_a_gang_whose_list_names_no_other_starts_by_itself(text: str) -> None:
    virtual = membership_of(member("p", "a", 1, groups=text).pod).virtual
    assert virtual.gangs == ()
    assert virtual.together == (f"default/{KOORDINATOR}/a",)
