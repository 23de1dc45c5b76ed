"""CapacityScheduling by ElasticQuotas, of which several may have a name or be in a namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.framework import CycleState
from proreus.testing import Harness, make_pod
from unit.addons.test_capacity_queues import elastic, harness, kai, volcano
from unit.growth import MOST_FOR_FOUR_TIMES, growth

NAME = "quota.scheduling.koordinator.sh/name"


def quota(namespace: str, name: str, most: str, day: int = 1, **labels: str) -> dict:
    made = elastic(name, 0, **labels)
    made["metadata"] |= {"namespace": namespace, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
    return made | {"spec": {"min": {"cpu": most}, "max": {"cpu": most}}}


def may_start(cluster: Harness, pod: str, cpu: str, namespace: str, queue: str = "") -> bool:
    labels = {NAME: queue} if queue else {}
    outcome = cluster.schedule(make_pod(pod, cpu, namespace=namespace, labels=labels))
    return outcome.bound


def used(cluster: Harness, queue: str) -> int:
    state: Any = cluster.plugin(CapacityScheduling)._state
    found: int = state.accounts.used(queue, "cpu")
    return found


@pytest.mark.parametrize("first", [0, 1])
def test_the_oldest_of_a_name_counts(first: int, caplog: pytest.LogCaptureFixture) -> None:
    of_x, of_y = quota("x", "default", "2"), quota("y", "default", "9", day=2)
    cluster = harness("ElasticQuota", *((of_x, of_y) if first == 0 else (of_y, of_x)))
    assert not may_start(cluster, "p", "3", "x")
    assert "Several queues have this name, the oldest counts" in caplog.text
    cluster.remove("ElasticQuota", "default", namespace="y")
    assert may_start(cluster, "q", "2", "x"), "the queue is there"
    assert not may_start(cluster, "r", "1", "x"), "and so is its limit"


def test_the_next_of_a_name_counts_once_the_oldest_is_gone() -> None:
    cluster = harness("ElasticQuota", quota("x", "a", "2"), quota("y", "a", "9", day=2))
    assert not may_start(cluster, "p", "3", "y")
    cluster.remove("ElasticQuota", "a", namespace="x")
    assert may_start(cluster, "p", "3", "y")


@pytest.mark.parametrize("first", [0, 1])
def test_a_pod_without_label_is_of_the_oldest_quota_of_its_namespace(first: int) -> None:
    quotas = [quota("x", "z", "9"), quota("x", "b", "1", day=2)]
    cluster = harness("ElasticQuota", quotas[first], quotas[1 - first])
    assert may_start(cluster, "p", "3", "x")
    assert (used(cluster, "z"), used(cluster, "b")) == (3000, 0)
    cluster.remove("ElasticQuota", "z", namespace="x")
    assert used(cluster, "b") == 3000


@pytest.mark.parametrize(
    ("source", "good", "bad", "namespace"),
    [
        ("ElasticQuota", quota("default", "a", "3"), quota("default", "a", "?"), "default"),
        (
            "Volcano",
            volcano("a", capability={"cpu": "3"}),
            volcano("a", capability={"cpu": "?"}),
            "",
        ),
        ("KAI", kai("a", {"quota": 3000, "limit": 3000}), kai("a", {"quota": 1e308}), ""),
    ],
)
def test_a_queue_that_cannot_be_read_can_be_corrected_and_deleted(
    source: str, good: dict, bad: dict, namespace: str
) -> None:
    if source == "KAI":
        bad["spec"]["resources"]["memory"] = {"quota": 1e308}
    cluster = harness(source, bad)
    labels = {NAME: "a", "kai.scheduler/queue": "a"}
    named = {"scheduling.volcano.sh/queue-name": "a"}

    def is_bound(name: str, cpu: str) -> bool:
        pod = make_pod(name, cpu, metadata={"labels": labels, "annotations": named})
        return cluster.schedule(pod).bound

    assert not is_bound("p", "1"), "there is no such queue"
    cluster.add(good)
    assert is_bound("q", "3")
    cluster.add(bad)
    assert not is_bound("r", "1"), "as after a restart"
    cluster.add(good)
    assert used(cluster, "a") == 3000
    cluster.add(bad)
    cluster.remove(good["kind"], "a", namespace=namespace)
    cluster.add(good)
    assert used(cluster, "a") == 3000


def test_a_pod_that_has_a_node_keeps_it_when_its_namespace_gets_another_quota() -> None:
    cluster = harness("ElasticQuota", quota("x", "z", "9", day=2))
    state: Any = cluster.plugin(CapacityScheduling)._state
    state.reserve(make_pod("p", "3", namespace="x"), "n0")
    assert used(cluster, "z") == 3000
    cluster.add(quota("x", "b", "9"))
    assert (used(cluster, "z"), used(cluster, "b")) == (0, 3000)


def test_a_pod_that_is_bound_although_its_reservation_was_taken_back_counts() -> None:
    cluster = harness("ElasticQuota", quota("x", "a", "9"))
    pod = make_pod("p", "3", namespace="x", node_name="n0")
    cluster.add(pod)
    cluster.plugin(CapacityScheduling).unreserve(CycleState(), pod, "n0")
    assert used(cluster, "a") == 3000


def changes(number: int) -> Callable[[], object]:
    """Return the work to change so many quotas, each of which has a pod that runs."""
    names = [f"q{one}" for one in range(number)]
    cluster = harness("ElasticQuota", *(quota(name, name, "1") for name in names))
    for name in names:
        cluster.add(make_pod("p", "1", namespace=name, node_name="n0"))
    state: Any = cluster.plugin(CapacityScheduling)._state

    def work() -> None:
        for name in names:
            cluster.add(quota(name, name, "1", note="status"))
        for name in names:
            cluster.add(quota(name, name, "2"))
        for name in names:
            cluster.remove("ElasticQuota", name, namespace=name)
        for name in names:
            cluster.add(quota(name, name, "1"))
        state.shares()

    return work


def test_a_quota_that_changes_is_work_for_the_pods_of_its_namespace_alone() -> None:
    changes(2)()
    assert growth(changes, 10) < MOST_FOR_FOUR_TIMES
