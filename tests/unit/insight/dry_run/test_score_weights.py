"""Which nodes scored best, and what other weights would change."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.insight.dry_run.objects import InvalidDryRun

from .conftest import World, node, pod

PREFERS_SSD = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "preference": {
                    "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
                },
            }
        ]
    }
}


def prefers_ssd(name: str = "p") -> Any:
    return pod(name, cpu="1", affinity=PREFERS_SSD)


@pytest.fixture
def filled(world: World) -> World:
    """Return a cluster whose node with the label is nearly full."""
    world.add(node("fast", cpu="4", disk="ssd"), node("empty", cpu="4"))
    world.schedule(pod("filler", cpu="3", nodeSelector={"disk": "ssd"}))
    return world


def test_a_weight_decides(filled: World) -> None:
    before = filled.ask(prefers_ssd(), bestNodes=5).pods[0]
    assert before.node == "fast"
    weights = [{"plugin": "NodeAffinity", "weight": 0}]
    changed = filled.ask(prefers_ssd(), bestNodes=5, scoreWeights=weights).pods[0]
    assert changed.node == "empty"
    scores = [{one.node: one.score for one in answer.best_nodes} for answer in (before, changed)]
    # NodeAffinity has weight 2, and gives 100 to the node that is preferred.
    assert scores[0]["fast"] - scores[1]["fast"] == 200
    assert scores[0]["empty"] == scores[1]["empty"]
    assert [one.node for one in changed.best_nodes] == ["empty", "fast"]


def test_the_next_dry_run_and_the_scheduler_have_the_configured_weights(filled: World) -> None:
    configured = dict(filled.scheduler.profiles["default-scheduler"].weights)
    weights = [{"plugin": "NodeAffinity", "weight": 0}, {"plugin": "ImageLocality", "weight": 9}]
    for _ in range(2):
        assert filled.ask(prefers_ssd(), scoreWeights=weights).pods[0].node == "empty"
        assert filled.ask(prefers_ssd()).pods[0].node == "fast"
    assert filled.scheduler.profiles["default-scheduler"].weights == configured
    filled.schedule(prefers_ssd("real"))
    assert filled.scheduler.cache.table[filled.scheduler.cache.table.rows["fast"]].pods.keys() == {
        "filler",
        "real",
    }


def test_only_as_many_of_the_best_as_asked_for(filled: World) -> None:
    [best] = filled.ask(prefers_ssd(), bestNodes=1).pods[0].best_nodes
    assert best.node == "fast"
    assert filled.ask(prefers_ssd()).pods[0].best_nodes == ()
    alone = pod("p", nodeSelector={"disk": "ssd"})
    assert filled.ask(alone, bestNodes=3).pods[0].best_nodes == ()
    answer = filled.ask(
        alone, prefers_ssd(), pod("large", cpu="9"), bestNodes=3, placement="Independent"
    )
    assert [len(one.best_nodes) for one in answer.pods] == [0, 2, 0]


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([{"plugin": "NodeName", "weight": 1}], r"\[0\]\.plugin: NodeName scores no nodes in the "),
        (
            [
                {"plugin": "NodeAffinity", "weight": 7},
                {"plugin": "NodeAffinity", "weight": 1, "schedulerName": "other"},
            ],
            r"\[1\]\.schedulerName: no profile is named other",
        ),
        ([{"plugin": "NodeAffinity", "weight": 1}] * 2, r"\[1\]: each plugin may be there once"),
    ],
)
def test_weights_that_cannot_be(filled: World, weights: Any, text: str) -> None:
    with pytest.raises(InvalidDryRun, match=r"spec\.scoreWeights" + text):
        filled.ask(prefers_ssd(), scoreWeights=weights)
    assert filled.ask(prefers_ssd()).pods[0].node == "fast"


def test_more_names_than_an_answer_may_have(world: World) -> None:
    with pytest.raises(InvalidDryRun, match=r"spec\.bestNodes: 50100 names in all are more than"):
        world.ask({"pod": pod("p"), "count": 501}, bestNodes=100)
