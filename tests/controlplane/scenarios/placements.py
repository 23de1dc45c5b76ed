"""Pod groups with topology constraints, and trees of groups.

All pods go to nodes of one rack: the one that takes most of them. The reasons of a group that fits
nowhere are those of one rack, of which chance decides: so they are the same in each.
"""

from __future__ import annotations

from typing import Any

from envtest.pod_groups import COMPOSITE_GROUPS, DISRUPTED_AS_WHOLE
from envtest.scenario_cluster import HOST, ScenarioCluster

from scenarios.group import Group

Json = dict[str, Any]

RACK = "example.com/rack"
IN_ONE_RACK = {"topology": [{"key": RACK}]}


def groups_stay_within_a_domain(cluster: ScenarioCluster) -> None:
    """All members are bound in one rack, the one that fits most of them; later ones follow."""
    for name, cpu, rack in (("a", 3, "1"), ("b", 6, "1"), ("c", 3, "2"), ("d", 4, "2")):
        cluster.node(name, cpu, labels={RACK: rack})
    cluster.node("nowhere", 20)
    cluster.settle()
    near = Group(cluster, "near", 2, schedulingConstraints=IN_ONE_RACK)
    for cpu in ("4", "3", "2"):
        near.member(cpu)
    cluster.settle()
    near.create()
    cluster.bound(**{"near-0": "b", "near-1": "a", "near-2": "b"})
    cluster.settle()
    near.member("2")
    cluster.refused("near-3", "Insufficient cpu")
    cluster.settle()
    cluster.note("another one does not fit there")
    cluster.node("e", 4, labels={RACK: "2"})
    cluster.settle()
    cluster.node("f", 4, labels={RACK: "1"})
    cluster.bound(**{"near-3": "f"})


def groups_that_no_domain_can_take_wait(cluster: ScenarioCluster) -> None:
    """The group fits in no rack, then in one; the case without racks has its reason too."""
    cluster.node("one", 3, labels={RACK: "1"})
    cluster.node("two", 4)
    cluster.settle()
    near = Group(cluster, "near", 2, schedulingConstraints=IN_ONE_RACK).create()
    near.member("2")
    near.member("2")
    cluster.decided("near-0", "near-1")
    lost = Group(
        cluster, "lost", 1, schedulingConstraints={"topology": [{"key": "example.com/none"}]}
    )
    lost.create().member("1")
    cluster.decided("lost-0")
    cluster.settle()
    cluster.note("the rack is too small")
    cluster.node("three", 4, labels={RACK: "3"})
    cluster.bound(**{"near-0": "three", "near-1": "three"})


def groups_preempt_within_a_domain(cluster: ScenarioCluster) -> None:
    """Victims leave in the rack where the group goes, and nowhere else."""
    cluster.node("one", 4, labels={RACK: "1"})
    cluster.node("one-more", 1, labels={RACK: "1"})
    cluster.node("two", 3, labels={RACK: "2"})
    cluster.node("two-more", 1, labels={RACK: "2"})
    cluster.pod("one", "4", on="one", priority="low")
    cluster.pod("two", "3", on="two", priority="low")
    cluster.settle()
    near = Group(cluster, "near", 2, "high", schedulingConstraints=IN_ONE_RACK).create()
    near.member("2")
    near.member("2")
    cluster.told("near", "preempting 1 victims")
    cluster.leaving("one")
    cluster.note_pods("the victim is leaving")
    cluster.end("one")
    cluster.bound(**{"near-0": "one", "near-1": "one"})
    assert not cluster.remains("two")["metadata"].get("deletionTimestamp")


SCENARIOS = (
    groups_stay_within_a_domain,
    groups_that_no_domain_can_take_wait,
    groups_preempt_within_a_domain,
)


# ---- trees of groups -----------------------------------------------------------------------------


def _composite(cluster: ScenarioCluster, name: str, count: int, **spec: Any) -> None:
    policy = {"gang": {"minGroupCount": count}} if count else {"basic": {}}
    whole = {"schedulingPolicy": policy, "priorityClassName": "middle", **_from_template(name)}
    cluster.add(COMPOSITE_GROUPS, {"metadata": {"name": name}, "spec": whole | spec})


def _child(cluster: ScenarioCluster, name: str, count: int, parent: str, **spec: Any) -> Group:
    spec = {"parentCompositePodGroupName": parent, **_from_template(name), **spec}
    return Group(cluster, name, count, "middle", **spec).create()


def _from_template(name: str) -> Json:
    return {"workloadRef": {"workloadName": "job", "templateName": name}}


def trees_are_placed_whole(cluster: ScenarioCluster) -> None:
    """No pod is bound before enough groups of the tree have enough pods, and capacity."""
    cluster.node("left", 4)
    cluster.node("right", 7)
    cluster.settle()
    _composite(cluster, "root", 2)
    first = _child(cluster, "first", 2, "root")
    first.member("2", nodeSelector={HOST: "left"})
    first.member("2", nodeSelector={HOST: "right"})
    cluster.settle()
    cluster.note("a group is missing")
    second = _child(cluster, "second", 1, "root")
    second.member("6", nodeSelector={HOST: "right"})
    cluster.decided("first-0", "first-1", "second-0")
    cluster.settle()
    cluster.note("the second group lacks capacity")
    second.member("2", nodeSelector={HOST: "left"})
    cluster.bound(**{"first-0": "left", "first-1": "right", "second-1": "left"})
    cluster.decided("second-0")
    cluster.change_node("right", {"status": {"allocatable": {"cpu": "9"}}}, status=True)
    cluster.bound(**{"second-0": "right"})


def trees_stay_within_a_domain(cluster: ScenarioCluster) -> None:
    """All groups of a tree go to one rack."""
    for name, cpu, rack in (("a", 3, "1"), ("b", 4, "1"), ("c", 5, "2"), ("d", 1, "2")):
        cluster.node(name, cpu, labels={RACK: rack})
    cluster.node("nowhere", 20)
    cluster.settle()
    _composite(cluster, "root", 2, schedulingConstraints=IN_ONE_RACK)
    first = _child(cluster, "first", 1, "root")
    second = _child(cluster, "second", 1, "root")
    first.member("4")
    second.member("3")
    cluster.bound(**{"first-0": "b", "second-0": "a"})
    _composite(cluster, "other", 1, schedulingConstraints=IN_ONE_RACK)
    _child(cluster, "third", 1, "other").member("6")
    cluster.decided("third-0")


def trees_leave_as_a_whole_and_preempt(cluster: ScenarioCluster) -> None:
    """The disruption mode of the root holds for all its groups; a tree evicts other pods."""
    cluster.node("a", 4)
    cluster.node("b", 5)
    cluster.pod("low", "5", on="b", priority="low")
    cluster.settle()
    _composite(cluster, "root", 2, disruptionMode=DISRUPTED_AS_WHOLE)
    _child(cluster, "first", 1, "root").member("4", nodeSelector={HOST: "a"})
    _child(cluster, "second", 1, "root").member("4", nodeSelector={HOST: "b"})
    cluster.told("first", "preempting 1 victims")
    cluster.leaving("low")
    cluster.note_pods("a tree preempts")
    cluster.end("low")
    cluster.bound(**{"first-0": "a", "second-0": "b"})
    cluster.place("high", "3", priority="high", nodeSelector={HOST: "a"})
    cluster.leaving("first-0", "second-0")
    cluster.settle()
    cluster.note("the tree is leaving")
    cluster.end("first-0")
    cluster.bound(high="a")


TREES = (
    trees_are_placed_whole,
    trees_stay_within_a_domain,
    trees_leave_as_a_whole_and_preempt,
)
