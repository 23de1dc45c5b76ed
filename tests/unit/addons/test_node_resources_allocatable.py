from __future__ import annotations

import pytest

from proreus.addons.node_resources_allocatable import NodeResourcesAllocatable
from proreus.framework import ConfigError
from proreus.testing import Harness, make_node, make_pod

NODES = [make_node("small", "4", "8Gi"), make_node("large", "8", "16Gi")]


@pytest.mark.parametrize(("mode", "scores"), [("Least", (100, 0)), ("Most", (0, 100))])
def test_nodes_are_preferred_by_size(mode: str, scores: tuple[int, int]) -> None:
    args = {"NodeResourcesAllocatable": {"mode": mode}}
    cluster = Harness([NodeResourcesAllocatable], NODES, args=args)
    outcome = cluster.schedule(make_pod("p", "1"))
    found = tuple(outcome.score(name, "NodeResourcesAllocatable") for name in ("small", "large"))
    assert found == scores


def test_nodes_of_one_size_all_get_0() -> None:
    cluster = Harness([NodeResourcesAllocatable], 2)
    outcome = cluster.schedule(make_pod("p"))
    assert [outcome.score(f"node-{n}", "NodeResourcesAllocatable") for n in (0, 1)] == [0, 0]


def test_the_mean_is_truncated_toward_zero() -> None:
    # (3 + 2 * 1) / 3 and (2 * 2) / 3: 1 and 1, although the means differ.
    nodes = [
        make_node("a", resources={"example.com/x": 3, "example.com/y": 1}),
        make_node("b", resources={"example.com/y": 2}),
    ]
    resources = [{"name": "example.com/x", "weight": 1}, {"name": "example.com/y", "weight": 2}]
    args = {"NodeResourcesAllocatable": {"resources": resources}}
    outcome = Harness([NodeResourcesAllocatable], nodes, args=args).schedule(make_pod("p"))
    assert [outcome.score(name, "NodeResourcesAllocatable") for name in "ab"] == [0, 0]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"mode": "Lowest"}, "Input should be 'Least' or 'Most'"),
        (
            {"resources": [{"name": "cpu", "weight": -1}]},
            r"\[0\].weight: Invalid value: -1: must be >= 1",
        ),
    ],
)
def test_invalid_arguments_are_refused(args: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Harness([NodeResourcesAllocatable], NODES, args={"NodeResourcesAllocatable": args})
