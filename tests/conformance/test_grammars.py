"""The oracle's grammars: cases are determined by their names, and proreus can answer them."""

from __future__ import annotations

import json

import pytest

from conformance.oracle.answers import own
from conformance.oracle.grammar import GRAMMARS, draw_case

ANSWERED = {"trace", "preFilter", "configError"}


@pytest.mark.parametrize("family", GRAMMARS)
def test_cases_are_the_same_again_and_answered(family: str) -> None:
    cases = [draw_case(family, f"{family}-{number}") for number in range(3)]
    assert json.dumps(cases) == json.dumps([draw_case(family, case["id"]) for case in cases])
    assert cases[0] != {**cases[1], "id": cases[0]["id"]}
    for case in cases:
        assert ANSWERED & own(case).keys(), case["id"]
