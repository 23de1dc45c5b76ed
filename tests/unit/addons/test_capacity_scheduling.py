from __future__ import annotations

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.capacity_scheduling.quotas import QuotaAccounts
from proreus.addons.pod_amounts import requests_of
from proreus.framework import CycleState
from proreus.testing import Harness, make_node, make_pod

NAME = "CapacityScheduling"


def quota(namespace: str, least: dict, most: dict | None = None, name: str = "eq") -> dict:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"min": least, **({} if most is None else {"max": most})},
    }


def configuration() -> dict:
    multi_point = {
        "disabled": [{"name": "DefaultPreemption"}],
        "enabled": [{"name": NAME}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": multi_point}}],
    }


def harness(*objects, nodes=("n",), cpus: str = "32") -> Harness:
    made = [make_node(name, cpus) for name in nodes]
    return Harness([CapacityScheduling], made, objects, config=configuration())


def used(cluster: Harness, namespace: str, *cpus: int, priority: int = 0, node: str = "n") -> None:
    for number, cpu in enumerate(cpus):
        name = f"{namespace}-{number}"
        cluster.add(
            make_pod(name, str(cpu), namespace=namespace, node_name=node, priority=priority)
        )


def lent() -> Harness:
    """Two quotas whose sum is 10 CPUs, of which A uses 5 of its 4, and B 4 of its 6."""
    cluster = harness(quota("a", {"cpu": 4}, {"cpu": 8}), quota("b", {"cpu": 6}, {"cpu": 10}))
    used(cluster, "a", 1, 1, 1, 1, 1, priority=1000)
    used(cluster, "b", 2, 2)
    return cluster


def test_idle_guarantees_may_be_borrowed() -> None:
    assert lent().schedule(make_pod("p", "1", namespace="a")).bound
    outcome = lent().schedule(make_pod("p", "2", namespace="a"))
    assert "total ElasticQuota used is more than min" in str(outcome)


def test_a_guarantee_is_taken_back_from_pods_of_any_priority() -> None:
    cluster = lent()
    outcome = cluster.schedule(make_pod("p", "2", namespace="b"))
    assert outcome.nominated_node == "n"
    assert len(cluster.api.deleted) == 1
    assert cluster.api.deleted[0].startswith("a/")
    cluster.advance(10)
    assert cluster.schedule("b/p").bound


def test_beyond_its_guarantee_a_namespace_preempts_its_own_less_important_pods() -> None:
    cluster = lent()
    cluster.schedule(make_pod("p", "3", namespace="b", priority=10))
    assert cluster.api.deleted
    assert all(key.startswith("b/") for key in cluster.api.deleted)


def test_the_maximum_of_a_namespace_holds() -> None:
    cluster = harness(quota("a", {"cpu": 9}, {"cpu": 8}))
    used(cluster, "a", 8, priority=10)
    outcome = cluster.schedule(make_pod("p", "1", namespace="a"))
    assert "ElasticQuota a is more than Max" in str(outcome)
    assert not cluster.api.deleted


def test_what_a_maximum_omits_is_not_limited() -> None:
    cluster = harness(quota("a", {"cpu": 9, "memory": "9Gi"}, {"cpu": 8}))
    assert cluster.schedule(make_pod("p", "1", "1Gi", namespace="a")).bound


def test_only_what_a_pod_requests_is_tested() -> None:
    cluster = harness(quota("a", {"cpu": 9}))
    cluster.add(make_pod("big", "1", "1Gi", namespace="a", node_name="n"))
    assert cluster.schedule(make_pod("p", "1", namespace="a")).bound


def test_pods_without_quota_are_no_victims_of_pods_with_one() -> None:
    cluster = harness(quota("a", {"cpu": 4}), cpus="4")
    used(cluster, "free", 4)
    assert not cluster.schedule(make_pod("p", "2", namespace="a", priority=10)).nominated_node
    cluster.schedule(make_pod("q", "2", namespace="other", priority=10))
    assert cluster.api.deleted == ["free/free-0"]


def test_a_guarantee_counts_where_the_sum_is_used_up_already() -> None:
    cluster = harness(quota("a", {"cpu": 1}), quota("b", {"cpu": 2}))
    used(cluster, "a", 9)
    assert cluster.schedule(make_pod("p", "2", namespace="b")).bound
    assert not cluster.schedule(make_pod("q", "1", namespace="b")).bound


def test_a_pod_is_tried_once_the_sum_is_used_up_and_its_guarantee_counts() -> None:
    cluster = harness(quota("a", {}), quota("b", {"cpu": 2}))
    cluster.add(make_pod("a-0", "2", namespace="a", node_name="gone"))
    assert not cluster.schedule(make_pod("p", "1", namespace="b")).bound
    cluster.add(make_pod("b-0", "1", namespace="b", node_name="gone"))
    assert cluster.queue_of("b/p") in ("active", "backoff")
    assert cluster.schedule("b/p").bound


def test_a_quota_that_comes_after_its_pods_counts_them() -> None:
    cluster = harness()
    used(cluster, "a", 3, 1)
    cluster.add(quota("a", {"cpu": 4}))
    outcome = cluster.schedule(make_pod("p", "1", namespace="a"))
    assert not outcome.bound
    cluster.add(quota("b", {"cpu": 4}))
    assert cluster.queue_of("a/p") in ("active", "backoff")
    assert cluster.schedule("a/p").bound


def test_deleted_and_finished_pods_give_back_and_wake_those_that_wait() -> None:
    cluster = harness(quota("a", {"cpu": 1}))
    used(cluster, "a", 1)
    assert not cluster.schedule(make_pod("p", "1", namespace="a")).bound
    cluster.add(make_pod("other", "1", namespace="free", node_name="n"))
    cluster.remove("Pod", "other", namespace="free")
    assert cluster.queue_of("a/p") == "unschedulable"
    cluster.remove("Pod", "a-0", namespace="a")
    assert cluster.schedule("a/p").bound
    cluster.patch("Pod", "p", {"status": {"phase": "Succeeded"}}, namespace="a")
    assert cluster.schedule(make_pod("q", "1", namespace="a")).bound


@pytest.mark.parametrize("first", [0, 1])
def test_the_oldest_quota_of_a_namespace_counts(first: int) -> None:
    quotas = [quota("a", {"cpu": 1}, name="z"), quota("a", {"cpu": 9}, name="b")]
    for day, one in enumerate(quotas, 1):
        one["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    cluster = harness(quotas[first], quotas[1 - first])
    assert not cluster.schedule(make_pod("p", "2", namespace="a")).bound
    cluster.remove("ElasticQuota", "z", namespace="a")
    assert cluster.schedule("a/p").bound


def test_of_quotas_of_the_same_age_the_first_by_name_counts() -> None:
    cluster = harness(quota("a", {"cpu": 9}, name="z"), quota("a", {"cpu": 1}, name="b"))
    assert not cluster.schedule(make_pod("p", "2", namespace="a")).bound


def test_a_quota_that_cannot_be_read_can_be_corrected_and_deleted() -> None:
    cluster = harness(quota("a", {"cpu": 1}), quota("b", {"cpu": "?"}))
    assert not cluster.schedule(make_pod("p", "2", namespace="a")).bound
    cluster.add(quota("a", {"cpu": "?"}))
    assert cluster.schedule("a/p").bound, "as after a restart"
    cluster.add(quota("a", {"cpu": 3}))
    assert not cluster.schedule(make_pod("q", "2", namespace="a")).bound
    cluster.add(quota("a", {"cpu": "?"}))
    cluster.remove("ElasticQuota", "eq", namespace="a")
    assert cluster.schedule("a/q").bound


def test_a_pod_that_is_bound_although_its_reservation_was_taken_back_counts() -> None:
    cluster = harness(quota("a", {"cpu": 3}))
    pod = make_pod("p", "2", namespace="a", node_name="n")
    cluster.add(pod)
    cluster.plugin(CapacityScheduling).unreserve(CycleState(), pod, "n")
    assert not cluster.schedule(make_pod("q", "2", namespace="a")).bound


def test_a_preemptor_waits_for_victims_on_its_nominated_node() -> None:
    cluster = lent()
    pod = make_pod("p", "2", namespace="b")
    cluster.schedule(pod)
    assert len(cluster.api.deleted) == 1
    never = make_pod("q", "2", namespace="b", spec={"preemptionPolicy": "Never"})
    outcome = cluster.schedule(never)
    assert len(cluster.api.deleted) == 1
    assert not outcome.nominated_node


def test_a_guarantee_is_taken_back_from_several_nodes() -> None:
    quotas = quota("a", {"cpu": 6}), quota("b", {"cpu": 6})
    cluster = harness(*quotas, nodes=("n0", "n1", "n2"), cpus="20")
    for number in range(12):
        cluster.add(make_pod(f"a{number}", "1", namespace="a", node_name=f"n{number % 3}"))
    assert not cluster.schedule(make_pod("p", "6", namespace="b")).bound
    for _ in range(3):
        cluster.advance(20)
        cluster.schedule_all()
    assert cluster.outcome("b/p").bound
    assert len(cluster.api.deleted) == 6


def test_a_guarantee_is_taken_back_from_who_borrowed_meanwhile() -> None:
    cluster = harness(quota("a", {"cpu": 3}), quota("b", {"cpu": 2}))
    used(cluster, "a", 1, 1)
    used(cluster, "b", 1)
    nominated = {"nominatedNodeName": "n"}
    cluster.add(make_pod("late", "2", namespace="b", priority=-1, status=nominated))
    outcome = cluster.schedule(make_pod("p", "1", namespace="a"))
    assert "total ElasticQuota used is more than min" in str(outcome)
    cluster.patch("Pod", "late", {"spec": {"nodeName": "n"}}, namespace="b")
    assert cluster.queue_of("a/p") in ("active", "backoff")
    for _ in range(3):
        cluster.advance(20)
        cluster.schedule_all()
    assert cluster.outcome("a/p").bound
    assert [key.partition("/")[0] for key in cluster.api.deleted] == ["b"]


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"overhead": {"cpu": "1"}}, 2000),
        (
            {
                "initContainers": [
                    {"name": "i", "resources": {"requests": {"cpu": "3"}}},
                    {"name": "j", "resources": {"requests": {"cpu": "2"}}},
                ]
            },
            3000,
        ),
    ],
)
def test_what_counts_of_a_pod(spec: dict, cpu: int) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    pod = make_pod("p", spec={"containers": containers, **spec})
    assert requests_of(pod.pod)["cpu"] == cpu


def test_a_resource_that_no_pod_requests_is_not_kept() -> None:
    accounts = QuotaAccounts()
    for uid in ("u", "v"):
        accounts.put(uid, "team", {"cpu": 1, "example.com/none": 0})
    accounts.remove("u")
    assert accounts.used_by("team") == {"cpu": 1}
    accounts.remove("v")
    assert not accounts.used_by("team")
