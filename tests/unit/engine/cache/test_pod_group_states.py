"""The book of PodGroups, by itself and as the cache keeps it."""

from __future__ import annotations

from proreus.base.clock import FakeClock
from proreus.engine.cache.cache import Cache
from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.framework.pod_info import PodInfo
from proreus.testing import make_node, make_pod


def member(name: str, group: str = "g", node_name: str = "") -> PodInfo:
    spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return make_pod(name, node_name=node_name, spec=spec)


def places(states: PodGroupStates, key: str = "default/g") -> tuple[int, int, int] | None:
    states.validate()
    state = states.get(key)
    if state is None:
        return None
    assert state.all_pods_count == len(state.unscheduled) + state.scheduled_count
    return len(state.unscheduled), len(state.assumed), len(state.assigned)


def test_a_pods_way_through_the_book() -> None:
    states, pod = PodGroupStates(), member("p")
    states.add(pod)
    assert places(states) == (1, 0, 0)
    states.assume(pod, "a")
    assert places(states) == (0, 1, 0)
    states.forget(pod)
    assert places(states) == (1, 0, 0)
    states.assume(pod, "a")
    bound = member("p", node_name="a")
    states.assign(bound)
    assert places(states) == (0, 0, 1)
    states.remove(bound.pod)
    assert places(states) is None


def test_groups_are_distinguished_by_name_and_namespace() -> None:
    states = PodGroupStates()
    states.add(member("p"))
    states.add(member("q", "h"))
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    states.add(make_pod("r", namespace="other", spec=spec))
    states.add(member("alone", ""))

    assert places(states) == places(states, "default/h") == places(states, "other/g") == (1, 0, 0)


def test_a_new_version_of_an_assumed_pod_stays_assumed() -> None:
    states, pod = PodGroupStates(), member("p")
    states.add(pod)
    states.assume(pod, "a")
    newer = member("p")
    states.add(newer)

    state = states.get("default/g")
    assert state is not None
    assert state.scheduled() == [(newer, "a")]
    assert state.scheduled()[0].pod is newer


def test_a_late_update_does_not_take_an_assigned_pod_back() -> None:
    states = PodGroupStates()
    states.assign(member("p", node_name="a"))
    states.add(member("p"))

    assert places(states) == (0, 0, 1)


def test_a_pod_that_was_deleted_is_not_brought_back_by_forgetting_it() -> None:
    states, pod = PodGroupStates(), member("p")
    states.add(pod)
    states.assume(pod, "a")
    states.remove(pod.pod)
    states.forget(pod)

    assert places(states) is None


def test_a_pod_that_is_deleted_during_its_cycle_does_not_count_again() -> None:
    states, pod, other = PodGroupStates(), member("p"), member("q")
    states.add(pod)
    states.add(other)
    states.remove(pod.pod)  # while an extender is asked about it, say
    states.assume(pod, "a")
    assert places(states) == (1, 0, 0)
    states.forget(pod)  # its binding has failed

    assert places(states) == (1, 0, 0)


def test_the_cache_keeps_it_in_step() -> None:
    cache, pod = Cache(FakeClock(), assumed_ttl_seconds=5, pod_groups=True), member("p")
    states = cache.pod_group_states
    cache.add_node(make_node("a"))
    states.add(pod)
    cache.assume(pod, "a")
    assert places(states) == (0, 1, 0)
    cache.forget(pod, "a")
    assert places(states) == (1, 0, 0)
    cache.assume(pod, "a")
    bound = member("p", node_name="a")
    cache.add_pod(bound)
    assert places(states) == (0, 0, 1)
    cache.update_pod(member("p", node_name="a"))
    assert places(states) == (0, 0, 1)
    cache.remove_pod(bound.pod)
    assert places(states) is None
    cache.validate()


def test_an_assumption_that_expires_is_taken_back() -> None:
    clock = FakeClock()
    cache, pod = Cache(clock, assumed_ttl_seconds=5, pod_groups=True), member("p")
    cache.pod_group_states.add(pod)
    cache.assume(pod, "a")
    cache.finish_binding(pod.uid)
    clock.advance(6)
    cache.expire_assumed()

    assert places(cache.pod_group_states) == (1, 0, 0)


def test_no_book_is_kept_unless_asked_for() -> None:
    cache = Cache(FakeClock())
    cache.assume(member("p"), "a")

    assert cache.pod_group_states.get("default/g") is None
