"""Cases and results: single decisions, scripts, invalid configurations, unreadable files."""

from __future__ import annotations

import gzip
import json

import pytest

from proreus.base.errors import ProreusError
from proreus.engine.runtime.registry import Registry
from proreus.offline.evaluate import Fallbacks, evaluate, read_cases
from proreus.plugins import IN_TREE_PLUGINS


def answer(case: dict, configuration: object = None) -> dict:
    fallbacks = Fallbacks(configuration)
    [found] = evaluate([{"id": "x", **case}], Registry(IN_TREE_PLUGINS), fallbacks)
    assert found["id"] == "x"
    return json.loads(json.dumps(found["expect"]))


def test_a_decision_in_full(kit) -> None:
    result = answer({"objects": [kit.node("n0"), kit.node("n1", "500m")], "pod": kit.pod("p")})
    assert result["preFilter"] == {"code": "Success"}
    assert result["feasible"] == ["n0"]
    assert result["filter"]["n1"] == {
        "code": "UnschedulableAndUnresolvable",
        "plugin": "NodeResourcesFit",
        "reasons": ["Insufficient cpu"],
    }
    assert set(result["total"]) == {"n0"}
    assert sum(result["scores"]["n0"].values()) == result["total"]["n0"]


def test_a_rejection_in_full(kit) -> None:
    result = answer({"objects": [kit.node("n0", "500m")], "pod": kit.pod("p")})
    assert result["feasible"] == []
    assert result["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_a_script(kit) -> None:
    result = answer(
        {
            "objects": [kit.node("n0", "1")],
            "steps": [
                {"add": kit.pod("a")},
                {"schedule": 3},
                {"add": kit.pod("b")},
                {"schedule": 1},
                {"delete": {"kind": "Pod", "namespace": "default", "name": "a"}},
                {"schedule": 1},
                {"advance": 5},
            ],
        }
    )
    trace = result["trace"]
    assert trace[0] == {"active": ["a"]}
    assert trace[1]["popped"] == [["a", "n0"]]
    assert trace[3]["popped"] == [["b", ""]]
    assert trace[3]["unschedulable"] == ["b"]
    assert trace[5]["popped"] == [["b", "n0"]]
    assert len(trace) == 7


def test_a_step_that_is_none(kit) -> None:
    found = answer({"objects": [], "steps": [{"jump": 1}]})
    assert found == {
        "error": "steps[0]: none of add, patch, delete, advance, schedule and extenders"
    }


def with_port(pod: dict, port: object) -> dict:
    container = {"name": "c", "ports": [{"containerPort": port}]}
    return {**pod, "spec": {**pod["spec"], "containers": [container]}}


PORT = "spec.containers[0].ports[0].containerPort: Expected `int`, got `str`"


def test_an_object_that_cannot_be_read_is_the_error_of_its_case(kit) -> None:
    nodes, pod = [kit.node("n0")], kit.pod("p")
    bad = with_port(kit.pod("x"), "http")
    cases = [
        {"objects": [*nodes, bad], "pod": pod},
        {"objects": nodes, "pod": with_port(pod, "http")},
        {"objects": nodes, "steps": [{"add": pod}, {"add": bad}]},
        {"objects": nodes, "steps": [{"delete": {"name": "x"}}]},
        {"objects": [*nodes, {**pod, "kind": "Pad"}], "pod": pod},
        {"objects": [kit.node("n0", "lots")], "pod": pod},
        {"objects": [*nodes, "x"], "pod": pod},
        {"objects": nodes},
        {"objects": nodes, "pod": pod},
    ]
    found = list(
        evaluate(
            [{"id": number, **case} for number, case in enumerate(cases)],
            Registry(IN_TREE_PLUGINS),
        )
    )
    assert [one["id"] for one in found] == list(range(len(cases)))
    assert [one["expect"].get("error") for one in found] == [
        f"objects[1] (Pod default/x): {PORT}",
        f"pod (Pod default/p): {PORT}",
        f"steps[1].add (Pod default/x): {PORT}",
        "steps[0].delete: kind: is not known, or missing",
        "objects[1] (Pad default/p): Pad: is not known, or missing",
        "objects[0] (Node n0): status.allocatable.cpu: quantity 'lots' is not a number with an "
        "optional suffix such as m, k, Mi or Gi",
        "objects[1]: Expected `object`, got `str`",
        "case: pod: is not known, or missing",
        None,
    ]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"objects": None}, "objects: Expected `array`, got `null`"),
        ({"features": [3]}, "features[0]: Expected `str`, got `int`"),
        ({"seen": {"q": {}}}, "seen[...]: Expected `float`, got `object`"),
        ({"observe": [None]}, "observe[0]: Expected `str`, got `null`"),
        ({"steps": [3]}, "steps[0]: Expected `object`, got `int`"),
        ({"steps": [{"advance": "1s"}]}, "steps[0].advance: Expected `float`, got `str`"),
        ({"pod": {"spec": {}}}, "pod: metadata.name: a name is required"),
    ],
)
def test_a_field_of_another_type_is_the_error_of_its_case(kit, fields, error) -> None:
    found = answer({"objects": [kit.node("n0")], "pod": kit.pod("p"), **fields})["error"]
    assert found == error


def test_a_configuration_that_is_refused_is_an_answer(kit) -> None:
    case = {"objects": [], "pod": kit.pod("p"), "config": {"kind": "Nonsense"}}
    assert list(answer(case)) == ["configError"]


def test_a_configuration_for_cases_without_one(kit) -> None:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}},
        ],
    }
    case = {"objects": [kit.node("n0", "500m")], "pod": kit.pod("p")}
    assert answer(case, config)["feasible"] == ["n0"]


# ---- files ---------------------------------------------------------------------------------------


def test_cases_are_read_plain_and_packed(tmp_path) -> None:
    text = b'{"id": "a", "objects": []}\n\n{"id": "b", "objects": []}\n'
    plain, packed = tmp_path / "cases.jsonl", tmp_path / "cases.jsonl.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    assert [c["id"] for c in read_cases(plain)] == ["a", "b"]
    assert [c["id"] for c in read_cases(packed)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.jsonl", b'{"id": "a", "objects": []}\n{"id":', "line 2: not JSON"),
        ("a.jsonl", b'{"id": "a"}', "line 1: a case has an id and objects"),
        ("a.jsonl", b"[]", "line 1: a case has an id and objects"),
        ("a.jsonl", b"[" * 100_000, "line 1: nested too deep"),
        ("a.jsonl.gz", b"plain text", "line 1: not JSON"),
        ("a.jsonl.gz", gzip.compress(b"x" * 100, mtime=0)[:20], "its end is missing"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, text) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ProreusError, match=text):
        list(read_cases(path))


def test_a_line_that_is_no_case_does_not_end_the_file(tmp_path) -> None:
    path, errors = tmp_path / "cases.jsonl", []
    path.write_text('{"id": "a", "objects": []}\n{"id":\n{"id": "b", "objects": []}\n')
    assert [case["id"] for case in read_cases(path, errors.append)] == ["a", "b"]
    assert str(errors[0]).startswith(f"{path}, line 2: not JSON")


def test_a_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(ProreusError, match=r"cannot read .*: No such file"):
        list(read_cases(tmp_path / "nothing.jsonl"))


def test_feature_gates_that_cannot_be_set_are_an_answer(kit) -> None:
    case = {"objects": [], "pod": kit.pod("p"), "features": ["DynamicResourceAllocation=false"]}
    assert "locked to true" in answer(case)["configError"]
