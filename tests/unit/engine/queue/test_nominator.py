"""Nominations: where they come from, when they stay, how pods are looked up."""

from __future__ import annotations

import pytest

from proreus.engine.queue.nominator import Nominator
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION, NominatingInfo


@pytest.fixture
def listed():
    return {}


@pytest.fixture
def queued():
    return {}


@pytest.fixture
def nominator(listed, queued):
    return Nominator(listed.get, queued.get)


@pytest.fixture
def known(pod, listed):
    def make(name="a", **fields):
        info = pod(name, **fields)
        listed[info.key] = info.pod
        return info

    return make


def nominated(nominator, node):
    nominator.validate()
    return [pod.name for pod in nominator.nominated_pods(node)]


def test_status_counts_where_nothing_else_is_said(nominator, known):
    nominator.add_nominated_pod(known("a", nominated="n1"), None)
    nominator.add_nominated_pod(known("b"), None)
    assert nominated(nominator, "n1") == ["a"]
    assert list(nominator.nominated_nodes()) == ["n1"]
    assert nominator.nominated_node_of("uid-b") is None


def test_an_explicit_nomination_overrides_the_status(nominator, known):
    nominator.add_nominated_pod(known("a", nominated="n1"), NominatingInfo("n2"))
    assert nominated(nominator, "n1") == []
    assert nominated(nominator, "n2") == ["a"]


def test_the_empty_name_is_a_place_of_its_own(nominator, known):
    pod = known("a", nominated="n1")
    nominator.add_nominated_pod(pod, None)
    nominator.add_nominated_pod(pod, CLEAR_NOMINATION)
    assert nominated(nominator, "n1") == []
    assert nominated(nominator, "") == ["a"]
    assert list(nominator.nominated_nodes()) == []


def test_pods_that_are_gone_or_bound_are_not_nominated(nominator, known, pod, listed):
    nominator.add_nominated_pod(pod("gone", nominated="n1"), None)
    bound = pod("bound", nominated="n1")
    listed[bound.key] = pod("bound", node="n1").pod
    nominator.add_nominated_pod(bound, None)
    assert nominated(nominator, "n1") == []


def test_a_nomination_replaces_the_former_and_comes_last(nominator, known):
    first, second = known("a", nominated="n1"), known("b", nominated="n1")
    for info in (first, second, first):
        nominator.add_nominated_pod(info, None)
    assert nominated(nominator, "n1") == ["b", "a"]


def test_a_former_nomination_is_forgotten_even_if_the_new_one_is_refused(nominator, known, listed):
    info = known("a", nominated="n1")
    nominator.add_nominated_pod(info, None)
    listed.clear()
    nominator.add_nominated_pod(info, None)
    assert nominated(nominator, "n1") == []


def test_update_keeps_a_nomination_that_the_status_does_not_have_yet(nominator, known):
    old = known("a")
    nominator.add_nominated_pod(old, NominatingInfo("n1"))
    nominator.update(old, known("a", labels={"x": "y"}))
    assert nominated(nominator, "n1") == ["a"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("", "n2", "n2"), ("n1", "n2", "n2"), ("n1", "", None), ("n1", "n1", "n1")],
)
def test_update_follows_the_status_otherwise(nominator, known, old, new, expected):
    before = known("a", nominated=old)
    nominator.add_nominated_pod(before, NominatingInfo("n1"))
    nominator.update(before, known("a", nominated=new))
    assert nominator.nominated_node_of("uid-a") == expected


def test_deleting_twice_is_fine(nominator, known):
    nominator.add_nominated_pod(known("a", nominated="n1"), None)
    nominator.delete_nominated_pod("uid-a")
    nominator.delete_nominated_pod("uid-a")
    assert nominated(nominator, "n1") == []


def test_pods_come_as_they_are_in_the_queue_else_as_stubs(nominator, known, pod, queued):
    old = known("a", priority=7, nominated="n1")
    nominator.add_nominated_pod(old, None)
    (stub,) = nominator.nominated_pods("n1")
    assert (stub.key, stub.uid, stub.priority) == ("default/a", "uid-a", 0)
    assert not stub.requests.amounts
    latest = pod("a", priority=7, labels={"x": "y"}, nominated="n1")
    queued["default/a"] = QueuedPodInfo(latest, 0.0)
    assert nominator.nominated_pods("n1") == [latest]


def test_changes_of_a_node_are_returned_since_a_position(nominator, known):
    a, b = known("a", nominated="n1"), known("b", nominated="n2")
    start = nominator.position
    nominator.add_nominated_pod(a, None)
    assert list(nominator.changes_since(start)) == ["n1"]
    middle = nominator.position
    nominator.add_nominated_pod(b, None)
    nominator.add_nominated_pod(a, NominatingInfo("n3"))
    assert list(nominator.changes_since(middle)) == ["n2", "n1", "n3"]
    assert list(nominator.changes_since(nominator.position)) == []
    nominator.delete_nominated_pod(b.uid)
    nominator.record_change(a.uid)
    nominator.record_change("nobody")
    assert list(nominator.changes_since(start)) == ["n1", "n2", "n3"]


def test_what_was_forgotten_is_not_known(nominator, known):
    nominator._changes.limit = 4
    nominator.add_nominated_pod(known("a", nominated="n1"), None)
    for _ in range(5):
        nominator.record_change("uid-a")
    assert nominator.changes_since(0) is None
    assert list(nominator.changes_since(nominator.position - 2)) == ["n1"]


def test_a_pod_that_is_popped_or_comes_back_is_another_one(harness, pod):
    harness.add(pod("a", nominated="n1"))
    nominator = harness.queue.nominator

    def touched_by(act):
        position = nominator.position
        act()
        return list(nominator.changes_since(position))

    popped = []
    assert touched_by(lambda: popped.append(harness.pop())) == ["n1"]
    assert touched_by(lambda: harness.reject(popped[0], "Fit")) == ["n1"]
    assert touched_by(lambda: harness.queue.activate(["default/a"])) == ["n1"]
    assert touched_by(lambda: popped.append(harness.queue.pop_specific("default/a"))) == ["n1"]
    assert touched_by(lambda: harness.queue.done("uid-a")) == []
