"""Assume, confirm, forget, expire; nodes that come and go under their pods."""

from __future__ import annotations

import pytest

from proreus.base.errors import CacheCorrupted, ProreusError
from proreus.engine.cache.cache import CacheError

# ---- assume and forget ---------------------------------------------------------------------------


def test_an_assumed_pod_counts_at_once(harness) -> None:
    harness.cache.add_node(harness.make_node("n0"))
    pod = harness.make_pod(cpu="1")
    harness.cache.assume(pod, "n0")
    assert harness.cpu("n0") == 1000
    assert harness.cache.is_assumed(pod.uid)
    assert harness.cache.node_of(pod.uid) == "n0"
    assert (harness.cache.pod_count, harness.cache.assumed_count) == (1, 1)


def test_forgetting_frees_the_resources(harness) -> None:
    harness.cache.add_node(harness.make_node("n0"))
    pod = harness.make_pod(cpu="1")
    harness.cache.assume(pod, "n0")
    harness.cache.forget(pod, "n0")
    assert harness.cpu("n0") == 0
    assert (harness.cache.pod_count, harness.cache.assumed_count) == (0, 0)
    assert harness.cache.node_of(pod.uid) == ""


def test_what_is_here_already_cannot_be_assumed(harness) -> None:
    pod = harness.make_pod("p", node_name="n0")
    harness.cache.add_pod(pod)
    with pytest.raises(CacheError) as caught:
        harness.cache.assume(pod, "n0")
    assert str(caught.value) == (f"pod {pod.uid}(default/p) is in the cache, so can't be assumed")


def test_forgetting_the_unknown_does_nothing(harness) -> None:
    harness.cache.forget(harness.make_pod(), "n0")


def test_only_what_is_assumed_there_can_be_forgotten(harness) -> None:
    pod = harness.make_pod("p")
    harness.cache.assume(pod, "n0")
    with pytest.raises(CacheError, match="was assumed on n1 but assigned to n0"):
        harness.cache.forget(pod, "n1")
    harness.cache.add_pod(harness.make_pod("p", node_name="n0"))
    with pytest.raises(CacheError, match="wasn't assumed so cannot be forgotten"):
        harness.cache.forget(pod, "n0")
    assert harness.cache.pod_count == 1


def test_the_text_of_a_pod_that_is_not_assumed_is_that_of_the_version(harness) -> None:
    harness.cache.add_pod(harness.make_pod("p", node_name="n0"))
    harness.cache.removes_assumed_pods = True
    with pytest.raises(CacheError, match="is not assumed, so it cannot be removed or forgotten"):
        harness.cache.forget(harness.make_pod("p"), "n0")


# ---- confirm -------------------------------------------------------------------------------------


def test_a_confirmation_that_changes_nothing_touches_no_row(harness) -> None:
    harness.cache.add_node(harness.make_node("n0"))
    harness.cache.assume(harness.make_pod("p", cpu="1"), "n0")
    position = harness.cache.table.position
    scheduled = {"type": "PodScheduled", "status": "True"}
    bound = harness.make_pod("p", cpu="1", node_name="n0", status={"conditions": [scheduled]})
    harness.cache.add_pod(bound)
    assert harness.cache.table.changes_since(position) == []
    assert harness.cache.assumed_count == 0
    assert harness.cache.get_pod(bound.uid) is bound
    assert harness.cache.table[0].pods[bound.uid] is bound


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
def test_a_confirmation_that_changes_something_notes_the_row(harness, changed) -> None:
    harness.cache.add_node(harness.make_node("n0"))
    harness.cache.assume(harness.make_pod("p", cpu="1"), "n0")
    position = harness.cache.table.position
    harness.cache.add_pod(harness.make_pod("p", **{"cpu": "1", **changed}, node_name="n0"))
    assert harness.cache.table.changes_since(position) == [0]
    assert harness.cache.assumed_count == 0


def test_confirmed_elsewhere_it_moves(harness) -> None:
    for name in ("n0", "n1"):
        harness.cache.add_node(harness.make_node(name))
    harness.cache.assume(harness.make_pod("p", cpu="1"), "n0")
    harness.cache.add_pod(harness.make_pod("p", cpu="1", node_name="n1"))
    assert (harness.cpu("n0"), harness.cpu("n1")) == (0, 1000)
    assert harness.cache.assumed_count == 0


def test_a_confirmed_pod_with_affinity_is_exchanged_everywhere(harness) -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    harness.cache.add_node(harness.make_node("n0"))
    harness.cache.assume(harness.make_pod("p", affinity=rule), "n0")
    bound = harness.make_pod("p", affinity=rule, node_name="n0")
    harness.cache.add_pod(bound)
    info = harness.cache.table[0]
    assert info.pods_with_affinity[bound.uid] is bound
    assert info.pods_with_required_anti_affinity[bound.uid] is bound


# ---- the watch -----------------------------------------------------------------------------------


def test_a_pod_is_added_once(harness) -> None:
    pod = harness.make_pod("p", node_name="n0")
    harness.cache.add_pod(pod)
    with pytest.raises(CacheError, match="was already in added state"):
        harness.cache.add_pod(pod)


def test_an_update_counts_anew(harness) -> None:
    harness.cache.add_node(harness.make_node("n0"))
    harness.cache.add_pod(harness.make_pod("p", cpu="1", node_name="n0"))
    harness.cache.update_pod(harness.make_pod("p", cpu="3", node_name="n0"))
    assert harness.cpu("n0") == 3000


def test_only_added_pods_are_updated(harness) -> None:
    with pytest.raises(CacheError, match="can't be updated"):
        harness.cache.update_pod(harness.make_pod("p", node_name="n0"))
    harness.cache.assume(harness.make_pod("p"), "n0")
    with pytest.raises(CacheError, match="can't be updated"):
        harness.cache.update_pod(harness.make_pod("p", node_name="n0"))


def test_only_known_pods_are_removed(harness) -> None:
    with pytest.raises(CacheError, match="cannot be removed"):
        harness.cache.remove_pod(harness.make_pod("p", node_name="n0").pod)


def test_a_pod_is_removed_also_when_its_node_is_not_known_any_more(harness) -> None:
    harness.cache.add_pod(harness.make_pod("p", node_name="n0"))
    harness.cache.remove_pod(harness.make_pod("p").pod)
    assert harness.cache.pod_count == 0


def test_contradictions_end_the_process(harness) -> None:
    harness.cache.add_pod(harness.make_pod("p", node_name="n0"))
    elsewhere = harness.make_pod("p", node_name="n1")
    with pytest.raises(CacheCorrupted):
        harness.cache.update_pod(elsewhere)
    with pytest.raises(CacheCorrupted):
        harness.cache.remove_pod(elsewhere.pod)
    assert not issubclass(CacheCorrupted, CacheError), "handlers pass over CacheErrors"
    assert issubclass(CacheCorrupted, ProreusError)


# ---- expiry --------------------------------------------------------------------------------------


def test_without_a_limit_assumptions_stay(harness) -> None:
    pod = harness.make_pod()
    harness.cache.assume(pod, "n0")
    harness.cache.finish_binding(pod.uid)
    harness.clock.advance(10**9)
    assert harness.cache.expire_assumed() == []
    assert harness.cache.is_assumed(pod.uid)


def test_the_limit_counts_from_the_end_of_the_binding(make_harness) -> None:
    harness = make_harness(30)
    pod = harness.make_pod()
    harness.cache.assume(pod, "n0")
    harness.clock.advance(100)
    assert harness.cache.expire_assumed() == []
    harness.cache.finish_binding(pod.uid)
    harness.clock.advance(29)
    assert harness.cache.expire_assumed() == []
    harness.clock.advance(1)
    assert harness.cache.expire_assumed() == [(pod, "n0")]
    assert harness.cache.pod_count == 0


def test_a_confirmed_pod_does_not_expire(make_harness) -> None:
    harness = make_harness(30)
    pod = harness.make_pod("p")
    harness.cache.assume(pod, "n0")
    harness.cache.finish_binding(pod.uid)
    harness.cache.add_pod(harness.make_pod("p", node_name="n0"))
    harness.cache.finish_binding(pod.uid)
    harness.clock.advance(60)
    assert harness.cache.expire_assumed() == []
    assert harness.cache.pod_count == 1


# ---- nodes ---------------------------------------------------------------------------------------


def test_pods_may_come_before_their_node_and_stay_after_it(harness) -> None:
    harness.cache.add_pod(harness.make_pod("p", cpu="1", node_name="n0"))
    assert (harness.cache.table.size, harness.cache.node_count) == (0, 1)
    harness.cache.add_node(harness.make_node("n0"))
    assert harness.cpu("n0") == 1000
    harness.cache.remove_node("n0")
    assert (harness.cache.table.size, harness.cache.node_count) == (0, 1)
    harness.cache.update_node(harness.make_node("n0"))
    assert harness.cpu("n0") == 1000
    harness.cache.remove_node("n0")
    harness.cache.remove_pod(harness.make_pod("p", node_name="n0").pod)
    assert harness.cache.node_count == 0


def test_a_node_that_is_not_here_cannot_go(harness) -> None:
    with pytest.raises(CacheError, match="node n0 is not found"):
        harness.cache.remove_node("n0")
    harness.cache.add_pod(harness.make_pod("p", node_name="n0"))
    with pytest.raises(CacheError, match="node n0 is not found"):
        harness.cache.remove_node("n0")


def test_an_assumed_pod_survives_the_end_of_its_node(harness) -> None:
    harness.cache.add_node(harness.make_node("n0"))
    pod = harness.make_pod("p")
    harness.cache.assume(pod, "n0")
    harness.cache.remove_node("n0")
    harness.cache.add_pod(harness.make_pod("p", node_name="n0"))
    assert (harness.cache.assumed_count, harness.cache.node_count) == (0, 1)


def test_a_node_that_is_added_twice_is_updated(harness) -> None:
    harness.cache.add_node(harness.make_node("n0", cpu="1"))
    harness.cache.add_node(harness.make_node("n0", cpu="2"))
    assert harness.cache.table.allocatable["cpu"].tolist() == [2000]
    assert harness.cache.node_count == 1


def test_a_node_with_an_invalid_quantity_changes_nothing(harness) -> None:
    harness.cache.add_pod(harness.make_pod("p", cpu="1", node_name="n0"))
    with pytest.raises(ValueError, match="quantity"):
        harness.cache.add_node(harness.make_node("n0", status={"allocatable": {"cpu": "x"}}))
    assert (harness.cache.table.size, harness.cache.node_count) == (0, 1)
    harness.cache.add_node(harness.make_node("n0"))
    assert harness.cpu("n0") == 1000


def test_a_heartbeat_touches_no_row(harness) -> None:
    harness.cache.add_node(harness.make_node("n0"))
    position = harness.cache.table.position
    again = harness.make_node("n0")
    harness.cache.replace_node_object(again)
    assert harness.cache.table.changes_since(position) == []
    assert harness.cache.table[0].node is again
    harness.cache.replace_node_object(harness.make_node("n1"))
    assert harness.cache.node_count == 2


def test_a_cleared_cache_can_be_filled_again(harness) -> None:
    harness.cache.add_node(harness.make_node("n0", cpu="1"))
    harness.cache.assume(harness.make_pod("p", cpu="1"), "n0")
    harness.cache.assume(harness.make_pod("q", cpu="1"), "nowhere")
    harness.cache.clear()
    assert (harness.cache.node_count, harness.cache.pod_count) == (0, 0)
    harness.cache.validate()
    harness.cache.add_node(harness.make_node("n0", cpu="3"))
    harness.cache.assume(harness.make_pod("p", cpu="2"), "n0")
    assert harness.cpu("n0") == 2000
    harness.cache.validate()
