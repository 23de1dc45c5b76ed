"""Gangs: all or none, with the PodGroup before, after, or never there."""

from __future__ import annotations

from typing import Any

from testground.stage import HOST, Stage

Json = dict[str, Any]

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


def _group(stage: Stage, name: str, count: int) -> None:
    policy = {"gang": {"minCount": count}} if count else {"basic": {}}
    stage.add(GROUPS, {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}})


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


SCENARIOS = (gangs_are_placed_whole,)
