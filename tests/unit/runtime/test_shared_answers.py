"""Shared answers are what a fresh evaluation would say, whatever happened in between."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.framework.cycle_state import CycleState
from proreus.framework.verdicts import Verdicts
from proreus.runtime.judging import judge_table
from proreus.runtime.ranking import rank, run_pre_score

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["place", "place", "place", "leave", "join", "drop", "cordon", "resize", "ask", "ask"]
        ),
        st.integers(0, 50),
        st.sampled_from([100, 250, 600]),
    ),
    min_size=1,
    max_size=60,
)


class World:
    """A bench under random events, and the answers it should give."""

    def __init__(self, kit) -> None:
        self.kit = kit
        self.bench = kit.shared_bench()
        self.cache = self.bench.cache
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
        elif action == "ask":
            self.check(cpu)
        elif not name:
            return
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

    def check(self, cpu: int) -> None:
        profile, state = self.bench.profile, CycleState()
        pod = self.kit.make_pod("asked", cpu)
        fresh = judge_table(profile, state, pod, self.cache.table)
        found = self.bench.search.find(profile, state, pod, None)
        assert found.face is not None
        assert statuses(found.verdicts) == statuses(fresh)
        assert found.count == len(found.rows) == int(fresh.passed().sum())
        if not found.count:
            return
        run_pre_score(profile, state, pod, found)
        totals = rank(profile, state, pod, found)
        expected = np.full(self.cache.table.size, -1)
        expected[found.rows] = self.totals(pod, found.rows)
        assert totals.scores.tolist() == expected.tolist()
        assert totals.draw(self.rng) in np.flatnonzero(expected == expected.max())

    def totals(self, pod, rows) -> np.ndarray:
        """The sum of weighted scores, one node at a time."""
        table, state = self.cache.table, CycleState()
        total = np.zeros(len(rows), dtype=np.int64)
        for plugin in self.bench.profile.score:
            if plugin.per_node_score:
                raw = np.array([plugin.score(state, pod, table[row]) for row in rows.tolist()])
            else:
                raw = np.full(len(rows), plugin.score_all(state, pod, table))
            final = plugin.normalize(state, pod, raw) if plugin.normalizes else raw
            total += final * self.bench.profile.weights[plugin.name]
        return total


def statuses(verdicts: Verdicts) -> list[tuple[str, ...]]:
    found = [verdicts.status(row) for row in range(verdicts.size)]
    return [(s.plugin, s.code.label, *s.reasons) if s else () for s in found]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_answers_are_never_stale(kit, steps) -> None:
    world = World(kit)
    for action, pick, cpu in steps:
        world.do(action, pick, cpu)
    for cpu in (100, 250, 600):
        world.check(cpu)
    world.cache.validate()


def test_only_changed_rows_are_asked_again(kit) -> None:
    bench = kit.shared_bench()
    for i in range(100):
        bench.cache.add_node(kit.make_node(f"n{i}"))
    pod = kit.make_pod("a")
    bench.search.find(bench.profile, CycleState(), pod, None)
    asked = bench.profile.filter[0].evaluations.filter
    before = asked.value
    bench.search.find(bench.profile, CycleState(), kit.make_pod("b"), None)
    assert asked.value == before
    bench.cache.assume(pod, "n42")
    bench.search.find(bench.profile, CycleState(), kit.make_pod("c"), None)
    assert asked.value == before + 1


def test_pods_of_another_kind_do_not_share(kit) -> None:
    bench = kit.shared_bench()
    bench.cache.add_node(kit.make_node("n", cpu=200))
    small = bench.search.find(bench.profile, CycleState(), kit.make_pod("s", 100), None)
    large = bench.search.find(bench.profile, CycleState(), kit.make_pod("l", 300), None)
    assert (small.count, large.count) == (1, 0)
