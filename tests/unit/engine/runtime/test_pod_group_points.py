"""PlacementGenerate and PlacementScore: the effect of results, weights, bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.base.errors import PluginError
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.runtime.pod_group_points import (
    NO_PLACEMENTS,
    run_placement_feasible,
    run_placement_generate,
    run_placement_score,
    run_pod_group_post_filter,
)
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import Plugin
from proreus.framework.pod_group import (
    OrderedPlacements,
    Placement,
    PlacementProgress,
    PodGroupAssignments,
    PodGroupInfo,
    PodGroupPostFilterResult,
)
from proreus.framework.pod_group_plugin import (
    PlacementFeasiblePlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
)
from proreus.framework.status import Code, Status
from proreus.plugins.priority_sort import PrioritySort
from proreus.testing import FakeHandle, make_node

GROUP = PodGroupInfo("default", "g", ())
TWO = [PodGroupAssignments(Placement(name, {name}), ()) for name in "ab"]


class Generator(PlacementGeneratePlugin):
    def generate_placements(self, state: Any, group: Any, nodes: Any) -> Any:
        if isinstance(self.args, Exception):
            raise self.args
        return self.args


class Scorer(PlacementScorePlugin):
    def score_placement(self, state: Any, group: Any, assignments: PodGroupAssignments) -> Any:
        return self.args[assignments.placement.name]


class Doubling(Scorer):
    def normalize_placements(self, state: Any, group: Any, scores: Any) -> Any:
        return scores * 2


def profile(*plugins: Plugin, **weights: int) -> Profile:
    handle = FakeHandle([make_node("a")])
    generators = tuple(p for p in plugins if isinstance(p, PlacementGeneratePlugin))
    scorers = tuple(p for p in plugins if isinstance(p, PlacementScorePlugin))
    points = {
        "queueSort": (PrioritySort(None, handle),),
        "placementGenerate": generators,
        "placementScore": scorers,
        "placementFeasible": tuple(p for p in plugins if isinstance(p, GroupPlugin)),
        "podGroupPostFilter": tuple(p for p in plugins if isinstance(p, GroupPlugin)),
    }
    metrics = SchedulerMetrics()
    return Profile("p", points, {}, table=handle.nodes, metrics=metrics, placement_weights=weights)


def generate(result: Any) -> Any:
    return run_placement_generate(profile(Generator(result, FakeHandle())), CycleState(), GROUP)


def test_without_a_plugin_there_is_one_placement_of_all_nodes() -> None:
    [placement] = run_placement_generate(profile(), CycleState(), GROUP)  # type: ignore[misc]
    assert placement.node_names is None


def test_placements_and_rejections_are_handed_on() -> None:
    placements = [Placement("x", {"a"})]
    assert generate(placements) == placements
    assert generate([]) == NO_PLACEMENTS.with_plugin("Generator")
    assert generate([]) is not generate([])  # reasons are appended to that of one group
    status = generate(Status.unschedulable("not now"))
    assert (status.code, status.plugin) == (Code.UNSCHEDULABLE, "Generator")


def merged(*results: Any) -> Any:
    generators = (Generator(result, FakeHandle()) for result in results)
    return run_placement_generate(profile(*generators), CycleState(), GROUP)


ALL_NODES = [Placement("all-nodes", None)]
RACKS = [Placement("r1", {"a", "b"}), Placement("r2", {"c"})]
ZONES = [Placement("z1", {"a", "c"}), Placement("z2", {"b"}, "no room")]


def test_placements_of_several_plugins_are_intersected() -> None:
    assert merged(ALL_NODES, RACKS, ALL_NODES) == RACKS
    shared = merged(RACKS, ZONES)
    assert [(one.name, set(one.node_names), one.lacking) for one in shared] == [
        ("r1/z1", {"a"}, ""),
        ("r1/z2", {"b"}, "no room"),
        ("r2/z1", {"c"}, ""),
    ]
    assert not isinstance(shared, OrderedPlacements)
    assert isinstance(merged(RACKS, OrderedPlacements(ZONES)), OrderedPlacements)


def test_placements_that_share_no_node_reject_the_group() -> None:
    status = merged([Placement("r", {"a"})], [Placement("z", {"b"})])
    assert status == Status.unschedulable("no feasible merged placements found")
    assert merged(RACKS, [], ZONES) == NO_PLACEMENTS.with_plugin("Generator")


@pytest.mark.parametrize("results", [(ZONES[1:],), ([Placement("r", {"b"})], ZONES)])
def test_placements_that_all_lack_something_reject_the_group(results: Any) -> None:
    status = merged(*results)
    assert status.code == Code.UNSCHEDULABLE
    assert status.reasons[0] == "no feasible merged placements found"
    assert status.reasons[1].endswith(": no room")


@pytest.mark.parametrize("result", [Status.error("broken"), ValueError("broken")])
def test_errors_are_errors(result: Any) -> None:
    with pytest.raises(PluginError, match=r"^broken$"):
        generate(result)


@pytest.mark.parametrize("result", [None, True, "a", ["a"], iter([Placement("x", {"a"})])])
def test_what_is_no_placement_is_an_error(result: Any) -> None:
    with pytest.raises(PluginError, match="must return Placements or a Status, not"):
        generate(result)


class GroupPlugin(PlacementFeasiblePlugin, PodGroupPostFilterPlugin):
    def placement_feasible(self, state: Any, group: Any, progress: Any) -> Any:
        return True

    async def pod_group_post_filter(self, state: Any, group: Any, schedule: Any) -> Any:
        return True


async def test_what_is_no_status_is_an_error() -> None:
    handle = FakeHandle()
    status = run_placement_feasible(
        profile(GroupPlugin(None, handle)), CycleState(), GROUP, PlacementProgress(1)
    )
    assert status is not None
    assert "must return a Status or None, not True" in status.message
    result = await run_pod_group_post_filter(
        profile(GroupPlugin(None, handle)), CycleState(), GROUP, never_called
    )
    assert "must return a PodGroupPostFilterResult, not True" in result.status.message
    with pytest.raises(TypeError, match="status must be a Status, not None"):
        PodGroupPostFilterResult(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="nominating must have NominatingInfos, not 'n1'"):
        PodGroupPostFilterResult(Status.success(), {"ns/a": "n1"})  # type: ignore[dict-item]


async def never_called(*_: Any) -> Any:
    raise AssertionError


def score(*plugins: Plugin, **weights: int) -> list[int]:
    totals = run_placement_score(profile(*plugins, **weights), CycleState(), GROUP, TWO)
    return [int(total) for total in totals]


class Wordy(Scorer):
    def normalize_placements(self, state: Any, group: Any, scores: Any) -> Any:
        return "many"


def test_scores_are_normalised_weighted_and_added() -> None:
    handle = FakeHandle()
    plugins = Scorer({"a": 10, "b": 20}, handle), Doubling({"a": 50, "b": 1}, handle)
    assert score(*plugins, Scorer=3, Doubling=1) == [130, 62]


def test_without_plugins_all_placements_are_equal() -> None:
    assert score() == [0, 0]


@pytest.mark.parametrize(
    ("plugin", "results", "text"),
    [
        (Scorer, {"a": 101, "b": 0}, "returns an invalid score 101, it should in the range of"),
        (Doubling, {"a": 51, "b": 0}, "returns an invalid score 102, it should in the range of"),
        (Scorer, {"a": Status.error("broken"), "b": 0}, "broken"),
        (Scorer, {"a": "many", "b": 0}, "must return an integer a placement"),
        (Scorer, {"a": 0.5, "b": 0}, "must return an integer a placement"),
        (Scorer, {"a": 10**30, "b": 0}, "must return an integer a placement"),
        (Wordy, {"a": 1, "b": 0}, "Normalize must return an integer a placement, not 'many'"),
    ],
)
def test_what_is_no_score_is_an_error(plugin: Any, results: Any, text: str) -> None:
    with pytest.raises(PluginError, match=text):
        score(plugin(results, FakeHandle()), **{plugin.name: 1})


def test_numpy_scores_are_fine() -> None:
    assert score(Scorer({"a": np.int64(3), "b": 4}, FakeHandle()), Scorer=1) == [3, 4]
