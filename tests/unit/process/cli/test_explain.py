"""Explanations as tables, JSON and YAML."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml
from rich.console import Console

from proreus.insight.explain import PodExplanation
from proreus.insight.explain.explanation import (
    AttemptExplanation,
    GroupState,
    HelpfulChanges,
    LeftOut,
    NodeChoice,
    PluginScore,
    PodChange,
    RejectedNodes,
    ScoredNode,
    VictimState,
    Waiting,
    WakingEvent,
    WhatWouldHelp,
)
from proreus.process.cli import kubectl_main, main
from proreus.process.cli.explain.tables import tables_of
from proreus.process.cli.scheduler_access import SchedulerAccess


def text_of(explained: Any) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in tables_of(explained):
        console.print(part)
    console.file.close()
    return console.export_text()


WAITING = PodExplanation(
    pod="default/p",
    state="waiting",
    summary="It waits.",
    waiting=Waiting(
        queue="unschedulable",
        since=0.0,
        attempts=3,
        rejected_by=("NodeResourcesFit",),
        events=(WakingEvent(plugin="NodeResourcesFit", event="NodeAdd", hinted=True),),
        scheduling_gates=("example.com/g",),
        group=GroupState(name="default/g", exists=True, min_count=3, pods=2, lacking=1),
    ),
    attempt=AttemptExplanation(
        at=0.0,
        seconds=0.001,
        profile="default-scheduler",
        configuration=1,
        nodes=7,
        message="0/7 nodes are available",
        rejected=(
            RejectedNodes(
                plugin="NodeResourcesFit",
                code="Unschedulable",
                reasons=("Insufficient cpu",),
                count=7,
                names=("a", "b"),
            ),
        ),
        victims=(VictimState(pod="default/v", priority=1, reason="lower", state="terminating"),),
        nominated_node="a",
    ),
    help=WhatWouldHelp(
        nodes=(HelpfulChanges(node="a", changes=(PodChange(field="f", text="500m less cpu"),)),),
        new_node_like="b",
    ),
)


def test_a_waiting_pod() -> None:
    text = text_of(WAITING)
    for part in (
        "NodeAdd",
        "example.com/g",
        "1 pods are still to be created",
        "Insufficient cpu",
        "a, b, …",
        "default/v",
        "500m less cpu",
        "a node like b",
    ):
        assert part in text, part


def test_a_placed_pod() -> None:
    def scored(name: str, raw: int) -> ScoredNode:
        plugin = PluginScore(plugin="P", weight=2, raw=raw, normalized=raw // 2, weighted=raw)
        return ScoredNode(name=name, total=raw, plugins=(plugin,))

    placement = NodeChoice(
        node="a",
        feasible=2,
        total=80,
        margin=20,
        nodes=(scored("a", 80), scored("b", 60)),
        totals=((80, 1), (60, 1)),
        left_out=(LeftOut(plugin="P", decided=True, best=("b",), count=1),),
    )
    attempt = AttemptExplanation(
        at=0.0, seconds=0.1, profile="x", configuration=1, nodes=2, placement=placement
    )
    explained = PodExplanation(pod="n/p", state="bound", summary="Bound.", attempt=attempt)
    text = text_of(explained)
    assert "80 > 40" in text
    assert "Decided by: P" in text


@pytest.mark.parametrize("run", [main, kubectl_main])
@pytest.mark.parametrize("command", [("why", "p"), ("explain", "pod", "default/p")])
def test_formats_for_programs(monkeypatch: Any, capsys: Any, run: Any, command: Any) -> None:
    asked = []

    def get(self: SchedulerAccess, path: str, **query: str) -> bytes:
        asked.append((path, query["namespace"], query["name"]))
        return msgspec.json.encode(WAITING)

    monkeypatch.setattr(SchedulerAccess, "get", get)
    for output, parse in (("json", json.loads), ("yaml", yaml.safe_load)):
        with pytest.raises(SystemExit) as ended:
            run([*command, "-o", output])
        assert ended.value.code == 0
        assert parse(capsys.readouterr().out)["waiting"]["rejectedBy"] == ["NodeResourcesFit"]
    with pytest.raises(SystemExit):
        run([*command])
    assert "It waits." in capsys.readouterr().out
    assert asked == [("/explain/pod", "default", "p")] * 3
