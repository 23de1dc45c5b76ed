"""Gangs: all or none, with the PodGroup before, after, or never there."""

from __future__ import annotations

from typing import Any

from testground.stage import GROUPS, HOST, ZONE, Stage

Json = dict[str, Any]

RACK = "example.com/rack"


def _group(stage: Stage, name: str, count: int, priority: str = "", **spec: Any) -> None:
    policy = {"gang": {"minCount": count}} if count else {"basic": {}}
    if priority:
        spec["priorityClassName"] = priority
    stage.add(GROUPS, {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}})


def _member(stage: Stage, group: str, number: int, cpu: str = "2", **options: Any) -> None:
    options = {"priority": "top"} | options
    stage.pod(f"{group}-{number}", cpu, schedulingGroup={"podGroupName": group}, **options)


def gangs_are_placed_whole(stage: Stage) -> None:
    """Members wait for the others, for their group, and for room for enough of them.

    Members of one priority take turns as chance has it, so they differ in priority or selector.
    """
    stage.node("big", 10)
    stage.node("small", 5)
    stage.settle()
    _group(stage, "three", 3)
    _member(stage, "three", 0, nodeSelector={HOST: "big"})
    _member(stage, "three", 1, nodeSelector={HOST: "small"})
    stage.settle()
    stage.note("one member is missing")
    _member(stage, "three", 2, nodeSelector={HOST: "big"})
    stage.bound(**{"three-0": "big", "three-1": "small", "three-2": "big"})
    _member(stage, "late", 0, "1")
    stage.settle()
    stage.note("a group is missing")
    _group(stage, "late", 1)
    stage.decided("late-0")
    _group(stage, "loose", 0)
    _member(stage, "loose", 0, "1")
    stage.decided("loose-0")
    _group(stage, "wide", 3)
    for number, priority in enumerate(("low", "middle", "high")):
        _member(stage, "wide", number, "3", priority=priority)
    stage.decided("wide-0", "wide-1", "wide-2")
    stage.settle()
    stage.note("there is no room for three wide ones")
    stage.node("fresh", 7)
    for number in range(3):
        stage.placed(f"wide-{number}")


def members_that_fit_nowhere_hold_back_the_others(stage: Stage) -> None:
    """Who would fit is told of the gang, who would not is told why; a basic group goes in parts."""
    stage.node("only", 6)
    stage.settle()
    _group(stage, "gang", 2)
    _member(stage, "gang", 0, "2", priority="high")
    _member(stage, "gang", 1, "2", priority="low", nodeSelector={ZONE: "nowhere"})
    stage.decided("gang-0", "gang-1")
    stage.settle()
    stage.note("one of two fits")
    _group(stage, "loose", 0)
    _member(stage, "loose", 0, "2", priority="high")
    stage.bound(**{"loose-0": "only"})
    stage.settle()
    _member(stage, "loose", 1, "2", priority="low", nodeSelector={ZONE: "nowhere"})
    stage.decided("loose-1")
    _member(stage, "gang", 2, "2", priority="middle")
    stage.bound(**{"gang-0": "only", "gang-2": "only"})
    stage.decided("gang-1")


def one_pod_of_a_gang_preempts_for_itself(stage: Stage) -> None:
    """Without preemption for whole groups, each pod looks for victims, and the gang waits.

    What it is told meanwhile is not compared: kube-scheduler tries it again thousands of times.
    """
    stage.node("left", 4)
    stage.node("right", 5)
    stage.pod("left-low", "4", on="left", priority="low")
    stage.pod("right-low", "5", on="right", priority="low")
    stage.settle()
    _group(stage, "pair", 2)
    _member(stage, "pair", 0, "4", priority="top", nodeSelector={HOST: "left"})
    _member(stage, "pair", 1, "4", priority="high", nodeSelector={HOST: "right"})
    stage.leaving("left-low", "right-low")
    stage.settle()
    stage.end("left-low", "right-low")
    stage.bound(**{"pair-0": "left", "pair-1": "right"})


SCENARIOS = (
    gangs_are_placed_whole,
    members_that_fit_nowhere_hold_back_the_others,
    one_pod_of_a_gang_preempts_for_itself,
)


# ---- preemption for whole groups -----------------------------------------------------------------


def a_group_preempts_as_a_whole(stage: Stage) -> None:
    """Only victims that the group needs, the least important first."""
    stage.node("left", 4)
    stage.node("right", 6)
    stage.pod("left-low", "4", on="left", priority="low")
    stage.pod("right-low", "3", on="right", priority="low")
    stage.pod("right-middle", "3", on="right", priority="middle")
    stage.settle()
    _group(stage, "pair", 2, "high")
    _member(stage, "pair", 0, "3", priority="high", nodeSelector={HOST: "left"})
    _member(stage, "pair", 1, "3", priority="middle", nodeSelector={HOST: "right"})
    stage.leaving("left-low", "right-low")
    stage.decided("pair-0", "pair-1")
    stage.settle()
    stage.note("the victims are leaving")
    stage.end("left-low", "right-low")
    stage.bound(**{"pair-0": "left", "pair-1": "right"})


def groups_leave_as_a_whole_or_stay(stage: Stage) -> None:
    """A group whose disruption mode is PodGroup is one victim; of others single pods may go."""
    stage.node("a", 4)
    stage.node("b", 5)
    stage.settle()
    _group(stage, "whole", 2, "low", disruptionMode="PodGroup")
    _member(stage, "whole", 0, "4", priority="low", nodeSelector={HOST: "a"})
    _member(stage, "whole", 1, "2", priority="low", nodeSelector={HOST: "b"})
    stage.bound(**{"whole-0": "a", "whole-1": "b"})
    stage.pod("single", "3", on="b", priority="low")
    stage.settle()
    _group(stage, "one", 1, "high")
    _member(stage, "one", 0, "4", priority="high", nodeSelector={HOST: "a"})
    stage.leaving("whole-0", "whole-1")
    stage.decided("one-0")
    stage.settle()
    stage.note("the whole group is leaving")
    stage.end("whole-0", "whole-1")
    stage.bound(**{"one-0": "a"})


def groups_that_cannot_preempt_are_told_why(stage: Stage) -> None:
    """Nobody less important, no use of it, or not willing."""
    stage.node("only", 4)
    stage.pod("middle", "4", on="only", priority="middle")
    stage.settle()
    _group(stage, "humble", 1, "low")
    _member(stage, "humble", 0, "2", priority="low")
    stage.decided("humble-0")
    _group(stage, "vain", 1, "high")
    _member(stage, "vain", 0, "9", priority="high")
    stage.decided("vain-0")
    _group(stage, "polite", 1, "high")
    _member(stage, "polite", 0, "2", priority="polite")
    stage.decided("polite-0")
    stage.settle()
    assert not stage.remains("middle")["metadata"].get("deletionTimestamp")


WITH_PREEMPTION = (
    a_group_preempts_as_a_whole,
    groups_leave_as_a_whole_or_stay,
    groups_that_cannot_preempt_are_told_why,
)


# ---- placements ----------------------------------------------------------------------------------


def groups_stay_within_a_domain(stage: Stage) -> None:
    """All members go to one rack, the one that takes most of them; later ones follow."""
    for name, cpu, rack in (("a", 3, "1"), ("b", 6, "1"), ("c", 3, "2"), ("d", 4, "2")):
        stage.node(name, cpu, labels={RACK: rack})
    stage.node("nowhere", 20)
    stage.settle()
    constraints = {"topology": [{"key": RACK}]}
    for number, (cpu, priority) in enumerate((("4", "high"), ("3", "middle"), ("2", "low"))):
        _member(stage, "near", number, cpu, priority=priority)
    stage.settle()
    _group(stage, "near", 2, schedulingConstraints=constraints)
    stage.bound(**{"near-0": "b", "near-1": "a", "near-2": "b"})
    _member(stage, "near", 3, "2")
    stage.refused("near-3", "Insufficient cpu")
    stage.settle()
    stage.note("another one has no room there")
    stage.node("e", 4, labels={RACK: "2"})
    stage.settle()
    stage.node("f", 4, labels={RACK: "1"})
    stage.bound(**{"near-3": "f"})


def groups_with_a_domain_do_not_preempt(stage: Stage) -> None:
    """Neither as a whole nor pod by pod."""
    stage.node("only", 4, labels={RACK: "1"})
    stage.pod("low", "4", on="only", priority="low")
    stage.settle()
    constraints = {"topology": [{"key": RACK}]}
    _group(stage, "near", 1, "high", schedulingConstraints=constraints)
    _member(stage, "near", 0, "2", priority="high")
    stage.decided("near-0")
    stage.settle()
    assert not stage.remains("low")["metadata"].get("deletionTimestamp")


def groups_that_no_domain_can_take_wait(stage: Stage) -> None:
    """No rack has room for all of it; then one has. No rack at all is told too."""
    stage.node("one", 3, labels={RACK: "1"})
    stage.node("two", 4)
    stage.settle()
    constraints = {"topology": [{"key": RACK}]}
    _group(stage, "near", 2, schedulingConstraints=constraints)
    for number, priority in enumerate(("high", "low")):
        _member(stage, "near", number, "2", priority=priority)
    stage.decided("near-0", "near-1")
    stage.settle()
    stage.note("the rack is too small")
    _group(stage, "lost", 1, schedulingConstraints={"topology": [{"key": "example.com/none"}]})
    _member(stage, "lost", 0, "1")
    stage.decided("lost-0")
    stage.node("three", 4, labels={RACK: "3"})
    stage.bound(**{"near-0": "three", "near-1": "three"})


WITH_PLACEMENTS = (
    groups_stay_within_a_domain,
    groups_with_a_domain_do_not_preempt,
    groups_that_no_domain_can_take_wait,
)
