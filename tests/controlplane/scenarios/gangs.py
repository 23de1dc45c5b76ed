"""Gang scheduling: all pods or none; the PodGroup is created before, after, or never.

kube-scheduler may write over the condition of a group that it has just scheduled, when another pod
of it is tried before the watch has told of the first write. So that condition is compared only
where no pod is left, or where some time has passed.
"""

from __future__ import annotations

from envtest.scenario_cluster import HOST, ZONE, ScenarioCluster

from scenarios import Interrupted
from scenarios.group import Group


def gangs_are_placed_whole(cluster: ScenarioCluster) -> None:
    """Pods wait for other members, for their PodGroup, and for capacity for enough of them."""
    cluster.node("big", 10)
    cluster.node("small", 5)
    cluster.settle()
    three = Group(cluster, "three", 3).create()
    three.member(nodeSelector={HOST: "big"})
    three.member(nodeSelector={HOST: "small"})
    cluster.settle()
    cluster.note("one member is missing")
    three.member(nodeSelector={HOST: "big"})
    cluster.bound(**{"three-0": "big", "three-1": "small", "three-2": "big"})
    late = Group(cluster, "late", 1)
    late.member("1")
    cluster.settle()
    cluster.note("a group is missing")
    late.create()
    cluster.decided("late-0")
    loose = Group(cluster, "loose", 0).create()
    loose.member("1")
    cluster.decided("loose-0")
    wide = Group(cluster, "wide", 3).create()
    for rank in ("high", "middle", "low"):
        wide.member("3", rank)
    cluster.decided("wide-0", "wide-1", "wide-2")
    cluster.settle()
    cluster.note("there is no capacity for three wide ones")
    cluster.node("fresh", 7)
    for number in range(3):
        cluster.placed(f"wide-{number}")


def members_that_fit_nowhere_hold_back_the_others(cluster: ScenarioCluster) -> None:
    """Conditions of members that fit and of those that do not; a basic group is bound in part."""
    cluster.node("only", 6)
    cluster.settle()
    gang = Group(cluster, "gang", 2).create()
    gang.member("2", "high")
    gang.member("2", "low", nodeSelector={ZONE: "nowhere"})
    cluster.decided("gang-0", "gang-1")
    cluster.settle()
    cluster.note("one of two fits")
    loose = Group(cluster, "loose", 0).create()
    loose.member("2", "high")
    cluster.bound(**{"loose-0": "only"})
    cluster.settle()
    loose.member("2", "low", nodeSelector={ZONE: "nowhere"})
    cluster.decided("loose-1")
    gang.member("2", "middle")
    cluster.bound(**{"gang-0": "only", "gang-2": "only"})
    cluster.decided("gang-1")
    cluster.settle()
    cluster.note_pods("one of each group fits nowhere")
    cluster.node("far", 4, "nowhere")
    cluster.bound(**{"gang-1": "far", "loose-1": "far"})


def gangs_have_more_members_than_they_need(cluster: ScenarioCluster) -> None:
    """Those beyond the minimum are bound as far as they fit, the others when there is capacity.

    The node comes after the members: kube-scheduler may try a group whose PodGroup has just arrived
    before all of the waiting members have joined it.
    """
    gang = Group(cluster, "gang", 2).create()
    for rank in ("top", "high", "middle", "low"):
        gang.member("2", rank)
    cluster.settle()
    cluster.node("only", 6)
    cluster.bound(**{f"gang-{number}": "only" for number in range(3)})
    cluster.decided("gang-3")
    cluster.settle()
    cluster.note_pods("one is left")
    cluster.node("late", 2)
    cluster.bound(**{"gang-3": "late"})


def pods_survive_their_group(cluster: ScenarioCluster) -> None:
    """Pods whose group is deleted wait for another one of that name, whatever capacity there is."""
    cluster.node("small", 1)
    cluster.settle()
    pair = Group(cluster, "pair", 2).create()
    pair.member("2", "high")
    pair.member("2", "low")
    cluster.decided("pair-0", "pair-1")
    cluster.settle()
    cluster.note("no pod fits")
    cluster.remove(pair.path)
    cluster.settle()
    cluster.node("large", 4)
    cluster.settle()
    cluster.note("the group is gone")
    Group(cluster, "pair", 2).create()
    cluster.bound(**{"pair-0": "large", "pair-1": "large"})


BOTH_VERSIONS = (
    gangs_are_placed_whole,
    members_that_fit_nowhere_hold_back_the_others,
    gangs_have_more_members_than_they_need,
    pods_survive_their_group,
)


# ---- a scheduler that ends while a gang is bound -------------------------------------------------


def _wait_for_a_member(cluster: ScenarioCluster) -> None:
    cluster.node("left", 4)
    cluster.node("right", 5)
    trio = Group(cluster, "trio", 3).create()
    trio.member(nodeSelector={HOST: "left"})
    trio.member(nodeSelector={HOST: "right"})
    pair = Group(cluster, "pair", 2).create()
    pair.member("2", nodeSelector={HOST: "right"})
    cluster.settle()
    cluster.note("members are missing")


def _bind_in_part(cluster: ScenarioCluster) -> None:
    options = {"schedulingGroup": {"podGroupName": "trio"}, "priority": "top"}
    cluster.pod("trio-2", "2", nodeSelector={HOST: "left"}, **options)
    cluster.bind("trio-0", "left")
    options["schedulingGroup"] = {"podGroupName": "pair"}
    cluster.pod("pair-1", "9", nodeSelector={HOST: "right"}, **options)
    cluster.bind("pair-0", "right")


def _bind_the_others(cluster: ScenarioCluster) -> None:
    cluster.bound(**{"trio-0": "left", "trio-1": "right", "trio-2": "left"})
    cluster.decided("pair-1")
    cluster.settle()


gangs_bound_in_part = Interrupted(_wait_for_a_member, _bind_in_part, _bind_the_others)
