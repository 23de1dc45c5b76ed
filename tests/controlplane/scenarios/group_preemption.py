"""Preemption by pod groups and of pod groups.

There is no kubelet: victims remain until the scenario removes them. Since 1.37 chance decides
whether a group is tried again meanwhile, and then its condition says that preemption is ongoing: it
is not tried if its first attempt ends while requests to delete its victims are under way.
"""

from __future__ import annotations

from envtest.pod_groups import DISRUPTED_AS_WHOLE
from envtest.scenario_cluster import HOST, ScenarioCluster

from scenarios.group import Group


def groups_leave_as_a_whole_or_pod_by_pod(cluster: ScenarioCluster) -> None:
    """A group is one victim if its disruption mode says so; of others single pods are victims."""
    for name, cpu in (("a", 4), ("b", 5), ("c", 6), ("d", 7)):
        cluster.node(name, cpu)
    cluster.settle()
    whole = Group(cluster, "whole", 2, "low", disruptionMode=DISRUPTED_AS_WHOLE).create()
    whole.member("4", nodeSelector={HOST: "a"})
    whole.member("2", nodeSelector={HOST: "b"})
    parts = Group(cluster, "parts", 2, "low").create()
    parts.member("6", nodeSelector={HOST: "c"})
    parts.member("2", nodeSelector={HOST: "d"})
    cluster.bound(**{"whole-0": "a", "whole-1": "b", "parts-0": "c", "parts-1": "d"})
    cluster.pod("single", "3", on="b", priority="low")
    cluster.settle()
    Group(cluster, "one", 1, "high").create().member("4", nodeSelector={HOST: "a"})
    cluster.leaving("whole-0", "whole-1")
    cluster.end("whole-0")  # first: a removal wakes the group, and this one lets it in
    cluster.bound(**{"one-0": "a"})
    cluster.end("whole-1")
    Group(cluster, "two", 1, "high").create().member("6", nodeSelector={HOST: "c"})
    cluster.leaving("parts-0")
    cluster.end("parts-0")
    cluster.bound(**{"two-0": "c"})
    for name in ("parts-1", "single"):
        assert not cluster.remains(name)["metadata"].get("deletionTimestamp"), name


BOTH_VERSIONS = (groups_leave_as_a_whole_or_pod_by_pod,)


def a_group_preempts_as_a_whole(cluster: ScenarioCluster) -> None:
    """Only as many victims as the group needs, those of least importance first."""
    cluster.node("left", 4)
    cluster.node("right", 6)
    cluster.pod("left-low", "4", on="left", priority="low")
    cluster.pod("right-low", "3", on="right", priority="low")
    cluster.pod("right-middle", "3", on="right", priority="middle")
    cluster.settle()
    pair = Group(cluster, "pair", 2, "high").create()
    pair.member("3", nodeSelector={HOST: "left"})
    pair.member("3", nodeSelector={HOST: "right"})
    cluster.told("pair", "preempting 2 victims")
    cluster.leaving("left-low", "right-low")
    cluster.note_pods("the victims are leaving")
    cluster.end("left-low")
    # That wakes the group. The attempt is waited for: otherwise chance would decide whether there
    # is one between the two removals.
    cluster.told("pair", "pod group preemption: ongoing preemption")
    cluster.note("one victim is gone")
    cluster.end("right-low")
    cluster.bound(**{"pair-0": "left", "pair-1": "right"})


def a_pod_preempts_a_group(cluster: ScenarioCluster) -> None:
    """A pod without a group evicts a group on several nodes, or spares it for a single pod."""
    cluster.node("a", 4)
    cluster.node("b", 5)
    cluster.node("c", 3)
    cluster.settle()
    whole = Group(cluster, "whole", 2, "low", disruptionMode=DISRUPTED_AS_WHOLE).create()
    whole.member("4", nodeSelector={HOST: "a"})
    whole.member("4", nodeSelector={HOST: "b"})
    cluster.bound(**{"whole-0": "a", "whole-1": "b"})
    cluster.pod("single", "3", on="c", priority="low")
    cluster.settle()
    cluster.place("first", "3", priority="high")
    cluster.leaving("single")
    cluster.settle()
    cluster.note("the single pod is leaving")
    cluster.end("single")
    cluster.bound(first="c")
    cluster.place("second", "4", priority="high", nodeSelector={HOST: "a"})
    cluster.leaving("whole-0", "whole-1")
    cluster.settle()
    cluster.note("the whole group is leaving")
    cluster.end("whole-0")
    cluster.bound(second="a")


def groups_that_cannot_preempt_have_their_reasons(cluster: ScenarioCluster) -> None:
    """There are no less important pods, removing them would not help, preemption is off, or a pod
    has not the priority of its group."""
    cluster.node("only", 4)
    cluster.pod("middle", "4", on="only", priority="middle")
    cluster.settle()
    Group(cluster, "humble", 1, "low").create().member("2")
    cluster.decided("humble-0")
    Group(cluster, "vain", 1, "high").create().member("9")
    cluster.decided("vain-0")
    Group(cluster, "polite", 1, "polite").create().member("2")
    cluster.decided("polite-0")
    Group(cluster, "mixed", 1, "low").create()
    cluster.pod("mixed-0", "1", priority="middle", schedulingGroup={"podGroupName": "mixed"})
    cluster.decided("mixed-0")
    cluster.settle()
    assert not cluster.remains("middle")["metadata"].get("deletionTimestamp")


SCENARIOS = (
    a_group_preempts_as_a_whole,
    a_pod_preempts_a_group,
    groups_that_cannot_preempt_have_their_reasons,
)
