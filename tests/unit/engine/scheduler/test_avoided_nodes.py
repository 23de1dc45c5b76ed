"""When pods of a controller avoid a node, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.base.clock import FakeClock
from proreus.engine.guards import avoided_nodes
from proreus.engine.guards.avoided_nodes import (
    AvoidanceRules,
    AvoidedNodes,
    KubeletRejections,
    controller_name,
)
from proreus.framework.cycle_state import CycleState
from proreus.framework.verdicts import Verdicts
from proreus.testing.builders import make_node, make_pod, make_table
from proreus.testing.fake_handle import FakeHandle


class Bench:
    def __init__(self, threshold: int = 3, max_seconds: float = 600) -> None:
        self.clock = FakeClock(1000)
        self.nodes = AvoidedNodes(AvoidanceRules(threshold, max_seconds), self.clock)

    def reject(self, times: int = 1, uid: str = "web", node: str = "n0") -> list[float]:
        return [self.nodes.record(f"default/{uid}", node) for _ in range(times)]

    def pass_time(self, seconds: float) -> list[str]:
        self.clock.advance(seconds)
        over = self.nodes.expire()
        self.nodes.validate()
        return over


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_below_the_threshold_nothing_is_avoided(bench) -> None:
    assert bench.reject(2) == [0, 0]
    assert (bench.nodes.active, bench.nodes.of("default/web")) == (False, frozenset())


def test_at_the_threshold_the_node_is_avoided_by_that_controller_for_a_while(bench) -> None:
    assert bench.reject(3) == [0, 0, 30]
    bench.reject(2, uid="db")
    bench.reject(2, node="n1")
    assert bench.nodes.of("default/web") == {"n0"}
    assert bench.nodes.of("default/db") == frozenset()
    assert (bench.nodes.active, bench.nodes.count) == (True, 1)
    assert bench.pass_time(29) == []
    assert bench.pass_time(1) == ["default/web"]
    assert not bench.nodes.active


def test_pods_that_were_bound_before_do_not_prolong_it(bench) -> None:
    assert bench.reject(5) == [0, 0, 30, 0, 0]
    assert bench.pass_time(30) == ["default/web"]


def test_after_it_one_more_rejection_doubles_the_time_up_to_a_limit(bench) -> None:
    bench.reject(3)
    found = []
    for _ in range(6):
        bench.pass_time(600)
        found += bench.reject()
    assert found == [60, 120, 240, 480, 600, 600]


def test_after_a_quiet_time_it_begins_anew(bench) -> None:
    bench.reject(3)
    bench.pass_time(30 + 601)
    assert bench.reject(3) == [0, 0, 30]
    bench.pass_time(30)
    bench.reject(2, uid="db")
    bench.pass_time(601)
    assert bench.reject(2, uid="db") == [0, 0]


def test_several_nodes_end_each_in_its_time(bench) -> None:
    bench.reject(3)
    bench.pass_time(10)
    bench.reject(3, node="n1")
    assert bench.nodes.of("default/web") == {"n0", "n1"}
    assert bench.pass_time(20) == ["default/web"]
    assert bench.nodes.of("default/web") == {"n1"}
    assert bench.pass_time(10) == ["default/web"]


def test_memory_is_bounded(bench, monkeypatch) -> None:
    monkeypatch.setattr(avoided_nodes, "MAX_PAIRS", 10)
    bench.reject(3, node="first")
    for number in range(100):
        bench.reject(1, node=f"n{number}")
        bench.nodes.validate()
    assert bench.nodes.of("default/web") == frozenset()


def test_both_forms_of_the_filter_agree(bench) -> None:
    table = make_table(make_node(f"n{number}") for number in range(5))
    bench.reject(3, node="n1")
    bench.reject(3, node="n4")
    bench.reject(3, node="n9")  # gone meanwhile
    plugin = KubeletRejections(bench.nodes, FakeHandle())
    reference = {"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    for pod, rejected in (
        (make_pod("p", metadata={"ownerReferences": [reference]}), [1, 4]),
        (make_pod("bare"), []),
    ):
        verdicts = Verdicts(len(table), plugin.name)
        plugin.filter_all(CycleState(), pod, table, verdicts)
        one_by_one = [plugin.filter(CycleState(), pod, node) for node in table]
        assert [verdicts.status(row) for row in range(len(table))] == one_by_one
        assert [row for row, status in enumerate(one_by_one) if status] == rejected


def test_who_claims_another_namespaces_owner_keeps_its_pods_from_no_node(bench) -> None:
    """Nobody checks owner references: a tenant may write any UID into its own pods."""
    reference = {"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    metadata = {"ownerReferences": [reference]}
    for namespace in ("default", "tenant"):
        pod = make_pod("p", metadata={**metadata, "namespace": namespace})
        (node,) = make_table([make_node("n0")])
        for _ in range(3):
            bench.nodes.record(str(controller_name(pod.pod.metadata)), "n0")
        plugin = KubeletRejections(bench.nodes, FakeHandle())
        other = make_pod("q", metadata={**metadata, "namespace": "other"})
        assert plugin.filter(CycleState(), pod, node)
        assert plugin.filter(CycleState(), other, node) is None


def test_a_node_that_is_gone_is_forgotten(bench) -> None:
    bench.reject(3)
    bench.reject(2, uid="db")
    bench.reject(3, node="n1")
    assert bench.nodes.forget_node("n0") == ["default/web"]
    bench.nodes.validate()
    assert bench.nodes.of("default/web") == {"n1"}
    assert bench.reject(3, uid="db") == [0, 0, 30]
    assert bench.nodes.forget_node("n1") == ["default/web"]
    assert bench.nodes.forget_node("n2") == []


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from((0, 1, 40, 700)))
    )
)
def test_what_is_avoided_is_always_over_in_time(steps) -> None:
    bench = Bench(threshold=2, max_seconds=120)
    for uid, node, seconds in steps:
        bench.reject(1, uid, node)
        bench.nodes.validate()
        bench.pass_time(seconds)
    bench.pass_time(120)
    assert not bench.nodes.active
