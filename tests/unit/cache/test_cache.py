"""Assume, confirm, forget, expire; nodes that come and go under their pods."""

from __future__ import annotations

import pytest

from proreus.cache.cache import CacheError
from proreus.errors import CacheCorrupted, ProreusError

# ---- assume and forget ---------------------------------------------------------------------------


def test_an_assumed_pod_counts_at_once(bench) -> None:
    bench.cache.add_node(bench.make_node("n0"))
    pod = bench.make_pod(cpu="1")
    bench.cache.assume(pod, "n0")
    assert bench.cpu("n0") == 1000
    assert bench.cache.is_assumed(pod.uid)
    assert bench.cache.node_of(pod.uid) == "n0"
    assert (bench.cache.pod_count, bench.cache.assumed_count) == (1, 1)


def test_forgetting_gives_the_room_back(bench) -> None:
    bench.cache.add_node(bench.make_node("n0"))
    pod = bench.make_pod(cpu="1")
    bench.cache.assume(pod, "n0")
    bench.cache.forget(pod, "n0")
    assert bench.cpu("n0") == 0
    assert (bench.cache.pod_count, bench.cache.assumed_count) == (0, 0)
    assert bench.cache.node_of(pod.uid) == ""


def test_what_is_here_already_cannot_be_assumed(bench) -> None:
    pod = bench.make_pod("p", node_name="n0")
    bench.cache.add_pod(pod)
    with pytest.raises(CacheError) as caught:
        bench.cache.assume(pod, "n0")
    assert str(caught.value) == (f"pod {pod.uid}(default/p) is in the cache, so can't be assumed")


def test_forgetting_the_unknown_does_nothing(bench) -> None:
    bench.cache.forget(bench.make_pod(), "n0")


def test_only_what_is_assumed_there_can_be_forgotten(bench) -> None:
    pod = bench.make_pod("p")
    bench.cache.assume(pod, "n0")
    with pytest.raises(CacheError, match="was assumed on n1 but assigned to n0"):
        bench.cache.forget(pod, "n1")
    bench.cache.add_pod(bench.make_pod("p", node_name="n0"))
    with pytest.raises(CacheError, match="wasn't assumed so cannot be forgotten"):
        bench.cache.forget(pod, "n0")
    assert bench.cache.pod_count == 1


# ---- confirm -------------------------------------------------------------------------------------


def test_a_confirmation_that_changes_nothing_touches_no_row(bench) -> None:
    bench.cache.add_node(bench.make_node("n0"))
    bench.cache.assume(bench.make_pod("p", cpu="1"), "n0")
    position = bench.cache.table.position
    scheduled = {"type": "PodScheduled", "status": "True"}
    bound = bench.make_pod("p", cpu="1", node_name="n0", status={"conditions": [scheduled]})
    bench.cache.add_pod(bound)
    assert bench.cache.table.changes_since(position) == []
    assert bench.cache.assumed_count == 0
    assert bench.cache.get_pod(bound.uid) is bound
    assert bench.cache.table[0].pods[bound.uid] is bound


@pytest.mark.parametrize(
    "changed",
    [
        {"cpu": "2"},
        {"labels": {"a": "b"}},
        {"host_ports": [80]},
        {"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}},
        {"metadata": {"annotations": {"heat": "high"}}},
        {"status": {"startTime": "2023-11-14T22:13:20Z"}},
        {"status": {"phase": "Running"}},
        {"priority": 7},
        {"affinity": {"podAntiAffinity": {}}},
        {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
    ],
)
def test_a_confirmation_that_changes_something_notes_the_row(bench, changed) -> None:
    bench.cache.add_node(bench.make_node("n0"))
    bench.cache.assume(bench.make_pod("p", cpu="1"), "n0")
    position = bench.cache.table.position
    bench.cache.add_pod(bench.make_pod("p", **{"cpu": "1", **changed}, node_name="n0"))
    assert bench.cache.table.changes_since(position) == [0]
    assert bench.cache.assumed_count == 0


def test_confirmed_elsewhere_it_moves(bench) -> None:
    for name in ("n0", "n1"):
        bench.cache.add_node(bench.make_node(name))
    bench.cache.assume(bench.make_pod("p", cpu="1"), "n0")
    bench.cache.add_pod(bench.make_pod("p", cpu="1", node_name="n1"))
    assert (bench.cpu("n0"), bench.cpu("n1")) == (0, 1000)
    assert bench.cache.assumed_count == 0


def test_a_confirmed_pod_with_affinity_is_exchanged_everywhere(bench) -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    bench.cache.add_node(bench.make_node("n0"))
    bench.cache.assume(bench.make_pod("p", affinity=rule), "n0")
    bound = bench.make_pod("p", affinity=rule, node_name="n0")
    bench.cache.add_pod(bound)
    info = bench.cache.table[0]
    assert info.pods_with_affinity[bound.uid] is bound
    assert info.pods_with_required_anti_affinity[bound.uid] is bound


# ---- the watch -----------------------------------------------------------------------------------


def test_a_pod_is_added_once(bench) -> None:
    pod = bench.make_pod("p", node_name="n0")
    bench.cache.add_pod(pod)
    with pytest.raises(CacheError, match="was already in added state"):
        bench.cache.add_pod(pod)


def test_an_update_counts_anew(bench) -> None:
    bench.cache.add_node(bench.make_node("n0"))
    bench.cache.add_pod(bench.make_pod("p", cpu="1", node_name="n0"))
    bench.cache.update_pod(bench.make_pod("p", cpu="3", node_name="n0"))
    assert bench.cpu("n0") == 3000


def test_only_added_pods_are_updated(bench) -> None:
    with pytest.raises(CacheError, match="can't be updated"):
        bench.cache.update_pod(bench.make_pod("p", node_name="n0"))
    bench.cache.assume(bench.make_pod("p"), "n0")
    with pytest.raises(CacheError, match="can't be updated"):
        bench.cache.update_pod(bench.make_pod("p", node_name="n0"))


def test_only_known_pods_are_removed(bench) -> None:
    with pytest.raises(CacheError, match="cannot be removed"):
        bench.cache.remove_pod(bench.make_pod("p", node_name="n0").pod)


def test_a_pod_is_removed_also_when_its_node_is_not_known_any_more(bench) -> None:
    bench.cache.add_pod(bench.make_pod("p", node_name="n0"))
    bench.cache.remove_pod(bench.make_pod("p").pod)
    assert bench.cache.pod_count == 0


def test_contradictions_end_the_process(bench) -> None:
    bench.cache.add_pod(bench.make_pod("p", node_name="n0"))
    elsewhere = bench.make_pod("p", node_name="n1")
    with pytest.raises(CacheCorrupted):
        bench.cache.update_pod(elsewhere)
    with pytest.raises(CacheCorrupted):
        bench.cache.remove_pod(elsewhere.pod)
    assert not issubclass(CacheCorrupted, CacheError), "handlers pass over CacheErrors"
    assert issubclass(CacheCorrupted, ProreusError)


# ---- expiry --------------------------------------------------------------------------------------


def test_without_a_limit_assumptions_stay(bench) -> None:
    pod = bench.make_pod()
    bench.cache.assume(pod, "n0")
    bench.cache.finish_binding(pod.uid)
    bench.clock.advance(10**9)
    assert bench.cache.expire_assumed() == []
    assert bench.cache.is_assumed(pod.uid)


def test_the_limit_counts_from_the_end_of_the_binding(make_bench) -> None:
    bench = make_bench(30)
    pod = bench.make_pod()
    bench.cache.assume(pod, "n0")
    bench.clock.advance(100)
    assert bench.cache.expire_assumed() == []
    bench.cache.finish_binding(pod.uid)
    bench.clock.advance(29)
    assert bench.cache.expire_assumed() == []
    bench.clock.advance(1)
    assert bench.cache.expire_assumed() == [(pod, "n0")]
    assert bench.cache.pod_count == 0


def test_a_confirmed_pod_does_not_expire(make_bench) -> None:
    bench = make_bench(30)
    pod = bench.make_pod("p")
    bench.cache.assume(pod, "n0")
    bench.cache.finish_binding(pod.uid)
    bench.cache.add_pod(bench.make_pod("p", node_name="n0"))
    bench.cache.finish_binding(pod.uid)
    bench.clock.advance(60)
    assert bench.cache.expire_assumed() == []
    assert bench.cache.pod_count == 1


# ---- nodes ---------------------------------------------------------------------------------------


def test_pods_may_come_before_their_node_and_stay_after_it(bench) -> None:
    bench.cache.add_pod(bench.make_pod("p", cpu="1", node_name="n0"))
    assert (bench.cache.table.size, bench.cache.node_count) == (0, 1)
    bench.cache.add_node(bench.make_node("n0"))
    assert bench.cpu("n0") == 1000
    bench.cache.remove_node("n0")
    assert (bench.cache.table.size, bench.cache.node_count) == (0, 1)
    bench.cache.update_node(bench.make_node("n0"))
    assert bench.cpu("n0") == 1000
    bench.cache.remove_node("n0")
    bench.cache.remove_pod(bench.make_pod("p", node_name="n0").pod)
    assert bench.cache.node_count == 0


def test_a_node_that_is_not_here_cannot_go(bench) -> None:
    with pytest.raises(CacheError, match="node n0 is not found"):
        bench.cache.remove_node("n0")
    bench.cache.add_pod(bench.make_pod("p", node_name="n0"))
    with pytest.raises(CacheError, match="node n0 is not found"):
        bench.cache.remove_node("n0")


def test_an_assumed_pod_survives_the_end_of_its_node(bench) -> None:
    bench.cache.add_node(bench.make_node("n0"))
    pod = bench.make_pod("p")
    bench.cache.assume(pod, "n0")
    bench.cache.remove_node("n0")
    bench.cache.add_pod(bench.make_pod("p", node_name="n0"))
    assert (bench.cache.assumed_count, bench.cache.node_count) == (0, 1)


def test_a_node_that_is_added_twice_is_updated(bench) -> None:
    bench.cache.add_node(bench.make_node("n0", cpu="1"))
    bench.cache.add_node(bench.make_node("n0", cpu="2"))
    assert bench.cache.table.allocatable["cpu"].tolist() == [2000]
    assert bench.cache.node_count == 1


def test_a_heartbeat_touches_no_row(bench) -> None:
    bench.cache.add_node(bench.make_node("n0"))
    position = bench.cache.table.position
    again = bench.make_node("n0")
    bench.cache.refresh_node(again)
    assert bench.cache.table.changes_since(position) == []
    assert bench.cache.table[0].node is again
    bench.cache.refresh_node(bench.make_node("n1"))
    assert bench.cache.node_count == 2
