"""PreScore, Score, NormalizeScore, weights: sums and errors, cached or not."""

from __future__ import annotations

import numpy as np
import pytest

from proreus.base.errors import PluginError
from proreus.engine.runtime.prioritize_nodes import prioritize_nodes, run_pre_score
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin, PreScorePlugin, ScorePlugin
from proreus.framework.status import Status

SHARED = {"row_local": True, "sign": ()}


class Scoring:
    """A bench with two nodes, and what its score plugins make of them."""

    def __init__(self, kit, *plugins, nodes: int = 2, weights=None) -> None:
        self.kit = kit
        self.harness = kit.SearchHarness(*plugins, weights=weights)
        self.harness.add_nodes(*(f"n{i:03}" for i in range(nodes)))
        self.state = CycleState()

    def totals(self, names: frozenset[str] | None = None) -> list[int]:
        harness, pod = self.harness, self.kit.make_pod("p")
        found = harness.search.find(harness.profile, self.state, pod, names)
        run_pre_score(harness.profile, self.state, pod, found)
        return prioritize_nodes(harness.profile, self.state, pod, found).scores.tolist()


def test_without_score_plugins_all_nodes_are_equal(kit) -> None:
    totals = Scoring(kit).totals()
    assert totals[0] == totals[1] >= 0


@pytest.mark.parametrize("extra", [{}, SHARED])
def test_totals_are_weighted_sums(kit, extra) -> None:
    by_row = kit.plugin(
        "ByRow", ScorePlugin, score=lambda self, state, pod, node: 10 * node.row, **extra
    )
    flat = kit.plugin("Flat", ScorePlugin, score_all=7, **extra)
    scoring = Scoring(kit, by_row, flat, weights={"ByRow": 3, "Flat": 2})
    assert scoring.totals() == [14, 44]


@pytest.mark.parametrize("extra", [{}, SHARED])
def test_only_nodes_that_passed_are_normalised_and_ranked(kit, extra) -> None:
    seen = []

    def normalize(self, state, pod, scores):
        seen.append(sorted(scores.tolist()))
        return 100 * scores // scores.max()

    plugin = kit.plugin(
        "A",
        ScorePlugin,
        score=lambda self, state, pod, node: 1000 + node.row,
        normalize=normalize,
        **extra,
    )
    scoring = Scoring(kit, plugin, nodes=12)
    assert scoring.totals(frozenset({"n001", "n004"})) == [
        -1, 99, -1, -1, 100, -1, -1, -1, -1, -1, -1, -1,
    ]  # fmt: skip
    assert seen == [[1001, 1004]]


def test_a_plugin_whose_pre_score_skips_does_not_score(kit) -> None:
    skips = kit.plugin("A", PreScorePlugin, ScorePlugin, pre_score=Status.skip(), score=50)
    scores = kit.plugin("B", PreScorePlugin, ScorePlugin, pre_score=None, score=1)
    scoring = Scoring(kit, skips, scores)
    assert scoring.totals() == [1, 1]
    assert scoring.state.skip_score == {"A"}
    counted = dict(scoring.harness.metrics.plugin_evaluation_total.values())
    assert counted["A", "PreScore", "p"] == 0
    assert counted["B", "PreScore", "p"] == 1


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Status.error("boom"), "boom"),
        (ValueError("boom"), "boom"),
        (Status.unschedulable("x"), "PreScore does not allow the status Unschedulable: x"),
        (Status.unresolvable(), "PreScore does not allow the status UnschedulableAndUnresolvable"),
        (Status.wait(1), "PreScore does not allow the status Wait"),
        (3, "PreScore must return a Status or None, not 3"),
    ],
)
def test_what_pre_score_must_not_return(kit, result, text) -> None:
    with pytest.raises(PluginError) as caught:
        Scoring(kit, kit.plugin("A", PreScorePlugin, pre_score=result)).totals()
    assert str(caught.value) == f'running PreScore plugin "A": {text}'


@pytest.mark.parametrize("extra", [{}, SHARED])
@pytest.mark.parametrize("nodes", [2, 20])
@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ValueError("boom"), "boom"),
        (KeyError("zone"), "KeyError: 'zone'"),
        (None, "Score must return an integer a node, not"),
        (0.5, "Score must return an integer a node, not"),
        (True, "Score must return an integer a node, not"),
        ("high", "Score must return an integer a node, not"),
        (Status.error("boom"), "Score must return an integer a node, not"),
    ],
)
def test_what_score_must_not_return(kit, result, text, nodes, extra) -> None:
    with pytest.raises(PluginError) as caught:
        Scoring(kit, kit.plugin("A", ScorePlugin, score=result, **extra), nodes=nodes).totals()
    message = str(caught.value)
    assert message.startswith(f'running Score plugins: plugin "A" failed with: {text}')


@pytest.mark.parametrize("extra", [{}, SHARED])
def test_a_column_of_the_wrong_length_is_an_error(kit, extra) -> None:
    plugin = kit.plugin("A", ScorePlugin, score_all=np.zeros(3, dtype=np.int64), **extra)
    with pytest.raises(PluginError, match=r"Score must return 2 scores"):
        Scoring(kit, plugin).totals()


@pytest.mark.parametrize("extra", [{}, SHARED])
@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ValueError("boom"), "boom"),
        (None, "ScoreExtensionNormalize must return an integer a node, not None"),
    ],
)
def test_normalize_errors(kit, result, text, extra) -> None:
    plugin = kit.plugin("A", ScorePlugin, score=5, normalize=result, **extra)
    with pytest.raises(PluginError) as caught:
        Scoring(kit, plugin).totals()
    assert str(caught.value) == (
        f'running Normalize on Score plugins: plugin "A" failed with: {text}'
    )


@pytest.mark.parametrize("extra", [{}, SHARED])
@pytest.mark.parametrize("kind", ["constant", "row", "normalized"])
@pytest.mark.parametrize("score", [-1, 101])
def test_a_score_out_of_range_is_an_error(kit, score, kind, extra) -> None:
    results = {
        "constant": {"score_all": score},
        "row": {"score": lambda self, state, pod, node: score if node.row else 0},
        "normalized": {"score": 1, "normalize": lambda self, s, p, scores: scores * 0 + score},
    }[kind]
    with pytest.raises(PluginError) as caught:
        Scoring(kit, kit.plugin("A", ScorePlugin, **results, **extra)).totals()
    assert str(caught.value) == (
        f'applying score defaultWeights on Score plugins: plugin "A" returns an invalid score '
        f"{score}, it should in the range of [0, 100] after normalizing"
    )


@pytest.mark.parametrize("reject_all", [False, True])
@pytest.mark.parametrize("normalizes", [False, True])
def test_a_score_out_of_range_is_none_where_another_plugin_rejected_the_node(
    kit, reject_all, normalizes
) -> None:
    """Per node, or over columns: in both ways a plugin may share nothing."""

    def run_filter(self, state, pod, node):
        return Status.unschedulable("no") if node.row in away else None

    def run_filter_all(self, state, pod, nodes, verdicts):
        verdicts.reject(np.isin(np.arange(len(nodes)), list(away)), "no")

    def score_all(self, state, pod, nodes):
        return np.array([200 if node.row == 1 else node.row for node in nodes], dtype=np.int64)

    form = {"filter_all": run_filter_all} if reject_all else {"filter": run_filter}
    away = {1}
    more = {"normalize": lambda self, s, p, scores: scores + 1} if normalizes else {}
    beyond = kit.plugin("A", ScorePlugin, score_all=score_all, **SHARED, **more)
    scoring = Scoring(kit, kit.plugin("B", FilterPlugin, **form), beyond, nodes=12)
    ranked = [row + normalizes for row in range(12)]
    assert scoring.totals() == [ranked[0], -1, *ranked[2:]]
    assert scoring.totals() == [ranked[0], -1, *ranked[2:]]
    away.clear()
    for _ in range(2):
        with pytest.raises(PluginError, match=f"invalid score {200 + normalizes}"):
            scoring.totals()


def test_a_changed_row_is_checked_too(kit) -> None:
    by_pods = kit.plugin(
        "A", ScorePlugin, score=lambda self, s, p, node: 101 * len(node.pods), **SHARED
    )
    scoring = Scoring(kit, by_pods)
    assert scoring.totals() == [0, 0]
    scoring.harness.cache.assume(kit.make_pod("x"), "n001")
    with pytest.raises(PluginError, match="invalid score 101"):
        scoring.totals()
    with pytest.raises(PluginError, match="invalid score 101"):
        scoring.totals()


def test_normalisation_that_failed_is_tried_again(kit) -> None:
    broken = [False]

    def normalize(self, state, pod, scores):
        if broken[0]:
            raise ValueError("boom")
        return 100 * scores // max(1, scores.max())

    plugin = kit.plugin(
        "A", ScorePlugin, score=lambda self, s, p, n: len(n.pods), normalize=normalize, **SHARED
    )
    scoring = Scoring(kit, plugin)
    assert scoring.totals() == [0, 0]
    scoring.harness.cache.assume(kit.make_pod("x"), "n001")
    broken[0] = True
    for _ in range(2):
        with pytest.raises(PluginError, match="boom"):
            scoring.totals()
    broken[0] = False
    assert scoring.totals() == [0, 100]


def test_a_constant_that_becomes_a_column_and_back(kit) -> None:
    def score_all(self, state, pod, nodes):
        counts = [len(node.pods) for node in nodes]
        return counts[0] if len(set(counts)) == 1 else np.array(counts, dtype=np.int64)

    plugin = kit.plugin("A", ScorePlugin, score_all=score_all, **SHARED)
    scoring = Scoring(kit, plugin)
    cache = scoring.harness.cache
    assert scoring.totals() == [0, 0]
    cache.assume(kit.make_pod("x"), "n001")
    assert scoring.totals() == [0, 1]
    cache.assume(kit.make_pod("y"), "n000")
    assert scoring.totals() == [1, 1]
