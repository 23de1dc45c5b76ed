"""Groups that are tried in placements: which is chosen, and what is said when none fits."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.plugin import MAX_SCORE
from proreus.framework.pod_group import Placement
from proreus.framework.pod_group_plugin import PlacementGeneratePlugin, PlacementScorePlugin
from proreus.framework.status import Status

PLUGINS = ("TopologyPlacementGenerator",)


class Generator(PlacementGeneratePlugin):
    """Generates, or raises, what a test says."""

    answer: Any = None

    def generate_placements(self, state: Any, group: Any, nodes: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Scorer(PlacementScorePlugin):
    """Scores a placement by its name, or raises what a test says."""

    answer: Any = None

    def score_placement(self, state: Any, group: Any, assignments: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer[assignments.placement.name]


@pytest.fixture
def zones(kit):
    """A cluster with two zones of two cpus each, in two nodes each."""
    cluster = kit.Cluster(kit.TOPOLOGY)
    cluster.nodes(zone="x", a="1", b="1")
    cluster.nodes(zone="y", c="1", d="1")
    return cluster


async def test_all_pods_go_to_one_zone(kit, zones) -> None:
    zones.pods("there", group="", node_name="a")
    zones.group(min_count=2, **kit.IN_ONE_ZONE)
    zones.pods("p", "q")

    await zones.cycle()
    placed = zones.placed()
    assert sorted((placed["p"], placed["q"])) == ["c", "d"]
    metrics = zones.metrics
    assert metrics.generated_placements_total.labels(kit.PROFILE, "podgroup").value == 2
    evaluated = metrics.placement_evaluations_total
    assert evaluated.labels("feasible", kit.PROFILE, "podgroup").value == 1
    assert evaluated.labels("infeasible", kit.PROFILE, "podgroup").value == 1
    family = metrics.placement_evaluation_duration_seconds
    assert zones.observed(family, "feasible", kit.PROFILE, "podgroup") == 1
    # Calls for the group as a whole are always timed, those for a placement never.
    family = metrics.plugin_execution_duration_seconds
    generator, feasible = "TopologyPlacementGenerator", "GangScheduling"
    assert zones.observed(family, generator, "PlacementGenerate", "Success") == 1
    assert zones.observed(family, feasible, "PlacementFeasible", "Success") == 0


async def test_the_placement_of_more_pods_is_preferred(kit) -> None:
    cluster = kit.Cluster(kit.TOPOLOGY)
    cluster.nodes(zone="x", a="1", b="1")
    cluster.nodes(zone="y", c="1", d="1", e="1")
    cluster.group(min_count=1, **kit.IN_ONE_ZONE)
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert sorted(cluster.placed().values()) == ["c", "d", "e"]


async def test_where_no_placement_fits_the_first_one_says_why(kit, zones) -> None:
    zones.group(min_count=3, **kit.IN_ONE_ZONE)
    zones.pods("p", "q", "r")
    before = zones.columns()

    await zones.cycle()
    assert zones.columns() == before
    first = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    text = f"0/2 placements are available, first placement status: {first}"
    assert zones.condition().message.startswith(f"pod group is unschedulable, {text}")
    assert zones.notes()["p"] == f"pod group is unschedulable, {zones.condition().message}"
    # Only the nodes of the first placement are in the message of a pod.
    assert zones.notes()["r"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert zones.attempts() == {"unschedulable": 1}


async def test_plugins_that_reject_nodes_elsewhere_have_no_part(kit) -> None:
    cluster = kit.Cluster(kit.TOPOLOGY)
    cluster.nodes(zone="x", a="1")
    cluster.nodes(zone="y", b="4")
    cluster.api.merge("Node", "b", {"spec": {"unschedulable": True}})
    cluster.group(min_count=2, **kit.IN_ONE_ZONE)
    cluster.pods("p", "q")

    queued = cluster.scheduler.queue.pop()
    await cluster.schedule_popped(queued)
    [tried] = [one for one in queued.queued_pods if one.key == "default/q"]
    assert tried.unschedulable_plugins == {"NodeResourcesFit"}


async def test_pods_with_nodes_bind_the_others_to_their_zone(kit, zones) -> None:
    zones.group(min_count=1, **kit.IN_ONE_ZONE)
    zones.pods("there", node_name="c")
    zones.pods("p", "q")

    await zones.cycle()
    assert zones.placed() == {"there": "c", next(iter(zones.placed().keys() & {"p", "q"})): "d"}


async def test_without_the_label_anywhere_there_is_no_placement(kit) -> None:
    cluster = kit.Cluster(kit.TOPOLOGY)
    cluster.nodes(a="4")
    cluster.group(min_count=1, **kit.IN_ONE_ZONE)
    cluster.pods("p")

    await cluster.cycle()
    assert cluster.condition().message.startswith("no feasible placements found")
    assert cluster.condition().message.count("no feasible placements found") == 1


# ---- plugins of one's own ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ValueError("broken"), "broken"),
        (Status.error("broken"), "broken"),
        (
            [Placement("x", {"a", "gone"})],
            "failed to assume pod group placement: node gone in placement is not present in "
            "snapshot",
        ),
    ],
)
async def test_a_generator_that_fails_fails_the_group(kit, monkeypatch, answer, text) -> None:
    cluster = kit.Cluster(kit.TOPOLOGY, plugins=(Generator,), without=PLUGINS)
    monkeypatch.setattr(Generator, "answer", answer)
    cluster.nodes(a="4")
    cluster.group(min_count=1)
    cluster.pods("p")

    await cluster.cycle()
    condition = cluster.condition()
    assert (condition.reason, condition.message) == ("SchedulerError", text)
    assert cluster.message("p") == text
    assert cluster.attempts() == {"error": 1}


async def test_a_placement_without_nodes_has_no_nodes_available(kit, monkeypatch) -> None:
    # DynamicResources' PodGroupPostFilter fails where PreFilter has not run.
    without = (*PLUGINS, "DynamicResources")
    cluster = kit.Cluster(kit.TOPOLOGY, plugins=(Generator,), without=without)
    monkeypatch.setattr(Generator, "answer", [Placement("none", ())])
    cluster.nodes(a="4")
    cluster.group(min_count=1)
    cluster.pods("p")

    await cluster.cycle()
    assert cluster.message("p") == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            ValueError("broken"),
            'running PlacementScore plugins: plugin "Scorer" failed with: broken',
        ),
        (
            {"x": 101, "y": 0},
            'applying score defaultWeights on PlacementScore plugins: plugin "Scorer" returns an '
            "invalid score 101, it should in the range of [0, 100] after normalizing",
        ),
    ],
)
async def test_a_scorer_that_fails_fails_the_group(kit, monkeypatch, answer, text) -> None:
    cluster = kit.Cluster(kit.TOPOLOGY, plugins=(Scorer,))
    monkeypatch.setattr(Scorer, "answer", answer)
    cluster.nodes(zone="x", a="4")
    cluster.nodes(zone="y", b="4")
    cluster.group(min_count=1, **kit.IN_ONE_ZONE)
    cluster.pods("p")
    before = cluster.columns()

    await cluster.cycle()
    assert cluster.condition().message == text
    assert cluster.columns() == before


async def test_scores_decide_between_placements(kit, monkeypatch) -> None:
    for best, node in (("x", "a"), ("y", "b")):
        cluster = kit.Cluster(kit.TOPOLOGY, plugins=(Scorer,))
        scores = {"x": 0, "y": 0} | {best: MAX_SCORE}
        monkeypatch.setattr(Scorer, "answer", scores)
        cluster.nodes(zone="x", a="4")
        cluster.nodes(zone="y", b="4")
        cluster.group(min_count=2, **kit.IN_ONE_ZONE)
        cluster.pods("p", "q")
        await cluster.cycle()
        assert cluster.placed() == {"p": node, "q": node}


# ---- composite pod groups ------------------------------------------------------------------------


def parent(name: str) -> dict[str, str]:
    return {"parentCompositePodGroupName": name}


async def test_children_of_a_composite_group_see_each_other_and_share_a_zone(kit) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE)
    cluster.nodes(zone="x", a="3")
    cluster.nodes(zone="y", b="2", c="2")
    cluster.composite("root", 2, **kit.IN_ONE_ZONE)
    cluster.group("g", 2, **parent("root"))
    cluster.group("h", 2, **parent("root"))
    cluster.pods("p", "q", group="g")
    cluster.pods("r", "s", group="h")

    await cluster.cycle()
    assert sorted(cluster.placed().values()) == ["b", "b", "c", "c"]
    assert cluster.condition("g").status == cluster.condition("h").status == "True"
    assert cluster.attempts() == {"scheduled": 1}


async def test_a_basic_composite_group_takes_the_children_that_fit(kit) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE)
    cluster.nodes(a="2")
    cluster.composite("root")
    cluster.group("g", 3, **parent("root"))
    cluster.group("h", 2, **parent("root"))
    cluster.pods("p", "q", "r", group="g")
    cluster.pods("s", "t", group="h")

    await cluster.cycle()
    assert cluster.placed() == {"s": "a", "t": "a"}
    assert cluster.condition("g").status == "False"
    assert "minCount (3) cannot be satisfied: 2 scheduled" in cluster.condition("g").message
    assert cluster.condition("h").status == "True"


async def test_a_composite_group_that_fails_undoes_the_children_that_fitted(kit) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE)
    cluster.nodes(a="3")
    cluster.composite("root", 2)
    cluster.group("g", 2, **parent("root"))
    cluster.group("h", 2, **parent("root"))
    cluster.pods("p", "q", group="g")
    cluster.pods("r", "s", group="h")
    before = cluster.columns()

    await cluster.cycle()
    assert cluster.columns() == before
    assert not cluster.placed()
    # The child that fitted fails with what its parent failed with.
    first = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    assert f"first placement status: {first}" in cluster.condition("g").message
    assert cluster.condition("g").reason == cluster.condition("h").reason == "Unschedulable"
    assert cluster.attempts() == {"unschedulable": 1}


async def test_reasons_are_appended_once_to_siblings_that_failed_alike(kit) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE)
    cluster.nodes(a="3")
    cluster.composite("root", 1)
    cluster.group("g", 1, **parent("root"), **kit.IN_ONE_ZONE)
    cluster.group("h", 1, **parent("root"), **kit.IN_ONE_ZONE)
    cluster.pods("p", group="g")
    cluster.pods("q", group="h")

    await cluster.cycle()
    for name in "gh":
        message = cluster.condition(name).message
        assert message.startswith("no feasible placements found, ")
        assert message.count("pod group preemption") == 1, message
