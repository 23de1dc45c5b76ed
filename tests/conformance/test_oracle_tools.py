"""What stands around the oracle: cases in a version's words, recording, and the report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conformance.oracle import fuzz, record
from conformance.oracle.cases import read
from conformance.oracle.of_version import of_version
from conformance.oracle.report import report
from proreus.base.kubernetes_version import V1_37, V1_38


def test_a_case_is_asked_in_the_words_of_a_version() -> None:
    group = {"apiVersion": "?", "kind": "CompositePodGroup", "metadata": {"name": "c"}}
    case = {
        "features": ["GenericWorkload=true", "PodGroupPreemptionPolicy=true", "Nonsense=true"],
        "objects": [{"kind": "Node"}],
        "steps": [{"add": group}, {"schedule": 1}],
    }
    older, newer = of_version(case, V1_37), of_version(case, V1_38)
    assert older["steps"][0]["add"]["apiVersion"] == "scheduling.k8s.io/v1alpha3"
    assert newer["steps"][0]["add"]["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert older["features"] == case["features"]
    assert newer["features"] == ["GenericWorkload=true", "Nonsense=true"]
    assert newer["steps"][1:] == case["steps"][1:]
    assert of_version(newer, V1_38) == newer


def test_the_report_names_each_reason_once() -> None:
    found = [differing(number, f"{number} Insufficient cpu") for number in range(3)]
    found.append(differing(3, "node(s) had untolerated taint(s)", family="taint"))
    text = report(found).splitlines()
    assert text[0] == "4 cases differ:"
    assert text[1] == (
        "    3  filter #: [Unschedulable, NodeResourcesFit, [# Insufficient cpu]], not nothing"
    )
    assert text[2] == "       spread 3; case-0"
    assert "untolerated" in text[3]
    assert len(text) == 5


def differing(number: int, reason: str, family: str = "spread") -> dict:
    verdict = {"code": "Unschedulable", "plugin": "NodeResourcesFit", "reasons": [reason]}
    return {
        "case": {"id": f"case-{number}"},
        "family": family,
        "answers": [
            {"filter": {f"n{number}": verdict}, "message": "none"},
            {"filter": {}, "feasible": [f"n{number}"]},
        ],
    }


ORACLE = """#!{python}
import json, sys
for line in sys.stdin:
    case = json.loads(line)
    nodes = [one["metadata"]["name"] for one in case["objects"] if one["kind"] == "Node"]
    print(json.dumps({{"id": case["id"], "expect": {answer}}}))
"""


def oracle(folder: Path, answer: str) -> str:
    """Write a program that answers as an expression says."""
    path = folder / "oracle-1.38"
    path.write_text(ORACLE.format(python=sys.executable, answer=answer))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("answer", "kept"),
    [('{"feasible": sorted(nodes)}', 5), ('{"feasible": nodes[:1]}', 0), ('{"error": "x"}', 0)],
    ids=["alike", "by the order of nodes", "an error"],
)
def test_only_cases_that_are_answered_alike_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kept: int
) -> None:
    arguments = [oracle(tmp_path, answer), "placement", "--cases", "5", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["record", *arguments])
    record.main()
    cases = read(tmp_path / "placement.jsonl.gz")
    assert len(cases) == kept
    assert {case["kubernetesVersion"] for case in cases} <= {"1.38"}


def test_two_versions_are_compared_as_proreus_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, another = tmp_path / "one", tmp_path / "another"
    one.mkdir()
    another.mkdir()
    arguments = [
        oracle(one, '{"feasible": ["a"]}'),
        "placement",
        *("--against", oracle(another, '{"feasible": ["a", "b"]}')),
        *("--cases", "3", "--out", str(tmp_path / "found.jsonl")),
    ]
    monkeypatch.setattr(sys, "argv", ["fuzz", *arguments])
    assert fuzz.main() == 1
    assert "3  feasible: nothing, not [b]" in capsys.readouterr().out
    lines = (tmp_path / "found.jsonl").read_text().splitlines()
    assert {json.loads(line)["family"] for line in lines} == {"placement"}
