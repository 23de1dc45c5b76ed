"""Cached results equal those of a fresh evaluation, whatever happened in between."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.errors import PluginError
from proreus.engine.runtime.node_points import raise_filter_error, run_filter_plugins
from proreus.engine.runtime.prioritize_nodes import prioritize_nodes, run_pre_score
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin, ScorePlugin
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "place",
                "place",
                "place",
                "leave",
                "join",
                "drop",
                "cordon",
                "resize",
                "schedule",
                "schedule",
                "placement",
                "placement",
            ]
        ),
        st.integers(0, 50),
        st.sampled_from([100, 250, 600]),
    ),
    min_size=1,
    max_size=60,
)


class World:
    """A bench under random events, and the results that it should give."""

    def __init__(self, kit, first=(), last=()) -> None:
        self.kit = kit
        shared = (kit.FitsCpu, kit.Cordon, kit.Fewest, kit.Flat, kit.ByKind)
        self.harness = kit.SearchHarness(*first, *shared, *last, weights={"Fewest": 3, "Even": 2})
        self.all_from_cache = not (first or last)
        self.cache = self.harness.cache
        self.count = 0
        self.rng = random.Random(0)
        for i in range(12):
            self.cache.add_node(kit.make_node(f"n{i}"))

    def do(self, action: str, pick: int, cpu: int) -> None:
        table = self.cache.table
        self.count += 1
        name = table[pick % table.size].name if table.size else ""
        if action == "join":
            self.cache.add_node(self.kit.make_node(f"x{self.count}", cpu=500 + 10 * pick))
        elif action == "schedule":
            self.check(cpu, pick)
        elif not name:
            return
        elif action == "placement":
            self.check_placement(cpu, pick)
        elif action == "place":
            self.cache.assume(self.kit.make_pod(f"p{self.count}", cpu), name)
        elif action == "leave":
            for pod in list(self.cache.pods())[:1]:
                self.cache.forget(pod, self.cache.node_of(pod.uid))
        elif action == "drop":
            self.cache.remove_node(name)
        elif action == "cordon":
            self.cache.update_node(self.kit.make_node(name, cordon="yes"))
        elif action == "resize":
            self.cache.update_node(self.kit.make_node(name, cpu=200 + 20 * pick))

    def check(self, cpu: int, kind: int = 0) -> None:
        profile, state = self.harness.profile, CycleState()
        pod = self.kit.make_pod("pod", cpu, schedulerName=f"kind-{kind % 3}")
        fresh = run_filter_plugins(profile.filter, state, pod, self.cache.table)
        found = self.harness.search.find(profile, state, pod, None)
        assert found.equivalence_class is not None
        assert found.all_from_cache or not self.all_from_cache
        assert statuses(found.verdicts) == statuses(fresh)
        assert found.count == len(found.rows) == int(fresh.passed().sum())
        if not found.count:
            return
        run_pre_score(profile, state, pod, found)
        totals = prioritize_nodes(profile, state, pod, found)
        expected = np.full(self.cache.table.size, -1)
        each = self.scores(pod, found.rows)
        expected[found.rows] = sum(each.values())
        assert totals.scores.tolist() == expected.tolist()
        assert totals.draw(self.rng) in np.flatnonzero(expected == expected.max())
        scores: dict[str, np.ndarray] = {}
        assert (
            prioritize_nodes(profile, state, pod, found, scores).scores.tolist()
            == expected.tolist()
        )
        assert {name: added.tolist() for name, added in scores.items()} == {
            name: added.tolist() for name, added in each.items()
        }

    def check_placement(self, cpu: int, pick: int) -> None:
        """Search some rows: the results are those of a cluster that has no others."""
        profile, state, table = self.harness.profile, CycleState(), self.cache.table
        rows = np.array([r for r in range(table.size) if (r * 7 + pick) % 3], dtype=np.intp)
        pod = self.kit.make_pod("pod", cpu)
        fresh = run_filter_plugins(profile.filter, state, pod, table.take(rows))
        found = self.harness.search.find(profile, state, pod, None, rows)
        assert not found.all_nodes_feasible
        assert found.evaluated is rows
        assert statuses(found.evaluated_verdicts) == statuses(fresh)
        assert found.rows.tolist() == rows[fresh.passed()].tolist()
        assert found.count == len(found.rows)
        if not found.count:
            # Other rows have no part in the diagnosis.
            assert found.verdicts.counts() == fresh.counts()
            return
        run_pre_score(profile, state, pod, found)
        expected = np.full(table.size, -1)
        expected[found.rows] = sum(self.scores(pod, found.rows).values())
        totals = prioritize_nodes(profile, state, pod, found)
        assert totals.scores.tolist() == expected.tolist()
        assert totals.draw(self.rng) in np.flatnonzero(expected == expected.max())

    def scores(self, pod, rows) -> dict[str, np.ndarray]:
        """Each plugin's weighted scores, one node at a time."""
        table, state = self.cache.table, CycleState()
        each = {}
        for plugin in self.harness.profile.score:
            if plugin.per_node_score:
                raw_scores = np.array(
                    [plugin.score(state, pod, table[row]) for row in rows.tolist()]
                )
            else:
                raw_scores = np.full(len(rows), plugin.score_all(state, pod, table.take(rows)))
            final = plugin.normalize(state, pod, raw_scores) if plugin.normalizes else raw_scores
            each[plugin.name] = final * self.harness.profile.weights[plugin.name]
        return each


def statuses(verdicts: Verdicts) -> list[tuple[str, ...]]:
    found = [verdicts.status(row) for row in range(verdicts.size)]
    return [(s.plugin, s.code.label, *s.reasons) if s else () for s in found]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_answers_are_never_stale(kit, steps) -> None:
    play(World(kit), steps)


@pytest.mark.parametrize(
    ("first", "last"),
    [(["Even"], []), ([], ["Even"]), (["Few"], []), ([], ["Few"]), (["Even"], ["Few"])],
)
@settings(max_examples=80, deadline=None)
@given(steps=STEPS)
def test_plugins_that_share_nothing_do_not_keep_the_others_from_it(kit, first, last, steps) -> None:
    play(World(kit, [getattr(kit, name) for name in first], [getattr(kit, n) for n in last]), steps)


def play(world: World, steps) -> None:
    for action, pick, cpu in steps:
        world.do(action, pick, cpu)
    for cpu in (100, 250, 600):
        world.check(cpu)
    world.cache.validate()


def test_a_plugin_that_raises_leaves_no_stale_totals(kit) -> None:
    failing: set[str] = set()

    def run_score(self, state, pod, node) -> int:
        if node.name in failing:
            raise RuntimeError("no answer")
        return 0

    fragile = kit.plugin("Fragile", ScorePlugin, score=run_score, row_local=True, sign=())
    harness = kit.SearchHarness(kit.FitsCpu, kit.Fewest, fragile)
    harness.add_nodes("n0", "n1", "n2")
    for number, name in enumerate(("n0", "n1", "n1")):
        harness.cache.assume(kit.make_pod(f"placed-{number}"), name)

    def total_scores() -> list[int]:
        state, pod = CycleState(), kit.make_pod("pod")
        found = harness.search.find(harness.profile, state, pod, None)
        run_pre_score(harness.profile, state, pod, found)
        return prioritize_nodes(harness.profile, state, pod, found).scores.tolist()

    assert total_scores() == [90 + 50, 80 + 0, 100 + 100]
    for number in range(4):
        harness.cache.assume(kit.make_pod(f"more-{number}"), "n2")
    failing.add("n2")
    with pytest.raises(PluginError, match="no answer"):
        total_scores()
    failing.clear()
    # By then Fewest has normalised the scores of n0 and n1 too, which did not change.
    assert total_scores() == [90 + 75, 80 + 50, 60 + 0]


def test_placements_share_results_and_evaluate_only_changed_rows(kit) -> None:
    harness = kit.shared_harness()
    for i in range(100):
        harness.cache.add_node(kit.make_node(f"n{i}"))
    first, second = np.arange(50), np.arange(50, 100)
    profile, evaluations = harness.profile, harness.profile.filter[0].evaluations.filter
    found = harness.search.find(profile, CycleState(), kit.make_pod("a"), None, first)
    assert found.count == 50
    before = evaluations.value
    harness.search.find(profile, CycleState(), kit.make_pod("b"), None, second)
    assert evaluations.value == before
    harness.cache.assume(kit.make_pod("a"), "n42")
    harness.search.find(profile, CycleState(), kit.make_pod("c"), None, first)
    assert evaluations.value == before + 1


def test_an_error_about_a_node_elsewhere_is_none_of_a_placement(kit) -> None:
    def run_filter_all(self, state, pod, nodes, verdicts) -> None:
        for row, node in enumerate(nodes):
            if node.name == "n1":
                verdicts.reject_row(row, Status.error("broken"))

    extra = {"row_local": True, "sign": ()}
    harness = kit.SearchHarness(kit.plugin("Bad", FilterPlugin, filter_all=run_filter_all, **extra))
    harness.add_nodes("n0", "n1")
    profile, pod = harness.profile, kit.make_pod("p")
    found = harness.search.find(profile, CycleState(), pod, None, np.array([0]))
    assert found.rows.tolist() == [0]
    found = harness.search.find(profile, CycleState(), pod, None, np.array([1]))
    with pytest.raises(PluginError, match="broken"):
        raise_filter_error(found.evaluated_verdicts)


def test_only_changed_rows_are_asked_again(kit) -> None:
    harness = kit.shared_harness()
    for i in range(100):
        harness.cache.add_node(kit.make_node(f"n{i}"))
    pod = kit.make_pod("a")
    harness.search.find(harness.profile, CycleState(), pod, None)
    evaluations = harness.profile.filter[0].evaluations.filter
    before = evaluations.value
    harness.search.find(harness.profile, CycleState(), kit.make_pod("b"), None)
    assert evaluations.value == before
    harness.cache.assume(pod, "n42")
    harness.search.find(harness.profile, CycleState(), kit.make_pod("c"), None)
    assert evaluations.value == before + 1


def test_pods_of_another_kind_do_not_share(kit) -> None:
    harness = kit.shared_harness()
    harness.cache.add_node(kit.make_node("n", cpu=200))
    small = harness.search.find(harness.profile, CycleState(), kit.make_pod("s", 100), None)
    large = harness.search.find(harness.profile, CycleState(), kit.make_pod("l", 300), None)
    assert (small.count, large.count) == (1, 0)


def test_pods_that_scorers_sign_otherwise_do_not_undo_each_others_totals(kit) -> None:
    normalized = []

    def normalize(self, state, pod, scores):
        normalized.append(pod.name)
        return scores * 0

    spread = kit.plugin(
        "Spread", ScorePlugin, score=lambda *args: args[3].row, normalize=normalize, row_local=True
    )
    spread.sign = lambda self, pod: ()
    harness = kit.SearchHarness(kit.FitsCpu, kit.ByKind, spread)
    for number in range(3):
        harness.cache.add_node(kit.make_node(f"n{number}"))
    for turn in range(3):
        for kind in ("a", "b"):
            pod, state = kit.make_pod(f"{kind}{turn}", schedulerName=kind), CycleState()
            found = harness.search.find(harness.profile, state, pod, None)
            run_pre_score(harness.profile, state, pod, found)
            prioritize_nodes(harness.profile, state, pod, found)
    assert normalized == ["a0", "b0"]
