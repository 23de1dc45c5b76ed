"""The plan for clusters where pods count as one each, and nodes have room for some."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("scale_up", Path(__file__).parent / "scale_up.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["scale_up"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cluster(free: Mapping[str, int], asked: list[Any]) -> Any:
    """Return an answerer: ``free`` is how many pods of each kind fit; "node" says how many more."""

    def ask(spec: Any) -> Any:
        asked.append(spec)
        room = dict(free)
        for template in spec["nodeTemplates"]:
            for kind, number in template["node"].items():
                room[kind] = room.get(kind, 0) + number * template["count"]
        pods = []
        for item in spec["pods"]:
            for _ in range(item["count"]):
                fits = room.get(item["pod"], 0) > 0
                room[item["pod"]] = room.get(item["pod"], 0) - 1
                pods.append({"pod": item["pod"], "fits": fits, "message": "no room"})
        return {"pods": pods}

    return ask


def test_the_fewest_nodes_of_each_group(example: ModuleType) -> None:
    asked: list[Any] = []
    ask = cluster({"a": 1}, asked)
    pods = [{"pod": "a", "count": 10}, {"pod": "b", "count": 2}]
    groups = [
        {"name": "small", "max": 50, "node": {"a": 1}},
        {"name": "large", "max": 50, "node": {"a": 4}},
        {"name": "special", "max": 5, "node": {"b": 1}},
    ]
    found = example.plan(ask, pods, groups)
    assert found.fitting_now == 1
    assert [(one.group, one.nodes, one.pods) for one in found.steps] == [
        ("large", 3, 9),
        ("special", 2, 2),
    ]
    assert found.left_over == []
    assert len(asked) < 40


def test_pods_that_no_group_helps(example: ModuleType) -> None:
    groups = [{"name": "small", "max": 3, "node": {"a": 1}}]
    found = example.plan(cluster({}, []), [{"pod": "a", "count": 4}], groups)
    assert [(one.group, one.nodes) for one in found.steps] == [("small", 3)]
    assert found.left_over == ["a: no room"]


def test_nothing_is_needed(example: ModuleType) -> None:
    asked: list[Any] = []
    found = example.plan(cluster({"a": 4}, asked), [{"pod": "a", "count": 4}], [])
    assert (found.fitting_now, found.steps, len(asked)) == (4, [], 1)


def test_a_profile_that_is_not_there_is_an_error_of_the_input(example: ModuleType) -> None:
    def ask(spec: Any) -> Any:
        text = "no profile is named web; there are spread-out"
        return {"pods": [{"pod": "a", "fits": False, "reason": "OtherScheduler", "message": text}]}

    with pytest.raises(ValueError, match=r"a: spec\.schedulerName: no profile is named web"):
        example.plan(ask, [{"pod": "a", "count": 1}], [])
