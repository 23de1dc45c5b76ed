"""Explanations as tables, JSON and YAML."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import structs
from rich.console import Console

from proreus.insight.explain import NodeExplanation, PodExplanation
from proreus.insight.explain.documents import from_json, to_document
from proreus.insight.explain.explanation import (
    AttemptExplanation,
    BlockingPods,
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
    ),
    group=GroupState(name="default/g", exists=True, min_count=3, pods=2, lacking=1),
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
        "1 have to be created first",
        "Insufficient cpu",
        "a, b, …",
        "default/v",
        "500m less cpu",
        "one like b",
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
        return msgspec.json.encode(to_document(WAITING))

    monkeypatch.setattr(SchedulerAccess, "get", get)
    monkeypatch.delenv("COLUMNS", raising=False)
    for output, parse in (("json", json.loads), ("yaml", yaml.safe_load)):
        with pytest.raises(SystemExit) as ended:
            run([*command, "-o", output])
        assert ended.value.code == 0
        assert parse(capsys.readouterr().out)["waiting"]["rejectedBy"] == ["NodeResourcesFit"]
    with pytest.raises(SystemExit):
        run([*command])
    assert "It waits." in capsys.readouterr().out
    assert asked == [("/explain/pod", "default", "p")] * 3


def test_equal_changes_of_several_nodes_are_one_line() -> None:
    change = PodChange(field="f", text="request 40 less cpu: 8 instead of 48")
    same = tuple(HelpfulChanges(node=f"node-{n}", changes=(change,)) for n in (1, 4))
    explained = structs.replace(WAITING, help=WhatWouldHelp(nodes=same))
    assert "node-1, node-4   request 40 less cpu" in text_of(explained)


def test_a_group_that_blocks_is_told_with_its_pods_and_reasons() -> None:
    reasons = RejectedNodes(
        plugin="NodeResourcesFit", code="Unschedulable", reasons=("Insufficient cpu",), count=5
    )
    group = GroupState(
        name="default/g",
        exists=True,
        min_count=24,
        pods=24,
        fits=False,
        fit_together=20,
        blocking=(BlockingPods(pods=("default/huge-20",), count=4, rejected=(reasons,)),),
    )
    changes = (PodChange(field="f", text="request 1 less cpu: 3 instead of 4"),)
    found = WhatWouldHelp(
        of_group=True,
        nodes=(HelpfulChanges(node="", changes=changes, pods=24),),
        changed_group=(PodChange(field="m", text="need 20 pods together instead of 24"),),
        new_node_like="n1",
        new_nodes=2,
    )
    text = text_of(structs.replace(WAITING, group=group, help=found))
    for part in (
        "24 are needed together",
        "default/huge-20, …",
        "Insufficient cpu",
        "each of 24 pods",
        "need 20 pods together instead of 24",
        "2 like n1, with its DaemonSet pods only, would take the pods that are left",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("asked", "answer", "code"),
    [
        (("pod", "p"), PodExplanation(pod="default/p", state="unknown", summary="No."), 1),
        (("pod", "p", "-o", "json"), PodExplanation(pod="n/p", state="unknown", summary="N"), 1),
        (("pod", "p"), PodExplanation(pod="n/p", state="unknown", uid="u", summary="Ask."), 0),
        (("node", "n"), NodeExplanation(node="n", known=False, summary="No."), 1),
        (("node", "n"), NodeExplanation(node="n", known=True, summary="Here."), 0),
    ],
)
def test_what_is_not_found_ends_with_1(
    monkeypatch: Any, capsys: Any, asked: Any, answer: Any, code: int
) -> None:
    monkeypatch.setattr(
        SchedulerAccess, "get", lambda *_, **query: msgspec.json.encode(to_document(answer))
    )
    with pytest.raises(SystemExit) as ended:
        main(["explain", *asked])
    assert ended.value.code == code
    assert capsys.readouterr().out


def test_nothing_is_wrapped_in_a_pipe(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "words " * 100
    answer = PodExplanation(pod="n/p", state="waiting", uid="u", summary=long)
    monkeypatch.setattr(
        SchedulerAccess, "get", lambda *_, **query: msgspec.json.encode(to_document(answer))
    )
    with pytest.raises(SystemExit):
        main(["why", "n/p"])
    assert f"Pod n/p: {long.rstrip()}" in capsys.readouterr().out


def test_instants_are_rfc_3339_in_json_and_seconds_again_when_read() -> None:
    explained = structs.replace(WAITING, waiting=structs.replace(WAITING.waiting, since=1.5))
    body = msgspec.json.encode(to_document(explained))
    assert json.loads(body)["waiting"]["since"] == "1970-01-01T00:00:01.500Z"
    assert from_json(body, PodExplanation) == explained
