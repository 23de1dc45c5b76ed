"""Nominated pods by row equal those of the nominator after any history."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.framework.nominated_pods import NominatedPodsByPriority, NominatedPodsByRow
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

_GATES, _REGISTRY = FeatureGates(), Registry(IN_TREE_PLUGINS)
_CONFIGURATION = default_configuration(_REGISTRY, _GATES)
_NODES, _PODS = st.integers(0, 3), st.integers(0, 5)
_steps = st.one_of(
    st.tuples(st.just("node"), _NODES),
    st.tuples(st.just("no node"), _NODES),
    st.tuples(st.just("nominated"), _PODS, _NODES),
    st.tuples(st.just("not nominated"), _PODS),
    st.tuples(st.just("changed"), _PODS, st.sampled_from(("1", "2"))),
    st.tuples(st.just("popped"), _PODS),
    st.tuples(st.just("back"), _PODS),
)


class World:
    """A cluster whose pods wait for nodes; three of them are more important."""

    def __init__(self) -> None:
        self.cluster = OfflineCluster(_CONFIGURATION, _REGISTRY, _GATES)
        self.queue = self.cluster.scheduler.queue
        self.table = self.cluster.scheduler.cache.table
        for number in range(6):
            self.cluster.api.put(PODS, self.pod(number).pod)

    def pod(self, number: int, cpu: str = "1") -> PodInfo:
        return make_pod(f"p{number}", cpu=cpu, priority=10 * (number % 2))

    def do(self, step: tuple[object, ...]) -> None:
        match step:
            case "node", number:
                self.cluster.api.put(NODES, make_node(f"n{number}"))
            case "no node", number:
                self.cluster.api.remove(NODES.kind, f"n{number}")
            case "nominated", int(number), node:
                info = NominatingInfo(f"n{node}")
                self.queue.nominator.add_nominated_pod(self.pod(number), info)
            case "not nominated", int(number):
                self.queue.nominator.delete_nominated_pod(self.pod(number).uid)
            case "changed", int(number), str(cpu):
                self.cluster.api.put(PODS, self.pod(number, cpu).pod)
            case "popped", int(number):
                queued = self.queue.pop_specific(self.pod(number).key)
                if queued is not None:
                    self.popped = queued
            case "back", int(number):
                queued = getattr(self, "popped", None)
                if queued is not None:
                    del self.popped
                    queued.unschedulable_plugins = {"NodeResourcesFit"}
                    self.queue.add_unschedulable(queued)


def _named(nominated: NominatedPodsByRow) -> dict[int, tuple[Pod, ...]]:
    return {row: tuple(info.pod for info in pods) for row, pods in nominated.by_row.items()}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(_steps, max_size=4), min_size=1, max_size=8))
def test_it_is_what_it_would_be_made_anew(rounds: list[list[tuple[object, ...]]]) -> None:
    world = World()
    nominator, table = world.queue.nominator, world.table
    kept = NominatedPodsByPriority(nominator)
    before = {priority: kept.of(make_pod("x", priority=priority), table) for priority in (0, 10)}
    seen = {priority: (_named(b), b.changes.position) for priority, b in before.items()}
    for steps in rounds:
        for step in steps:
            world.do(step)
        for priority in (0, 10):
            nominated = kept.of(make_pod("x", priority=priority), table)
            assert nominated is before[priority]
            assert _named(nominated) == _named(NominatedPodsByRow(nominator, table, priority))
            was, position = seen[priority]
            changed = nominated.changes.since(position, 1000)
            assert changed is not None
            for row in nominated.by_row.keys() | was.keys():
                if row not in changed:
                    assert was.get(row) == _named(nominated).get(row)
            seen[priority] = _named(nominated), nominated.changes.position


def test_a_pod_does_not_stand_in_its_own_way_nor_in_that_of_its_like() -> None:
    world = World()
    world.do(("node", 0))
    world.do(("nominated", 1, 0))
    kept = NominatedPodsByPriority(world.queue.nominator)
    own = kept.of(world.pod(1), world.table)
    assert (own.by_row, own.is_cached) == ({}, False)
    others = kept.of(world.pod(3), world.table)
    assert others.is_cached
    assert [pod.name for pod in others.by_row[0]] == ["p1"]
    assert kept.of(make_pod("x", priority=11), world.table).by_row == {}


def test_asking_again_looks_up_only_what_changed(monkeypatch) -> None:
    world = World()
    for number in range(4):
        world.do(("node", number))
        world.do(("nominated", number, number))
    nominator, queried = world.queue.nominator, []
    look_up = nominator.nominated_pods

    def nominated_pods(name):
        queried.append(name)
        return look_up(name)

    monkeypatch.setattr(nominator, "nominated_pods", nominated_pods)
    kept = NominatedPodsByPriority(nominator)
    kept.of(make_pod("x"), world.table)
    assert sorted(queried) == ["n0", "n1", "n2", "n3"]
    queried.clear()
    kept.of(make_pod("y"), world.table)
    assert queried == []
    world.do(("nominated", 2, 1))
    kept.of(make_pod("z"), world.table)
    assert sorted(queried) == ["n1", "n2"]
