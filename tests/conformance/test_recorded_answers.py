"""Recorded answers of kube-scheduler, version by version and case by case.

Every case of every family is answered as recorded. Families that 1.37 answers as 1.36 does, word
for word (``badconfig``), are kept once.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from proreus.engine.runtime.registry import Registry
from proreus.offline.evaluate import evaluate, read_cases
from proreus.plugins import IN_TREE_PLUGINS

HERE = Path(__file__).parent
FAMILIES = sorted((HERE / "cases").glob("*/*.jsonl.gz"))

_spec = importlib.util.spec_from_file_location("compare", HERE / "compare.py")
assert _spec is not None
assert _spec.loader is not None
compare = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compare)


def family(path: Path) -> str:
    return f"{path.parent.name}-{path.name.removesuffix('.jsonl.gz')}"


@pytest.mark.parametrize("path", FAMILIES, ids=family)
def test_every_case_is_answered_as_recorded(path: Path) -> None:
    cases = list(read_cases(path))
    assert cases
    answers = {a["id"]: a["expect"] for a in evaluate(cases, Registry(IN_TREE_PLUGINS))}
    different = {
        case["id"]: found
        for case in cases
        if (
            found := compare.differences(
                case["expect"], as_json(answers[case["id"]]), observe(case)
            )
        )
    }
    assert not different, f"{len(different)} of {len(cases)}: {json.dumps(different)[:2000]}"


def test_cases_state_the_version_of_their_folder() -> None:
    for path in FAMILIES:
        case = next(read_cases(path))
        assert case.get("kubernetesVersion", "1.36.2").startswith(path.parent.name)


def test_a_wrong_answer_is_noticed() -> None:
    with gzip.open(HERE / "cases" / "1.36" / "basic.jsonl.gz", "rt") as lines:
        expect = json.loads(next(lines))["expect"]
    assert compare.differences(expect, {**expect, "feasible": ["elsewhere"]})


def observe(case: dict) -> list[str]:
    """Return what the moments of a case's script tell in addition."""
    return case.get("observe") or []


def as_json(answer: dict) -> dict:
    return json.loads(json.dumps(answer))
