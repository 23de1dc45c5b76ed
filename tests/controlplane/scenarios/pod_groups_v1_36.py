"""Pod groups as 1.36 alone schedules them: preemption and placements have gates of their own.

Members have priorities of their own, and are tried in that order.
"""

from __future__ import annotations

from typing import Any

from envtest.pod_groups import GROUPS
from envtest.scenario_cluster import HOST, ScenarioCluster

Json = dict[str, Any]

RACK = "example.com/rack"


def _group(
    cluster: ScenarioCluster, name: str, count: int, priority: str = "", **spec: Any
) -> None:
    policy = {"gang": {"minCount": count}} if count else {"basic": {}}
    if priority:
        spec["priorityClassName"] = priority
    cluster.add(GROUPS, {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}})


def _member(
    cluster: ScenarioCluster, group: str, number: int, cpu: str = "2", **options: Any
) -> None:
    options = {"priority": "top"} | options
    cluster.pod(f"{group}-{number}", cpu, schedulingGroup={"podGroupName": group}, **options)


def one_pod_of_a_gang_preempts_for_itself(cluster: ScenarioCluster) -> None:
    """Without preemption for whole groups, each pod selects victims, and the gang waits.

    Its conditions meanwhile are not compared: kube-scheduler tries it again thousands of times.
    """
    cluster.node("left", 4)
    cluster.node("right", 5)
    cluster.pod("left-low", "4", on="left", priority="low")
    cluster.pod("right-low", "5", on="right", priority="low")
    cluster.settle()
    _group(cluster, "pair", 2)
    _member(cluster, "pair", 0, "4", priority="top", nodeSelector={HOST: "left"})
    _member(cluster, "pair", 1, "4", priority="high", nodeSelector={HOST: "right"})
    cluster.leaving("left-low", "right-low")
    cluster.settle()
    cluster.end("left-low")
    # Each removal wakes the gang. The attempt is waited for: otherwise chance would decide whether
    # there is one between the two removals.
    cluster.refused("pair-1", "a terminating pod on the nominated node")
    cluster.end("right-low")
    cluster.bound(**{"pair-0": "left", "pair-1": "right"})


SCENARIOS = (one_pod_of_a_gang_preempts_for_itself,)


# ---- preemption for whole groups -----------------------------------------------------------------


def a_group_preempts_as_a_whole(cluster: ScenarioCluster) -> None:
    """Only as many victims as the group needs, those of least importance first."""
    cluster.node("left", 4)
    cluster.node("right", 6)
    cluster.pod("left-low", "4", on="left", priority="low")
    cluster.pod("right-low", "3", on="right", priority="low")
    cluster.pod("right-middle", "3", on="right", priority="middle")
    cluster.settle()
    _group(cluster, "pair", 2, "high")
    _member(cluster, "pair", 0, "3", priority="high", nodeSelector={HOST: "left"})
    _member(cluster, "pair", 1, "3", priority="middle", nodeSelector={HOST: "right"})
    cluster.leaving("left-low", "right-low")
    cluster.decided("pair-0", "pair-1")
    cluster.settle()
    cluster.note("the victims are leaving")
    cluster.end("left-low")
    cluster.note("one victim is gone")  # with the attempt that its removal leads to
    cluster.end("right-low")
    cluster.bound(**{"pair-0": "left", "pair-1": "right"})


def groups_leave_as_a_whole_or_stay(cluster: ScenarioCluster) -> None:
    """A group with disruption mode PodGroup is one victim; of others, single pods are victims."""
    cluster.node("a", 4)
    cluster.node("b", 5)
    cluster.settle()
    _group(cluster, "whole", 2, "low", disruptionMode="PodGroup")
    _member(cluster, "whole", 0, "4", priority="low", nodeSelector={HOST: "a"})
    _member(cluster, "whole", 1, "2", priority="low", nodeSelector={HOST: "b"})
    cluster.bound(**{"whole-0": "a", "whole-1": "b"})
    cluster.pod("single", "3", on="b", priority="low")
    cluster.settle()
    _group(cluster, "one", 1, "high")
    _member(cluster, "one", 0, "4", priority="high", nodeSelector={HOST: "a"})
    cluster.leaving("whole-0", "whole-1")
    cluster.decided("one-0")
    cluster.settle()
    cluster.note("the whole group is leaving")
    cluster.end("whole-0", "whole-1")
    cluster.bound(**{"one-0": "a"})


def groups_that_cannot_preempt_have_their_reasons(cluster: ScenarioCluster) -> None:
    """There are no less important pods, removing them would not help, or preemption is off."""
    cluster.node("only", 4)
    cluster.pod("middle", "4", on="only", priority="middle")
    cluster.settle()
    _group(cluster, "humble", 1, "low")
    _member(cluster, "humble", 0, "2", priority="low")
    cluster.decided("humble-0")
    _group(cluster, "vain", 1, "high")
    _member(cluster, "vain", 0, "9", priority="high")
    cluster.decided("vain-0")
    _group(cluster, "polite", 1, "high")
    _member(cluster, "polite", 0, "2", priority="polite")
    cluster.decided("polite-0")
    cluster.settle()
    assert not cluster.remains("middle")["metadata"].get("deletionTimestamp")


WITH_PREEMPTION = (
    a_group_preempts_as_a_whole,
    groups_leave_as_a_whole_or_stay,
    groups_that_cannot_preempt_have_their_reasons,
)


# ---- placements ----------------------------------------------------------------------------------


def groups_stay_within_a_domain(cluster: ScenarioCluster) -> None:
    """All members are bound in one rack, the one that fits most of them; later ones follow."""
    for name, cpu, rack in (("a", 3, "1"), ("b", 6, "1"), ("c", 3, "2"), ("d", 4, "2")):
        cluster.node(name, cpu, labels={RACK: rack})
    cluster.node("nowhere", 20)
    cluster.settle()
    constraints = {"topology": [{"key": RACK}]}
    for number, (cpu, priority) in enumerate((("4", "high"), ("3", "middle"), ("2", "low"))):
        _member(cluster, "near", number, cpu, priority=priority)
    cluster.settle()
    _group(cluster, "near", 2, schedulingConstraints=constraints)
    cluster.bound(**{"near-0": "b", "near-1": "a", "near-2": "b"})
    _member(cluster, "near", 3, "2")
    cluster.refused("near-3", "Insufficient cpu")
    cluster.settle()
    cluster.note("another one does not fit there")
    cluster.node("e", 4, labels={RACK: "2"})
    cluster.settle()
    cluster.node("f", 4, labels={RACK: "1"})
    cluster.bound(**{"near-3": "f"})


def groups_with_a_domain_do_not_preempt(cluster: ScenarioCluster) -> None:
    """Neither for the whole group nor pod by pod."""
    cluster.node("only", 4, labels={RACK: "1"})
    cluster.pod("low", "4", on="only", priority="low")
    cluster.settle()
    constraints = {"topology": [{"key": RACK}]}
    _group(cluster, "near", 1, "high", schedulingConstraints=constraints)
    _member(cluster, "near", 0, "2", priority="high")
    cluster.decided("near-0")
    cluster.settle()
    assert not cluster.remains("low")["metadata"].get("deletionTimestamp")


def groups_that_no_domain_can_take_wait(cluster: ScenarioCluster) -> None:
    """The group fits in no rack, then in one; the case without racks has its reason too."""
    cluster.node("one", 3, labels={RACK: "1"})
    cluster.node("two", 4)
    cluster.settle()
    constraints = {"topology": [{"key": RACK}]}
    _group(cluster, "near", 2, schedulingConstraints=constraints)
    for number, priority in enumerate(("high", "low")):
        _member(cluster, "near", number, "2", priority=priority)
    cluster.decided("near-0", "near-1")
    cluster.settle()
    cluster.note("the rack is too small")
    _group(cluster, "lost", 1, schedulingConstraints={"topology": [{"key": "example.com/none"}]})
    _member(cluster, "lost", 0, "1")
    cluster.decided("lost-0")
    cluster.node("three", 4, labels={RACK: "3"})
    cluster.bound(**{"near-0": "three", "near-1": "three"})


WITH_PLACEMENTS = (
    groups_stay_within_a_domain,
    groups_with_a_domain_do_not_preempt,
    groups_that_no_domain_can_take_wait,
)
