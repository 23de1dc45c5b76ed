"""What kube-scheduler 1.36 accepted and refused (recorded), word for word."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.expansion import expand_all

CASES = Path(__file__).parents[2] / "conformance" / "cases" / "1.36"


def cases(family: str) -> list[dict]:
    with gzip.open(CASES / f"{family}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("family", ["badconfig", "config"])
def test_accepts_and_refuses_what_kube_scheduler_does_in_its_words(family, catalog):
    count = 0
    for case in cases(family):
        config = case["config"]
        if config is None:
            continue
        gates = FeatureGates.from_list(case.get("features") or ())
        refusal = None
        try:
            expand_all(load(config, catalog, gates), catalog, gates)
        except ConfigError as error:
            # the recorder built the profile itself, so its texts are without this introduction
            refusal = str(error).partition("creating profile for scheduler name")[2] or str(error)
            name = (config.get("profiles") or [{}])[0].get("schedulerName", "default-scheduler")
            refusal = refusal.removeprefix(f" {name}: ")
        assert refusal == case["expect"].get("configError"), case["id"]
        count += 1
    assert count > 150
