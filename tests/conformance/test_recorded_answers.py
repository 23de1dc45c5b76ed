"""Recorded answers of kube-scheduler 1.36, case by case.

Every case of every family is answered as recorded.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from proreus.offline.evaluate import evaluate, read_cases
from proreus.plugins import IN_TREE_PLUGINS
from proreus.runtime.registry import Registry

HERE = Path(__file__).parent
EQUAL = sorted(path.name.removesuffix(".jsonl.gz") for path in (HERE / "cases").iterdir())

_spec = importlib.util.spec_from_file_location("compare", HERE / "compare.py")
assert _spec is not None
assert _spec.loader is not None
compare = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compare)


@pytest.mark.parametrize("family", EQUAL)
def test_every_case_is_answered_as_recorded(family: str) -> None:
    path = HERE / "cases" / f"{family}.jsonl.gz"
    cases = list(read_cases(path))
    assert cases
    answers = {a["id"]: a["expect"] for a in evaluate(cases, Registry(IN_TREE_PLUGINS))}
    different = {
        case["id"]: found
        for case in cases
        if (found := compare.differences(case["expect"], as_json(answers[case["id"]])))
    }
    assert not different, f"{len(different)} of {len(cases)}: {json.dumps(different)[:2000]}"


def test_a_wrong_answer_is_noticed() -> None:
    with gzip.open(HERE / "cases" / "basic.jsonl.gz", "rt") as lines:
        expect = json.loads(next(lines))["expect"]
    assert compare.differences(expect, {**expect, "feasible": ["elsewhere"]})


def as_json(answer: dict) -> dict:
    return json.loads(json.dumps(answer))
