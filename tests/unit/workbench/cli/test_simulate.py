"""``proreus simulate``: options, tables, documents and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proreus.process.cli import main

ZONE = "topology.kubernetes.io/zone"
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: %s, resources: [{name: cpu, weight: 1}]}}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    spec: {containers: [{name: app, resources: {requests: {cpu: "3"}}}]}
"""


def node(name: str, zone: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {ZONE: zone}},
        "status": {"allocatable": amounts},
    }


def running(number: int, node_name: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "old", "controller": True}
    requests = {"cpu": "1", "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"old-{number}",
            "namespace": "shop",
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node_name,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "app", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running"},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nodes = [node(f"n{number}", f"z{number % 2}") for number in range(4)]
    pods = [running(number, f"n{number % 2}") for number in range(4)]
    (tmp_path / "cluster.json").write_text(json.dumps({"items": [*nodes, *pods]}))
    (tmp_path / "web.yaml").write_text(WEB)
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(node("new", "z9")))
    for name in ("least", "most"):
        text = CONFIG % f"{name.capitalize()}Allocated"
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def run(folder: Path, *arguments: str) -> int:
    """Run the command; the words that are names of files in the folder become paths."""
    given = [str(folder / one) if (folder / one).is_file() else one for one in arguments]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(folder / "cluster.json"), *given])
    return int(ended.value.code or 0)


def document(folder: Path, capsys: Any, *arguments: str) -> Any:
    assert run(folder, "-o", "json", *arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_tables_say_what_is_placed_and_where(folder: Path, capsys: Any) -> None:
    assert run(folder, "--add", "web.yaml") == 0
    printed = capsys.readouterr()
    assert "2 of 2 pods placed" in printed.out
    assert "default/web-1" in printed.out
    assert "4.0 → 10.0" in printed.out  # CPUs
    assert "decisions in" in printed.err


def test_pods_without_a_node_are_listed_with_reasons(folder: Path, capsys: Any) -> None:
    assert run(folder, "--add", "web.yaml", "--replicas", "5") == 0
    out = capsys.readouterr().out
    assert "2 of 5 pods placed, 3 without a node" in out
    assert "4 nodes: Insufficient cpu (NodeResourcesFit)" in out


@pytest.mark.parametrize(("replicas", "code"), [("2", 0), ("3", 3)])
def test_the_exit_code_that_a_pipeline_asks_for(folder: Path, replicas: str, code: int) -> None:
    arguments = ("--add", "web.yaml", "--replicas", replicas, "--require-all-placed")
    assert run(folder, *arguments) == code


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents(folder: Path, capsys: Any, form: str) -> None:
    assert run(folder, "-o", form, "--drain", "n0", "--timings") == 0
    out = capsys.readouterr().out
    made = json.loads(out) if form == "json" else yaml.safe_load(out)
    assert [one["previousNode"] for one in made["result"]["placed"]] == ["n0", "n0"]
    assert made["result"]["after"]["resources"]["cpu"]["requested"] == 4000
    assert made["timings"][0]["decisions"] == 2


def test_added_nodes(folder: Path, capsys: Any) -> None:
    arguments = ("--add-nodes", "node.yaml", "x2", "--add-nodes", "node/n0", "1")
    result = document(folder, capsys, *arguments)["result"]
    assert result["addedNodes"] == ["new", "new-1", "n0-1"]
    assert result["after"]["nodes"] == 7


def test_removal_and_everything_anew(folder: Path, capsys: Any) -> None:
    arguments = ("--remove", "node/n3", "--remove", "pod/shop/old-0", "--evict-all")
    result = document(folder, capsys, *arguments)["result"]
    assert [one["pod"] for one in result["placed"]] == ["shop/old-1", "shop/old-2", "shop/old-3"]
    assert result["removed"] == ["shop/old-0"]


def test_capacity(folder: Path, capsys: Any) -> None:
    (capacity,) = document(folder, capsys, "--capacity", "web.yaml")["capacity"]
    assert (capacity["fits"], capacity["exhausted"]) == (2, True)
    assert run(folder, "--capacity", "web.yaml") == 0
    out = capsys.readouterr().out
    assert "2 more pods like default/web fit" in out
    assert "Insufficient cpu" in out


def test_capacity_stops_at_its_limit(folder: Path, capsys: Any) -> None:
    assert run(folder, "--capacity", "pod/shop/old-0", "--capacity-limit", "3") == 0
    assert "at least 3 more pods" in capsys.readouterr().out


def test_comparison(folder: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    picture = folder / "comparison.svg"
    arguments = ("--evict-all", "--compare", "least.yaml", "most.yaml")
    assert run(folder, *arguments, "--picture", str(picture), "--timings") == 0
    out = capsys.readouterr().out
    assert "least" in out
    assert "nodes without a pod" in out
    assert "decision, p99" in out
    assert picture.stat().st_size > 1000
    comparison = document(folder, capsys, *arguments)["comparison"]
    assert comparison["names"] == ["least", "most"]
    assert comparison["second"]["after"]["emptyNodes"] == 3


def test_comparing_nothing_is_an_error(folder: Path, capsys: Any) -> None:
    assert run(folder, "--compare", "least.yaml", "most.yaml") == 1
    assert "no pod waits for a node" in capsys.readouterr().err


def test_a_second_run_is_the_same_in_every_byte(folder: Path) -> None:
    """In processes of their own: the order of sets differs between them."""
    command = [sys.executable, "-m", "proreus", "simulate", str(folder / "cluster.json")]
    command += ["--evict-all", "-o", "json", "--compare"]
    command += [str(folder / "least.yaml"), str(folder / "most.yaml")]
    outputs = {
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_the_seed_decides_between_equal_nodes(folder: Path, capsys: Any) -> None:
    placements = {
        json.dumps(document(folder, capsys, "--add", "web.yaml", "--seed", str(seed))["result"])
        for seed in range(8)
    }
    assert len(placements) > 1


def test_other_versions_and_gates(folder: Path, capsys: Any) -> None:
    assert run(folder, "--emulated-version", "1.36", "--feature-gates", "GenericWorkload=true") == 0
    capsys.readouterr()
    assert run(folder, "--emulated-version", "1.2") == 1
    assert "--emulated-version" in capsys.readouterr().err
    assert run(folder, "--feature-gates", "Nonsense=true") == 1


def test_corrections_are_given_by_name(folder: Path, capsys: Any) -> None:
    assert run(folder, "--corrections", "pinned-victim,device-pool-counts") == 0
    capsys.readouterr()
    assert run(folder, "--corrections", "pined-victim") == 1
    assert '--corrections: unknown correction "pined-victim"' in capsys.readouterr().err


def test_plugins_of_ones_own_decide_too(folder: Path, capsys: Any) -> None:
    (folder / "never.py").write_text(
        "from proreus.framework import FilterPlugin, Status\n"
        "class Never(FilterPlugin):\n"
        "    def filter(self, state, pod, node):\n"
        "        return Status.unschedulable('never')\n"
    )
    plugins = ("--plugin-dir", str(folder))
    config = yaml.safe_load(CONFIG % "LeastAllocated")
    config["profiles"][0]["plugins"] = {"multiPoint": {"enabled": [{"name": "Never"}]}}
    (folder / "never.yaml").write_text(yaml.safe_dump(config))
    result = document(folder, capsys, "--add", "web.yaml", *plugins, "--config", "never.yaml")
    reasons = result["result"]["unplaced"][0]["rejections"]
    assert {"plugin": "Never", "reason": "never", "nodes": 2} in reasons


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("--add", "nowhere.yaml"), 1, "cannot read nowhere.yaml"),
        (("--add-nodes", "node.yaml", "some"), 1, "'some' is not a number of nodes"),
        (("--remove", "node/n9"), 1, "there is no node n9"),
        (("--drain", "n9"), 1, "there is no node n9"),
        (("--config", "nowhere.yaml"), 1, "open nowhere.yaml: no such file"),
        (("--config", "web.yaml"), 1, "web.yaml: "),
        (("--picture", "a.svg"), 2, "--picture needs --compare"),
        (("--compare", "most.yaml", "most.yaml", "--config", "most.yaml"), 2, "does not go with"),
        (("--compare", "most.yaml", "least.yaml", "--picture", "a.gif"), 1, "must end in .svg"),
        (("--compare", "most.yaml", "least.yaml", "--capacity", "web.yaml"), 2, "not go together"),
    ],
)
def test_errors_are_one_sentence(
    folder: Path, capsys: Any, arguments: tuple[str, ...], code: int, error: str
) -> None:
    assert run(folder, *arguments) == code
    err = capsys.readouterr().err
    assert error in err
    assert "Traceback" not in err


def test_a_file_is_needed(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate"])
    assert ended.value.code == 2
    assert "name a file with a cluster" in capsys.readouterr().err


def test_unread_kinds_are_noted(folder: Path, capsys: Any) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    (folder / "cluster.json").write_text(json.dumps({"items": [node("n0", "z"), secret]}))
    assert run(folder) == 0
    assert "not read, since no scheduler does: 1 Secret" in capsys.readouterr().err


# ---- replays -----------------------------------------------------------------------------------


@pytest.fixture
def recording(folder: Path) -> Path:
    pending = running(9, "")
    del pending["spec"]["nodeName"]
    events = [
        {"t": 0, "type": "ADDED", "object": node("n0", "z0")},
        {"t": 0, "type": "ADDED", "object": node("n1", "z0")},
        {"t": 3, "type": "ADDED", "object": pending},
        {"t": 3.5, "type": "BOUND", "kind": "Pod", "key": "shop/old-9", "node": "n0"},
        {"t": 9, "type": "DELETED", "kind": "Pod", "key": "shop/old-9"},
    ]
    header = {"recording": 1, "kubernetesVersion": "1.37"}
    path = folder / "recording.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *events)))
    return path


def run_replay(recording: Path, *arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--replay", str(recording), *arguments])
    return int(ended.value.code or 0)


def test_a_replay_as_a_table_and_as_a_document(recording: Path, capsys: Any) -> None:
    assert run_replay(recording) == 0
    out = capsys.readouterr().out
    assert "recorded" in out
    assert "seconds waited, p99" in out
    assert run_replay(recording, "-o", "json", "--timings") == 0
    made = json.loads(capsys.readouterr().out)
    (found,) = made["replays"]
    assert (found["name"], found["arrivals"], found["departures"]) == ("replayed", 1, 1)
    assert found["recorded"]["most"] == 0.5
    assert made["timings"][0]["decisions"] == 1


def test_a_replay_under_two_configurations(folder: Path, recording: Path, capsys: Any) -> None:
    files = [str(folder / f"{name}.yaml") for name in ("least", "most")]
    assert run_replay(recording, "--compare", *files) == 0
    out = capsys.readouterr().out
    assert "least" in out
    assert "most" in out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--evict-all",), "has a cluster of its own"),
        (("cluster.json",), "has a cluster of its own"),
        (("--picture", "a.svg"), "does not go with --replay"),
    ],
)
def test_replay_refuses_options_that_the_recording_decides(
    recording: Path, capsys: Any, arguments: tuple[str, ...], error: str
) -> None:
    assert run_replay(recording, *arguments) == 2
    assert error in capsys.readouterr().err
