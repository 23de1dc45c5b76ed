from __future__ import annotations

import pytest

from proreus.framework import CycleState
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod


def member(name: str, role: str = "worker", minimum: str = "3", cpu: str = "1", job: str = "train"):
    return make_pod(
        name,
        cpu,
        labels={"example.com/job": job, "example.com/role": role},
        metadata={"annotations": {"example.com/min-members": minimum}},
    )


@pytest.fixture
def cluster(plugin, config) -> Harness:
    return Harness([plugin], [make_node("a"), make_node("b")], config=config)


def states(cluster: Harness, *names: str) -> list[str]:
    return [cluster.outcome(name).state for name in names]


def test_the_last_pod_releases_all_others(cluster) -> None:
    cluster.add(member("m", "master"), member("w1"))
    cluster.schedule_all()
    assert states(cluster, "m", "w1") == ["waiting", "waiting"]
    cluster.schedule(member("w2"))
    assert states(cluster, "m", "w1", "w2") == ["bound"] * 3
    assert cluster.schedule(member("w3")).bound, "a late worker joins a job that runs"


def test_enough_workers_are_not_enough_without_a_master(cluster) -> None:
    cluster.add(*(member(f"w{n}") for n in range(4)))
    cluster.schedule_all()
    assert states(cluster, "w0", "w3") == ["waiting", "waiting"]
    cluster.schedule(member("m", "master"))
    assert states(cluster, "w0", "w3", "m") == ["bound"] * 3


def test_after_the_time_is_over_all_give_up_and_other_pods_fit(cluster) -> None:
    cluster.add(member("m", "master", cpu="4"), member("w1", cpu="4"))
    cluster.schedule_all()
    big = make_pod("big", cpu="4")
    assert not cluster.schedule(big).bound, "the waiting pods hold their places"
    cluster.advance(31)
    assert states(cluster, "m", "w1") == ["unschedulable", "unschedulable"]
    assert cluster.outcome("m").rejected_by == {"JobBarrier"}
    cluster.schedule_all()
    assert cluster.outcome(big).bound


def test_a_new_member_activates_those_that_gave_up(cluster) -> None:
    cluster.add(member("m", "master"), member("w1"), make_pod("other"))
    cluster.schedule_all()
    cluster.advance(31)
    assert cluster.queue_of("w1") == "unschedulable"
    cluster.add(member("x", job="another"))
    assert cluster.queue_of("w1") == "unschedulable"
    cluster.add(member("w2"))
    cluster.advance(10)
    cluster.schedule_all()
    assert states(cluster, "m", "w1", "w2") == ["bound"] * 3


def test_capacity_for_a_pod_that_did_not_fit_starts_the_whole_job(cluster) -> None:
    cluster.add(make_pod("old", cpu="4", node_name="a"))
    cluster.add(member("m", "master", cpu="2"), member("w1", cpu="2"), member("w2", cpu="2"))
    cluster.schedule_all()
    assert states(cluster, "m", "w1", "w2") == ["waiting", "waiting", "unschedulable"]
    cluster.advance(31)
    cluster.schedule_all()
    cluster.advance(40)
    cluster.remove("Pod", "old")
    cluster.advance(10)
    cluster.schedule_all()
    assert states(cluster, "m", "w1", "w2") == ["bound"] * 3


def test_members_that_run_already_count(plugin, config) -> None:
    running = [
        make_pod(name, node_name="a", labels={"example.com/job": "train", "example.com/role": role})
        for name, role in (("m", "master"), ("w1", "worker"))
    ]
    cluster = Harness([plugin], [make_node("a")], running, config=config)
    assert cluster.schedule(member("w2")).bound
    cluster.remove("Pod", "m")
    assert cluster.schedule(member("w3")).state == "waiting"


def test_members_that_a_former_instance_holds_count_too(plugin) -> None:
    handle = FakeHandle()
    held = [handle.hold(pod, {"JobBarrier": 60}) for pod in (member("m", "master"), member("w"))]
    barrier, state, last = make_plugin(plugin, handle), CycleState(), member("last")
    barrier.reserve(state, last, "a")
    assert barrier.permit(state, last, "a") is None
    assert [one.pending_plugins() for one in held] == [[], []]


def test_a_minimum_that_is_no_number_is_rejected(cluster) -> None:
    outcome = cluster.schedule(member("m", minimum="all"))
    assert "annotation example.com/min-members must be a whole number" in outcome.message
    cluster.patch("Pod", "m", {"metadata": {"annotations": {"example.com/min-members": "1"}}})
    cluster.advance(2)
    assert cluster.schedule("m").state == "waiting", "there is a number, but no master yet"


def test_pods_without_a_job_pass(cluster) -> None:
    assert cluster.schedule(make_pod("web")).bound
